"""corrected.json: the correction of p_mismatch by labels, as far as readers of an audit need it."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from auditor.audit_folder.folder import Folder
from auditor.audit_folder.json_validation import NUMBER, NUMBERS, CompleteShape, read_valid_json

FILE = "corrected.json"
KINDS = {"image": NUMBER, "video": NUMBER}
MAP = CompleteShape(smallest_p=NUMBER, shift=NUMBER, slope=NUMBER, score_weight=NUMBER, mean=KINDS, spread=KINDS)
SHAPE = CompleteShape(
    of=str, map=MAP, statistics={"": {"pi0": NUMBER, "curve": CompleteShape(score=NUMBERS, p=NUMBERS)}}
)


def read_correction(folder: Folder, manifest: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the correction of an audit, or None if there is none for its present scores."""
    try:
        correction: dict[str, Any] = read_valid_json(folder, FILE, SHAPE, "`auditor certify --undo` removes it")
    except FileNotFoundError:
        return None
    return correction if correction["of"] == fingerprint_statistics(manifest) else None


def fingerprint_statistics(manifest: Mapping[str, Any]) -> str:
    """Hash the statistics that p_mismatch is based on."""
    text = json.dumps(manifest.get("statistics") or {}, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def apply_correction(manifest: Mapping[str, Any], correction: Mapping[str, Any]) -> dict[str, Any]:
    statistics = {
        kind: correct_estimate(estimate, correction["statistics"].get(kind, {}))
        for kind, estimate in (manifest.get("statistics") or {}).items()
    }
    return {**manifest, "statistics": statistics}


def correct_estimate(estimate: Mapping[str, Any], corrected: Mapping[str, Any]) -> dict[str, Any]:
    """The estimate of a kind, and of its calibration groups, with the corrected values."""
    groups = {
        name: correct_estimate(group, corrected.get("groups", {}).get(name, {}))
        for name, group in estimate.get("groups", {}).items()
    }
    return {
        **estimate,
        "pi0_without_labels": estimate.get("pi0"),
        **corrected,
        **({"groups": groups} if groups else {}),
    }


def build_corrected_sql(correction: Mapping[str, Any]) -> str:
    fit = correction["map"]
    smallest = float(fit["smallest_p"])
    clipped = f"least(greatest(CAST(p_mismatch AS DOUBLE), {smallest!r}), {1 - smallest!r})"
    kinds = " ".join(
        f"WHEN '{kind}' THEN (mismatch_score - {mean!r}) / {fit['spread'][kind]!r}"
        for kind, mean in fit["mean"].items()
        if kind in ("image", "video")
    )
    value = (
        f"{fit['shift']!r} + {fit['slope']!r} * ln({clipped} / (1 - {clipped})) "
        f"- {fit['score_weight']!r} * (CASE kind {kinds} END)"
    )
    return f"CAST(1 / (1 + exp(-({value}))) AS FLOAT)"
