"""Parquet stores vectors of embeddings plain, without dictionaries and statistics."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from auditor.audit_folder import arrow_schema
from auditor.audit_folder.embeddings import build_nullable_vectors


def test_vectors_are_stored_plain(tmp_path: Path) -> None:
    schema = arrow_schema.build_embeddings_schema(4)
    column = build_nullable_vectors(np.ones((3, 4), np.float32), np.ones(3, bool))
    there = {"visual": column, "text": column, "caption": pa.array(["a", "a", "b"])}
    table = pa.Table.from_arrays([there.get(f.name, pa.nulls(3, f.type)) for f in schema], schema=schema)
    with pq.ParquetWriter(tmp_path / "t.parquet", schema, **arrow_schema.EMBEDDINGS_STORAGE) as writer:
        writer.write_table(table)
    group = pq.read_metadata(tmp_path / "t.parquet").row_group(0)
    found = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    for name in ("visual.list.element", "text.list.element", "frame_embeddings.list.element.list.element"):
        assert not found[name].has_dictionary_page
        assert found[name].compression == "UNCOMPRESSED"
    assert found["caption"].compression == "LZ4"
    assert pq.read_table(tmp_path / "t.parquet").equals(table)
