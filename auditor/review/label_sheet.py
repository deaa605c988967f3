"""A label sample as a CSV to fill in, or as an HTML page that is judged in any browser and exports the CSV.

Reviewers need neither the audit nor this program. The score is not shown because it would bias them.
"""

import csv
import html
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from auditor.corpus.sample import get_row_span
from auditor.query.database import AuditDatabase
from auditor.query.reviews import Review, make_review
from auditor.query.row_queries import read_row, read_rows_by_uid
from auditor.review.label_sample import CertifyError, LabelSample
from auditor.schema import MARKS
from auditor.terminal import neutralize_formula

SHEET_COLUMNS = ("uid", "caption_index", "key", "caption", "mark", "note")


def fetch_sample_rows(database: AuditDatabase, sample: LabelSample) -> list[dict[str, Any]]:
    rows = [read_row(database, row.uid, row.caption_index, row.shard) for row in sample.rows]
    return [row for row in rows if row is not None]


def build_label_csv(rows: Sequence[Mapping[str, Any]], marks: Sequence[str | None]) -> str:
    """The CSV to fill in, with the spans of timed captions if there are any."""
    text = io.StringIO()
    timed = ("start", "end") if any(get_row_span(row) for row in rows) else ()
    writer = csv.DictWriter(text, (*SHEET_COLUMNS[:4], *timed, *SHEET_COLUMNS[4:]), extrasaction="ignore")
    writer.writeheader()
    for row, mark in zip(rows, marks, strict=True):
        cells = {name: neutralize_formula(value) for name, value in row.items()}
        writer.writerow({**cells, "mark": mark or "", "note": ""})
    return text.getvalue()


def read_filled_sheet(path: str, reviewer: str) -> list[Review]:
    reviews: list[Review] = []
    try:
        for line in csv.DictReader(io.StringIO(Path(path).read_text(encoding="utf-8-sig"))):
            if mark := (line.get("mark") or "").strip().lower():
                if mark not in MARKS:
                    words = f"mark {len(reviews) + 1} is {mark!r}; a mark is one of {', '.join(MARKS)}"
                    raise CertifyError(f"{path}: {words}")
                note = (line.get("note") or "").strip()
                reviews.append(make_review(line["uid"], int(line["caption_index"]), mark, reviewer, note))
    except (OSError, KeyError, ValueError, TypeError, csv.Error) as error:
        raise CertifyError(f"{path} is not a filled label sheet (uid, caption_index, mark): {error}") from None
    return reviews


def import_label_sheet(database: AuditDatabase, path: str, reviewer: str | None = None) -> int:
    """Import the marks of a filled sheet into the audit; returns their number.

    The file name is the reviewer's name unless one is given.
    """
    reviews = read_filled_sheet(path, reviewer or Path(path).stem)
    rows = read_rows_by_uid(database, (review.uid for review in reviews), "key")
    if unknown := [review.uid for review in reviews if (review.uid, review.caption_index) not in rows]:
        raise CertifyError(
            f"{path} marks {len(unknown):,} rows that are not in {database.path}, such as {unknown[0]!r}"
        )
    database.keep_reviews(reviews)
    return len(reviews)


def build_label_page(rows: Sequence[Mapping[str, Any]], pictures: Sequence[str], name: str) -> str:
    """The page; a picture is a JPEG in base64, or empty."""
    cards = "\n".join(map(build_label_card, rows, pictures))
    page = Path(__file__).with_name("sheet.html").read_text(encoding="utf-8")
    return page.replace("{{name}}", html.escape(name)).replace("{{cards}}", cards)


def build_label_card(row: Mapping[str, Any], jpeg: str) -> str:
    picture = f'<img src="data:image/jpeg;base64,{jpeg}" alt="">' if jpeg else "<p>no image</p>"
    fields = " ".join(f'data-{name.replace("_", "-")}="{html.escape(str(row[name]))}"' for name in SHEET_COLUMNS[:3])
    span = get_row_span(row)
    caption = html.escape(row["caption"] or "") + (f" ({span.start:g} to {span.end:g} s)" if span else "")
    buttons = "".join(f'<button data-mark="{mark}">{word.label}</button>' for mark, word in MARKS.items())
    return f'<article {fields}>{picture}<p class="caption">{caption}</p><div>{buttons}</div></article>'
