"""What this user has confirmed about an audit: the roots of its corpus, and its model.

An audit may come from a stranger, and its manifest with it, so media are read only from places that the user has named:
the corpus that they audited, or the one given once with --corpus. One small file per audit, in the user's state folder.
"""

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from auditor.audit_folder.folder import Folder, StorageError
from auditor.audit_folder.json_validation import CompleteShape, read_valid_json
from auditor.errors import AuditError

AUDIT_ID = re.compile(r"[0-9a-f]{32}")
SHAPE = CompleteShape(roots=[str], follow_links=bool, model=str)


@dataclass(frozen=True, slots=True)
class ConfirmedPlaces:
    roots: tuple[str, ...] = ()  # the corpus first, then other folders and URLs of its media
    follow_links: bool = False  # of the corpus, out of its roots
    model: str = ""


def find_state_folder() -> Folder:
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Folder(Path(base) / "pau-auditor" / "audits")


def read_confirmed_places(audit_id: Any) -> ConfirmedPlaces:
    """Return what the user has confirmed about an audit; nothing if it is not theirs."""
    if isinstance(audit_id, str) and AUDIT_ID.fullmatch(audit_id):
        with suppress(FileNotFoundError, AuditError, RuntimeError):  # RuntimeError: no home folder
            stored = read_valid_json(find_state_folder(), f"{audit_id}.json", SHAPE, "")
            return ConfirmedPlaces(tuple(stored["roots"]), stored["follow_links"], stored["model"])
    return ConfirmedPlaces()


def choose_audit_model(manifest: Mapping[str, Any], model: str | None = None) -> str:
    """Return the model to load for an audit: one that the user has named, now or when they made the audit."""
    spec, confirmed = str((manifest.get("model") or {}).get("spec") or ""), read_confirmed_places(manifest.get("id"))
    if model:
        confirm_places(manifest.get("id"), replace(confirmed, model=model))
    elif not confirmed.model:
        raise AuditError(f"this audit was not made here: name its model with --model (the audit says {spec})")
    return model or confirmed.model


def confirm_places(audit_id: Any, places: ConfirmedPlaces) -> None:
    """Remember what the user has said; without a writable home folder, they say it each time."""
    if isinstance(audit_id, str) and AUDIT_ID.fullmatch(audit_id) and places != read_confirmed_places(audit_id):
        with suppress(StorageError, OSError, RuntimeError):
            find_state_folder().write_json(f"{audit_id}.json", asdict(places))
