"""Edit captions by hand, take edits back, and list them; exports write the captions as edited.

The entries are in auditor/audit_folder/edit_records.py, what exports do with them in auditor/keep/caption_changes.py.
"""

from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import Any, Literal

from auditor.audit_folder.edit_records import CaptionEdit, EditError, Row, make_edit
from auditor.keep.caption_changes import fetch_candidate_rows
from auditor.query.database import AuditDatabase
from auditor.query.explain import find_row

EditStatus = Literal["applied", "replaced", "gone"]


@dataclass(frozen=True, slots=True)
class ListedEdit:
    """An edit of a row. Its status is applied, replaced (by a later one of another reviewer) or gone (no such row)."""

    key: str
    caption_index: int
    status: EditStatus
    reviewer: str
    time: str  # ISO, UTC
    old_caption: str
    new_caption: str
    uid: str
    shard: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def edit_caption(
    database: AuditDatabase,
    key: str,
    text: str | None,
    *,
    caption_index: int | None = None,
    reviewer: str | None = None,
) -> CaptionEdit:
    """Edit the caption of a row, by key or uid; its first caption if no index is given. None takes your edit back."""
    return edit_row(database, find_row(database, key, caption_index), text, reviewer)


def edit_row(database: AuditDatabase, row: Row, text: str | None, reviewer: str | None = None) -> CaptionEdit:
    """Store the edit of a row, or with None take the reviewer's edit of it back."""
    edit = make_edit(row, text, reviewer)
    edits = database.read_row_edits().find(row)
    if text is None and edit.reviewer not in {other.reviewer for other in edits}:
        raise EditError(f"{edit.reviewer} has not edited this caption of {edit.key}")
    if edit.new_caption == (edits[0].new_caption if edits else edit.old_caption):
        raise EditError(f"{edit.key} has this caption already")
    database.keep_edits([edit])
    return edit


def list_edits(database: AuditDatabase) -> list[ListedEdit]:
    """List the edits of each row, the applied one first, then those whose row is gone; without those taken back."""
    row_edits = database.read_row_edits()
    rows = fetch_candidate_rows(database, {key for key, _ in row_edits.by_caption})
    listed = [
        make_listed_edit(edit, row, "replaced" if number else "applied")
        for row in rows
        for number, edit in enumerate(row_edits.find(row))
    ]
    rows_by_caption = defaultdict(list)
    for row in rows:
        rows_by_caption[row["key"], row["caption_hash"]].append(row)
    gone = {}
    for place, edits in row_edits.by_caption.items():
        for edit in edits:
            if not any(edit.belongs_to(row) for row in rows_by_caption.get(place, ())):
                gone[edit.key, edit.caption_hash, edit.caption_index, edit.shard, edit.reviewer] = edit
    return [*listed, *(make_listed_edit(edit, edit.to_dict(), "gone") for edit in gone.values() if edit.new_caption)]


def make_listed_edit(edit: CaptionEdit, row: Row, status: EditStatus) -> ListedEdit:
    place = {name: row[name] for name in ("key", "caption_index", "uid", "shard")}
    return ListedEdit(
        status=status,
        reviewer=edit.reviewer,
        time=edit.time,
        old_caption=edit.old_caption,
        new_caption=edit.new_caption,
        **place,
    )
