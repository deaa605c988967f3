"""repair_marks.json: what people said of proposed repairs, by the caption's uid and number."""

from typing import Literal

from auditor.audit_folder.folder import Folder
from auditor.audit_folder.json_validation import read_shaped

FILE = "repair_marks.json"
Verdict = Literal["accepted", "refused"]


def mark_name(uid: str, caption_index: int) -> str:
    return f"{uid}-{caption_index}"


def read_marks(folder: Folder) -> dict[str, Verdict]:
    try:
        marks: dict[str, Verdict] = read_shaped(folder, FILE, {"": str}, "remove it, or put a copy back")
    except FileNotFoundError:
        return {}
    return marks


def mark_repair(folder: Folder, uid: str, caption_index: int, verdict: Verdict) -> None:
    """Keep one verdict; a later one replaces it."""
    folder.write_json(FILE, {**read_marks(folder), mark_name(uid, caption_index): verdict})
