"""The marks of reviewers, stored in the audit folder as appended lines, safe with several reviewers at once.

The latest mark of each reviewer on a row counts; a withdrawn mark is followed by a line that says so.
"""

from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass, fields
from typing import Literal

from auditor.audit_folder.appended_lines import append_entries, find_user_name, format_time, read_lines
from auditor.audit_folder.folder import Folder
from auditor.errors import AuditorError
from auditor.query.sandbox import is_utf8, quote_literal
from auditor.regular_files import parse_json
from auditor.schema import MARKS, Mark

NAME = "reviews"  # of the appended lines
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
    return Review(uid, caption_index, reviewer or find_user_name(), mark, note, format_time())


def append_reviews(folder: Folder, reviews: Sequence[Review]) -> None:
    try:
        append_entries(folder, NAME, [asdict(review) for review in reviews])
    except OSError as error:
        raise ReviewError(f"cannot store a mark in {folder.url}: {error.strerror or error}") from None


def read_reviews(folder: Folder) -> list[Review]:
    """Read all marks in the order of their times; truncated or malformed lines are skipped."""
    reviews = [review for line in read_lines(folder, NAME) if (review := parse_review_line(line))]
    return sorted(reviews, key=lambda review: review.time)


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
