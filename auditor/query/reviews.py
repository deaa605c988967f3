"""The marks of reviewers, stored in the audit folder: append-only, and safe with several reviewers at once.

On a local disk a mark is one line of `reviews.jsonl`, appended by a single write; on an object store, which cannot
append, it is one small object under `reviews/`. The latest mark of each reviewer on a row counts; a withdrawn mark is
followed by a line that says so.
"""

import contextlib
import errno
import getpass
import json
import os
import time
import uuid
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass, fields
from datetime import UTC, datetime
from typing import Literal

from auditor.audit_folder.folder import Folder
from auditor.errors import AuditorError
from auditor.query.sandbox import is_utf8, quote_literal
from auditor.regular_files import open_regular, parse_json
from auditor.schema import MARKS, Mark

FILE = "reviews.jsonl"
WITHDRAWN: Literal["withdrawn"] = "withdrawn"  # in place of a mark: the reviewer withdrew it


class ReviewError(AuditorError):
    """A mark that cannot be stored."""


@dataclass(frozen=True, slots=True)
class Review:
    uid: str
    caption_index: int
    reviewer: str
    mark: Mark | Literal["withdrawn"]
    note: str
    time: str  # ISO, UTC


FIELDS = [field.name for field in fields(Review)]


def make_review(uid: str, caption_index: int, mark: str, reviewer: str | None, note: str) -> Review:
    if mark not in MARKS and mark != WITHDRAWN:
        raise ReviewError(f"a mark is one of {', '.join(MARKS)}, not {mark!r}")
    if not reviewer:
        try:
            reviewer = getpass.getuser()
        except (KeyError, OSError):  # a container without a user database
            reviewer = "unknown"
    now = datetime.now(UTC).isoformat(timespec="microseconds")
    return Review(uid, caption_index, reviewer, mark, note, now)


def append_reviews(folder: Folder, reviews: Sequence[Review]) -> None:
    """Store marks. Nothing is ever rewritten, so writers do not need to coordinate."""
    line = "".join(json.dumps(asdict(review), ensure_ascii=False) + "\n" for review in reviews).encode()
    try:
        if folder.local:
            append_review_line(folder.path(FILE), line)
        else:
            name = f"reviews/{time.time_ns():020d}-{uuid.uuid4().hex[:12]}.json"
            folder.fs.pipe_file(folder.path(name), line)
    except OSError as error:
        raise ReviewError(f"cannot store a mark in {folder.url}: {error.strerror or error}") from None


def append_review_line(path: str, line: bytes) -> None:
    """Append a line by one write to a descriptor opened for appending, which the kernel does atomically.

    If a full disk has truncated the last line, a line break comes first; otherwise both lines would be lost.
    """
    descriptor = open_regular(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW)
    try:
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            line = b"\n" + line
        if (written := os.write(descriptor, line)) < len(line):
            raise OSError(errno.EIO, f"only {written} of {len(line)} bytes were written; is the disk full?")
    finally:
        os.close(descriptor)


def read_reviews(folder: Folder) -> list[Review]:
    """Read all marks in the order of their times; truncated or malformed lines are skipped."""
    if folder.local:
        lines = folder.read_bytes(FILE).splitlines() if folder.exists(FILE) else []
    else:
        names = folder.names("reviews", ".json")
        lines = [line for name in names for line in folder.read_bytes(f"reviews/{name}.json").splitlines()]
    reviews = [review for line in lines if (review := parse_review_line(line))]
    return sorted(reviews, key=lambda review: review.time)


def read_reviews_version(folder: Folder) -> str:
    """Return a version that changes with each new mark of a local audit; empty for a remote audit."""
    if folder.local:
        with contextlib.suppress(OSError):
            status = os.stat(folder.path(FILE))
            return f"{status.st_mtime_ns}-{status.st_size}"
    return ""


def parse_review_line(line: bytes) -> Review | None:
    """Parse a line; None if a field is missing or has another type: lines written by hand may hold anything."""
    try:
        entry = parse_json(line)
        review = Review(**{field: entry[field] for field in FIELDS})
    except (ValueError, KeyError, TypeError):
        return None
    texts = (review.uid, review.reviewer, review.mark, review.note, review.time)
    is_valid = (
        all(isinstance(text, str) and is_utf8(text) for text in texts)
        and (review.mark in MARKS or review.mark == WITHDRAWN)
        and type(review.caption_index) is int
        and 0 <= review.caption_index < 2**31
    )
    return review if is_valid else None


def select_latest_reviews(reviews: Sequence[Review]) -> list[Review]:
    """Return the latest mark of each reviewer on each row, without withdrawn ones."""
    latest = {(review.uid, review.caption_index, review.reviewer): review for review in reviews}
    return [review for review in latest.values() if review.mark != WITHDRAWN]


def build_reviews_sql(reviews: Sequence[Review]) -> str:
    """Build the SQL of the latest marks, with types even if there are none."""
    types = {field: "INTEGER" if field == "caption_index" else "VARCHAR" for field in FIELDS}
    columns = ", ".join(f"CAST({field} AS {sql_type}) AS {field}" for field, sql_type in types.items())
    latest = [astuple(review) for review in select_latest_reviews(reviews)]
    rows = ", ".join(f"({', '.join(map(quote_literal, row))})" for row in latest or [(None,) * len(FIELDS)])
    return f"SELECT {columns} FROM (VALUES {rows}) marks({', '.join(FIELDS)}) WHERE uid IS NOT NULL"


# The verdict on each row: the mark of most reviewers, or 'unsure' if there is a tie.
VERDICTS_SQL = (
    "SELECT uid, caption_index, if(count(*) = 1, any_value(mark), 'unsure') AS review "
    "FROM (SELECT uid, caption_index, mark FROM reviews GROUP BY uid, caption_index, mark "
    "QUALIFY count(*) = max(count(*)) OVER (PARTITION BY uid, caption_index)) GROUP BY uid, caption_index"
)
