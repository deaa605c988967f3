"""The captions that people have edited, stored in the audit folder as appended lines beside the marks of reviewers.

An edit belongs to the row of its key whose caption has its hash, in the same shard or of the same medium: it survives
another audit of the corpus, and it is not applied once its caption has changed. The latest edit of each reviewer on a
row counts, and of these the newest is applied. An edit without a text takes the reviewer's edit back.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from auditor.audit_folder.appended_lines import append_entries, find_user_name, format_time, read_lines
from auditor.audit_folder.folder import Folder
from auditor.errors import AuditorError
from auditor.regular_files import parse_json

NAME = "edits"  # of the appended lines
LONGEST = 20_000  # characters of a caption that can be edited
LONGEST_NAMES = {"reviewer": 200, "time": 64, "uid": 64, "media_digest": 64, "shard": 4096, "key": 4096}
ROW_COLUMNS = ("uid", "shard", "key", "caption_index", "caption_hash", "media_digest")
_LINE_BREAKS = re.compile("[ \t]*[\t\n\v\f\r\x85\u2028\u2029]+[ \t]*")

Row = Mapping[str, Any]  # of an audit, with ROW_COLUMNS and its caption


class EditError(AuditorError):
    """A caption that cannot be edited in this way."""


@dataclass(frozen=True, slots=True)
class CaptionEdit:
    """The row at the time of the edit, its caption before and after, who wrote it and when (ISO, UTC)."""

    uid: str
    shard: str
    key: str
    caption_index: int
    caption_hash: int
    media_digest: str | None
    old_caption: str
    new_caption: str  # empty: the reviewer took the edit back
    reviewer: str
    time: str

    def belongs_to(self, row: Row) -> bool:
        """A caption that is spelled differently, but has the same hash, must be in the same place."""
        if row["key"] != self.key or row["caption_hash"] != self.caption_hash:
            return False
        if row["shard"] == self.shard:
            return bool(row["caption"] == self.old_caption or row["caption_index"] == self.caption_index)
        return bool(row["caption"] == self.old_caption and row["media_digest"] == self.media_digest is not None)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def make_edit(row: Row, text: str | None, reviewer: str | None = None) -> CaptionEdit:
    """Make the edit of a row, or with None the entry that takes it back. Raises EditError."""
    caption = row["caption"]
    if not caption:
        raise EditError(f"{row['key']} has no caption to edit")
    if len(caption) > LONGEST:
        raise EditError(
            f"the caption of {row['key']} has {len(caption):,} characters; at most {LONGEST:,} can be edited"
        )
    new_caption = "" if text is None else clean_caption(text)
    name = (reviewer or find_user_name())[: LONGEST_NAMES["reviewer"]]
    place = {column: row[column] for column in ROW_COLUMNS}
    return CaptionEdit(**place, old_caption=caption, new_caption=new_caption, reviewer=name, time=format_time())


def clean_caption(text: str) -> str:
    """Return a caption as one line. Raises EditError if it is empty, too long, or has control characters."""
    line = _LINE_BREAKS.sub(" ", text).strip()
    if not any(unicodedata.category(character)[0] not in "CZ" for character in line):
        raise EditError("an edited caption cannot be empty")
    if len(line) > LONGEST:
        raise EditError(f"an edited caption has at most {LONGEST:,} characters, not {len(line):,}")
    if control := next((char for char in line if unicodedata.category(char) in ("Cc", "Cs")), None):
        raise EditError(f"an edited caption cannot have the control character {control!a}")
    return line


def append_edits(folder: Folder, edits: Iterable[CaptionEdit]) -> None:
    try:
        append_entries(folder, NAME, [edit.to_dict() for edit in edits])
    except OSError as error:
        raise EditError(f"cannot store an edit in {folder.url}: {error.strerror or error}") from None


def read_edits(folder: Folder) -> list[CaptionEdit]:
    """Read all edits in the order of their times; truncated or malformed lines are skipped."""
    edits = [edit for line in read_lines(folder, NAME) if (edit := parse_edit_line(line))]
    return sorted(edits, key=lambda edit: edit.time)


def parse_edit_line(line: bytes) -> CaptionEdit | None:
    """Parse a line; None if a field is missing or has another type: lines written by hand may hold anything."""
    try:
        entry = parse_json(line)
        edit = CaptionEdit(**{field.name: entry[field.name] for field in fields(CaptionEdit)})
        return edit if _is_valid(edit) else None
    except (ValueError, KeyError, TypeError, AttributeError, EditError):
        return None


def _is_valid(edit: CaptionEdit) -> bool:
    """Whether all fields have their types and bounds. Values of other types raise."""
    for name, longest in LONGEST_NAMES.items():
        text = getattr(edit, name)
        if not (text is None and name == "media_digest") and len(text.encode()) > 4 * longest:
            return False
    numbers = ((edit.caption_index, 0, 2**31), (edit.caption_hash, -(2**63), 2**63))
    is_number = all(type(number) is int and low <= number < high for number, low, high in numbers)
    is_text = isinstance(edit.old_caption, str) and 0 < len(edit.old_caption.encode(errors="strict")) <= 4 * LONGEST
    return is_number and is_text and (edit.new_caption == "" or clean_caption(edit.new_caption) == edit.new_caption)


class RowEdits:
    def __init__(self, edits: Iterable[CaptionEdit]) -> None:
        self.by_caption: dict[tuple[str, int], list[CaptionEdit]] = defaultdict(list)
        for edit in edits:
            self.by_caption[edit.key, edit.caption_hash].append(edit)

    def find(self, row: Row) -> list[CaptionEdit]:
        """Return the latest edit of each reviewer on a row, without those taken back; the applied edit is first.

        If a medium has the same caption twice, an edit of the one is also for the other, unless that has its own.
        """
        latest: dict[str, CaptionEdit] = {}
        edits = [edit for edit in self.by_caption.get((row["key"], row["caption_hash"]), ()) if edit.belongs_to(row)]
        ranked = sorted(edits, key=lambda edit: (edit.caption_index == row["caption_index"], edit.time))
        for edit in ranked:
            latest.pop(edit.reviewer, None)  # the order is that of the last edits
            latest[edit.reviewer] = edit
        return [edit for edit in reversed(latest.values()) if edit.new_caption]
