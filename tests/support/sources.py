"""A small audit of media with captions of three sources: URLs, sound ones, and some boilerplate."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from auditor.python_api import Audit
from tests.support.synthetic import write_corpus_audit

SOURCES = ("alt", "raw", "refined")


def write_sources(folder: Path, p_mismatch: list[tuple[float | None, ...]] | None = None) -> Audit:
    """An audit whose media have three captions; p_mismatch by medium and source is given, or 0.01, and 0.9 for alt."""
    path, _ = write_corpus_audit(folder, captions=3)
    keys: dict[str, int] = {}
    for file in sorted((path / "samples").glob("*.parquet")):
        table = pq.read_table(file)
        rows = table.to_pylist()
        for row in rows:
            medium, source = keys.setdefault(row["key"], len(keys)), row["caption_index"]
            given = p_mismatch[medium % len(p_mismatch)] if p_mismatch else (0.9, 0.01, 0.01)
            is_boilerplate = source == 2 and medium % 4 == 0
            row |= {"caption_source": SOURCES[source], "p_mismatch": given[source], "words": 10 * (source + 1)}
            row |= {"looks_like": "url" if source == 0 else None, "caption_count": 40 if is_boilerplate else 1}
            row |= {"language": "de" if source == 1 and medium % 2 else "en"}
        pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), file)
    return Audit(path)
