"""What people said of pairs: marks kept beside the audit, append-only, safe with two reviewers at once.

On a local disk a mark is one line of `reviews.jsonl`, appended by a single write; on an object store, which cannot
append, it is one small object under `reviews/`. The latest mark of each reviewer on a row counts; one that is taken
back is followed by a line that says so.
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
from pathlib import Path
from typing import Any, Literal

from auditor.audit_folder.folder import Folder
from auditor.errors import AuditorError
from auditor.query.sandbox import literal
from auditor.schema import MARKS, Mark

FILE = "reviews.jsonl"
WITHDRAWN: Literal["withdrawn"] = "withdrawn"  # in place of a mark: the reviewer has taken it back


class ReviewError(AuditorError):
    """A mark that cannot be kept."""


@dataclass(frozen=True, slots=True)
class Review:
    uid: str
    caption_index: int
    reviewer: str
    mark: Mark | Literal["withdrawn"]
    note: str
    time: str  # ISO, UTC


FIELDS = [field.name for field in fields(Review)]


def reviewer_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container without a user database
        return "unknown"


def new_review(uid: str, caption_index: int, mark: str, reviewer: str | None, note: str) -> Review:
    if mark not in MARKS and mark != WITHDRAWN:
        raise ReviewError(f"a mark is one of {', '.join(MARKS)}, not {mark!r}")
    now = datetime.now(UTC).isoformat(timespec="microseconds")
    return Review(uid, caption_index, reviewer or reviewer_name(), mark, note, now)


def append_reviews(folder: Folder, reviews: Sequence[Review]) -> None:
    """Keep marks. Nothing that is there is ever rewritten, so writers need not know of each other."""
    line = "".join(json.dumps(asdict(review), ensure_ascii=False) + "\n" for review in reviews).encode()
    try:
        if folder.local:
            append_line(Path(folder.path(FILE)), line)
        else:
            name = f"reviews/{time.time_ns():020d}-{uuid.uuid4().hex[:12]}.json"
            folder.fs.pipe_file(folder.path(name), line)
    except OSError as error:
        raise ReviewError(f"cannot keep a mark in {folder.url}: {error.strerror or error}") from None


def append_line(path: Path, line: bytes) -> None:
    """One write on a descriptor opened for appending: the kernel puts it at the end whole.

    After a line that a full disk tore, it begins with a line break, or it would be lost with the torn one.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            line = b"\n" + line
        if (written := os.write(descriptor, line)) < len(line):
            raise OSError(errno.EIO, f"only {written} of {len(line)} bytes were written; is the disk full?")
    finally:
        os.close(descriptor)


def read_reviews(folder: Folder) -> list[Review]:
    """All marks in the order they were made; a line torn by a full disk or written by hand is passed over."""
    if folder.local:
        file = Path(folder.path(FILE))
        lines = file.read_bytes().splitlines() if file.exists() else []
    else:
        names = folder.names("reviews", ".json")
        lines = [line for name in names for line in folder.read_bytes(f"reviews/{name}.json").splitlines()]
    reviews = [review for line in lines if (review := parse_line(line))]
    return sorted(reviews, key=lambda review: review.time)


def version(folder: Folder) -> str:
    """Changes when a mark is added to a local audit; those of a remote one are read when it is opened."""
    if folder.local:
        with contextlib.suppress(OSError):
            found = Path(folder.path(FILE)).stat()
            return f"{found.st_mtime_ns}-{found.st_size}"
    return ""


def parse_line(line: bytes) -> Review | None:
    try:
        entry = json.loads(line)
        review = Review(**{field: entry[field] for field in FIELDS})
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return review if sound(review) else None


def sound(review: Review) -> bool:
    """Is every field what its type says? Lines written by hand may hold anything."""
    texts = (review.uid, review.reviewer, review.mark, review.note, review.time)
    return (
        all(isinstance(text, str) and storable(text) for text in texts)
        and (review.mark in MARKS or review.mark == WITHDRAWN)
        and type(review.caption_index) is int
        and 0 <= review.caption_index < 2**31
    )


def storable(text: str) -> bool:
    """Not half of a surrogate pair, which JSON can spell and no database keeps."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def latest(reviews: Sequence[Review]) -> list[Review]:
    """The latest mark of each reviewer on each row, but for those taken back."""
    kept: dict[tuple[str, int, str], Review] = {}
    for review in reviews:
        kept[review.uid, review.caption_index, review.reviewer] = review
    return [review for review in kept.values() if review.mark != WITHDRAWN]


def verdicts(reviews: Sequence[Review]) -> dict[tuple[str, int], str]:
    """One word per row: what most reviewers said last; 'unsure' where they are divided."""
    votes: dict[tuple[str, int], list[str]] = {}
    for review in latest(reviews):
        votes.setdefault((review.uid, review.caption_index), []).append(review.mark)
    return {row: agreed(marks) for row, marks in votes.items()}


def agreed(marks: Sequence[str]) -> str:
    counts = {mark: marks.count(mark) for mark in set(marks)}
    most = [mark for mark, count in counts.items() if count == max(counts.values())]
    return most[0] if len(most) == 1 else "unsure"


def reviews_sql(reviews: Sequence[Review]) -> str:
    """The latest marks as SQL."""
    rows = [astuple(review) for review in latest(reviews)]
    return rows_sql(FIELDS, rows)


def verdicts_sql(reviews: Sequence[Review]) -> str:
    rows = [(uid, index, mark) for (uid, index), mark in verdicts(reviews).items()]
    return rows_sql(["uid", "caption_index", "review"], rows)


def rows_sql(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Rows of text and caption_index as SQL, typed also where there are none."""
    types = ["INTEGER" if column == "caption_index" else "VARCHAR" for column in columns]
    listed = ", ".join(
        f"CAST({column} AS {sql_type}) AS {column}" for column, sql_type in zip(columns, types, strict=True)
    )
    values = ", ".join("(" + ", ".join(literal(value) for value in row) + ")" for row in rows)
    nothing = "(" + ", ".join("NULL" for _ in columns) + ")"
    where = "" if rows else " WHERE FALSE"
    return f"SELECT {listed} FROM (VALUES {values or nothing}) marks({', '.join(columns)}){where}"
