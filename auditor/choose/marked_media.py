"""The vectors of media that people have marked: in a CSV or Parquet file, or on the Review page.

A file has a column `uid` or `key`, and a column of labels 0 and 1 (or true and false). Of the reviews, media marked bad
are examples and those marked good are counterexamples. The rows of a medium count once.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from auditor.audit_folder.audit_files import get_shard_name
from auditor.choose.prompt_files import PromptError
from auditor.query.database import AuditDatabase
from auditor.query.function_inputs import read_side_vectors
from auditor.query.join_columns import read_column_file
from auditor.query.sandbox import quote_literal
from auditor.vectors import Bools, Floats

REVIEWS = "reviews"
MOST = 10_000  # marked rows
LABELS = {"0": False, "1": True, "false": False, "true": True}


def read_marked_media(database: AuditDatabase, examples: str) -> tuple[Floats, Bools]:
    """Return the vectors (N, D) of the marked media, and whether each is an example or a counterexample."""
    if examples == REVIEWS:
        rows = database.rows("SELECT uid, review FROM verdicts WHERE review IN ('good', 'bad')")
        labels, on = {row["uid"]: row["review"] == "bad" for row in rows}, "uid"
        if not labels:
            raise PromptError(f"{database.path} has no reviews: mark rows on the Review page, or give a file of labels")
    else:
        labels, on = read_label_file(examples)
    return find_vectors(database, labels, on, examples)


def read_label_file(path: str) -> tuple[dict[str, bool], str]:
    """Return the labels by uid or key, and which of the two it is."""
    on = "uid"
    table = read_column_file(path, on)
    if on not in table.column_names:
        on = "key"
        table = read_column_file(path, on)
    others = [name for name in table.column_names if name != on]
    column = "label" if "label" in others else others[0] if len(others) == 1 else ""
    if on not in table.column_names or not column:
        raise PromptError(f"{path} needs a column uid or key, and a column label of 0 and 1")
    if table.num_rows > MOST:
        raise PromptError(f"{path} has {table.num_rows:,} rows: at most {MOST:,} are read")
    names = table.column(on).cast(pa.string()).to_pylist()
    values = [parse_label(value) for value in table.column(column).to_pylist()]
    if None in values or None in names:
        raise PromptError(f"{path}: every row needs a {on} and a {column} of 0 or 1")
    labels = {name.lower() if on == "uid" else name: bool(value) for name, value in zip(names, values, strict=True)}
    return labels, on


def parse_label(value: Any) -> bool | None:
    return LABELS.get(str(int(value) if isinstance(value, float) and value in (0, 1) else value).lower())


def find_vectors(database: AuditDatabase, labels: Mapping[str, bool], on: str, examples: str) -> tuple[Floats, Bools]:
    condition = f"status = 'ok' AND {on} IN ({', '.join(map(quote_literal, labels))})"
    rows = database.rows(
        f"SELECT {on} AS name, file, file_row_number AS number FROM {database.placed_rows(condition)} "
        f"WHERE {condition} ORDER BY file, number"
    )
    if len(rows) == 0:
        raise PromptError(f"no {on} of {examples} is a usable row of {database.path}")
    vectors: list[Floats] = []
    marks: list[bool] = []
    for file in sorted({row["file"] for row in rows}):
        shard = get_shard_name(database.files.all[file])
        values, numbers = read_side_vectors(database.files.folder, shard, "visual")
        media = {int(numbers[row["number"]]): labels[row["name"]] for row in rows if row["file"] == file}
        vectors.append(values[list(media)])
        marks += media.values()
    return np.concatenate(vectors), np.array(marks, bool)
