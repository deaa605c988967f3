"""corrected.json: the correction of p_mismatch that labels asked for, as far as a reader of the audit must know it."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from auditor.audit_folder.folder import Folder
from auditor.audit_folder.json_validation import NUMBER, NUMBERS, Whole, read_shaped

FILE = "corrected.json"
KINDS = {"image": NUMBER, "video": NUMBER}
MAP = Whole(smallest_p=NUMBER, shift=NUMBER, slope=NUMBER, score_weight=NUMBER, mean=KINDS, spread=KINDS)
SHAPE = Whole(of=str, map=MAP, statistics={"": {"pi0": NUMBER, "curve": Whole(score=NUMBERS, p=NUMBERS)}})


def read_correction(folder: Folder, manifest: Mapping[str, Any]) -> dict[str, Any] | None:
    """The correction of an audit; None where there is none, or one that an earlier scoring was corrected with."""
    try:
        found: dict[str, Any] = read_shaped(folder, FILE, SHAPE, "`auditor certify --undo` takes it away")
    except FileNotFoundError:
        return None
    return found if found.get("of") == mark_of(manifest) else None


def mark_of(manifest: Mapping[str, Any]) -> str:
    """Of the numbers that gave p_mismatch its meaning when the labels were read."""
    text = json.dumps(manifest.get("statistics") or {}, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def with_correction(manifest: Mapping[str, Any], correction: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest with the shares and curves that follow from the correction."""
    statistics = {
        kind: {**found, "pi0_without_labels": found.get("pi0"), **correction["statistics"].get(kind, {})}
        for kind, found in (manifest.get("statistics") or {}).items()
    }
    return {**manifest, "statistics": statistics}


def corrected_sql(correction: Mapping[str, Any]) -> str:
    """The corrected probability, of the stored p_mismatch and mismatch_score."""
    given = correction["map"]
    smallest = float(given["smallest_p"])
    held = f"least(greatest(CAST(p_mismatch AS DOUBLE), {smallest!r}), {1 - smallest!r})"
    kinds = " ".join(
        f"WHEN '{kind}' THEN (mismatch_score - {mean!r}) / {given['spread'][kind]!r}"
        for kind, mean in given["mean"].items()
        if kind in ("image", "video")
    )
    value = (
        f"{given['shift']!r} + {given['slope']!r} * ln({held} / (1 - {held})) "
        f"- {given['score_weight']!r} * (CASE kind {kinds} END)"
    )
    return f"CAST(1 / (1 + exp(-({value}))) AS FLOAT)"
