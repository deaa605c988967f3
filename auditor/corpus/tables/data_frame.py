"""Data frames as corpora: pandas, polars and Arrow tables of paths (or bytes) and captions, stored as Parquet."""

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from auditor.corpus.corpus_files import is_url
from auditor.corpus.shard import CorpusError, CorpusOptions
from auditor.corpus.tables.table import choose_columns


def is_data_frame(corpus: object) -> bool:
    """Whether an object exports Arrow data, as pandas, polars and pyarrow do."""
    return hasattr(corpus, "__arrow_c_stream__") and hasattr(corpus, "columns")


def write_data_frame(frame: Any, path: Path, options: CorpusOptions) -> None:
    """Write the columns that an audit reads; a table that is there already and equal keeps its time of change."""
    names = {str(name): name for name in getattr(frame, "column_names", frame.columns)}
    columns = choose_columns("the DataFrame", list(names), options)
    if not len(frame):
        raise CorpusError("the DataFrame has no rows")
    cells = {
        name: list(getattr(frame[names[name]], "to_pylist", frame[names[name]].__iter__)()) for name in columns.names
    }
    cells[columns.media] = [resolve_path(cell) for cell in cells[columns.media]]
    try:
        table = pa.table({name: pa.array(values, from_pandas=True) for name, values in cells.items()})
    except pa.ArrowException as error:
        raise CorpusError(f"the DataFrame cannot be stored as Parquet: {error}") from error
    data = pa.BufferOutputStream()
    pq.write_table(table, data)
    if not path.is_file() or path.read_bytes() != data.getvalue().to_pybytes():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.getvalue())


def resolve_path(cell: Any) -> Any:
    """Make a path absolute, because the table may be in another folder; URLs and bytes stay."""
    path = os.fspath(cell) if isinstance(cell, os.PathLike) else cell
    return os.path.abspath(path) if isinstance(path, str) and path and not is_url(path) else path
