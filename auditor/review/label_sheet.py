"""A certification sample on paper: a CSV to fill in, or one HTML page that is judged in any browser and gives the CSV.

People who judge it need neither the audit nor this program. The score is not shown: it would lead the eye.
"""

import base64
import csv
import html
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from auditor.corpus.sample import span_of
from auditor.query.database import AuditDatabase
from auditor.query.reviews import new_review
from auditor.query.row_queries import row as find_row
from auditor.query.sandbox import literal
from auditor.review.label_sample import CertifyError, Sample
from auditor.schema import MARKS
from auditor.terminal import neutralize_formula

COLUMNS = ("uid", "caption_index", "key", "caption", "mark", "note")


def sample_rows(database: AuditDatabase, sample: Sample) -> list[dict[str, Any]]:
    """The rows of the sample in its order, whole."""
    found = [find_row(database, row.uid, row.caption_index, row.shard) for row in sample.rows]
    return [row for row in found if row is not None]


def write_csv(rows: Sequence[Mapping[str, Any]], marks: Sequence[str | None]) -> str:
    """With the spans of timed captions, where there are any."""
    text = io.StringIO()
    timed = ("start", "end") if any(span_of(row) for row in rows) else ()
    writer = csv.DictWriter(text, (*COLUMNS[:4], *timed, *COLUMNS[4:]), extrasaction="ignore")
    writer.writeheader()
    for row, mark in zip(rows, marks, strict=True):
        cells = {name: neutralize_formula(value) for name, value in row.items()}
        writer.writerow({**cells, "mark": mark or "", "note": ""})
    return text.getvalue()


def read_marks(path: str) -> list[tuple[str, int, str, str]]:
    """uid, caption_index, mark and note of every line of a filled sheet that has a mark."""
    try:
        lines = list(csv.DictReader(io.StringIO(Path(path).read_text(encoding="utf-8-sig"))))
        marked = [line for line in lines if (line.get("mark") or "").strip()]
        found = [
            (line["uid"], int(line["caption_index"]), line["mark"].strip().lower(), (line.get("note") or "").strip())
            for line in marked
        ]
    except (OSError, KeyError, ValueError, TypeError, csv.Error) as error:
        raise CertifyError(f"{path} is not a filled sheet (uid, caption_index, mark): {error}") from None
    for number, (_, _, mark, _) in enumerate(found):
        if mark not in MARKS:
            raise CertifyError(f"{path}: mark {number + 1} is {mark!r}; a mark is one of {', '.join(MARKS)}")
    return found


def keep_marks(database: AuditDatabase, path: str, reviewer: str | None = None) -> int:
    """The marks of a filled sheet into the audit, as those of its file's name unless a reviewer is named; how many."""
    marks = read_marks(path)
    uids = ", ".join(sorted({literal(uid) for uid, *_ in marks})) or "''"
    known = database.rows(f"SELECT uid, caption_index FROM measured WHERE uid IN ({uids})")
    rows = {(row["uid"], row["caption_index"] or 0) for row in known}
    if others := [uid for uid, caption_index, *_ in marks if (uid, caption_index) not in rows]:
        raise CertifyError(f"{path} marks {len(others):,} rows that are not of {database.path}, such as {others[0]!r}")
    name = reviewer or Path(path).stem
    made = [new_review(uid, caption_index, mark, name, note) for uid, caption_index, mark, note in marks]
    database.keep_reviews(made)
    return len(made)


def write_html(rows: Sequence[Mapping[str, Any]], pictures: Sequence[bytes | None], name: str) -> str:
    """One page with all pictures inside."""
    cards = "\n".join(card(row, jpeg) for row, jpeg in zip(rows, pictures, strict=True))
    page = Path(__file__).with_name("sheet.html").read_text(encoding="utf-8")
    return page.replace("{{name}}", html.escape(name)).replace("{{cards}}", cards)


def card(row: Mapping[str, Any], jpeg: bytes | None) -> str:
    inline = f"data:image/jpeg;base64,{base64.b64encode(jpeg).decode()}" if jpeg else ""
    picture = f'<img src="{inline}" alt="">' if jpeg else "<p>no picture</p>"
    fields = " ".join(f'data-{name.replace("_", "-")}="{html.escape(str(row[name]))}"' for name in COLUMNS[:3])
    span = span_of(row)
    caption = html.escape(row["caption"] or "") + (f" ({span.start:g} to {span.end:g} s)" if span else "")
    buttons = "".join(f'<button data-mark="{mark}">{word.label}</button>' for mark, word in MARKS.items())
    return f'<article {fields}>{picture}<p class="caption">{caption}</p><div>{buttons}</div></article>'
