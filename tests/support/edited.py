"""Audits whose rows have parts and preambles, and what exports must write for them, computed one row at a time."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Row = Mapping[str, Any]


def change_rows(audit: Path, columns: Mapping[tuple[str, int], Mapping[str, Any]]) -> None:
    """Set columns of rows by key and caption_index; the values may depend on the row."""
    for path in sorted((audit / "samples").glob("*.parquet")):
        table = pq.read_table(path)
        rows = table.to_pylist()
        for row in rows:
            row |= columns.get((row["key"], row["caption_index"]), {})
        pq.write_table(pa.Table.from_pylist(rows, table.schema), path)


def split_at(caption: str, *words: int) -> str:
    """The ends of parts that end after these words, and at the end of the caption."""
    texts = caption.split(" ")
    return " ".join(str(len(" ".join(texts[:count]))) for count in (*words, len(texts)))


def write_expected(row: Row, edit: str | None, most: float | None, *, strip: bool) -> str | None:
    """The caption that an export writes, or None if nothing is left of it."""
    if edit is not None:
        return edit
    text: str = row["caption"]
    numbers = (row["part_ends"] or "").split()
    if most is not None and numbers and numbers[-1] == str(len(text)):  # else they are not those of the caption
        ends = [0, *map(int, numbers)]
        probabilities = map(float, row["part_probabilities"].split())
        parts = [text[a:b] for a, b, p in zip(ends[:-1], ends[1:], probabilities, strict=True) if p <= most]
        if len(parts) < len(ends) - 1:
            text = "".join(parts).strip().rstrip(",;: ")
    if strip and row["preamble"] and text.startswith(row["preamble"]):
        rest = text.removeprefix(row["preamble"]).lstrip(" ,:")
        text = rest[:1].upper() + rest[1:] if rest else text
    return text or None
