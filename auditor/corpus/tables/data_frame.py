"""Data frames of pandas, polars and pyarrow as corpora: their paths (or bytes) and captions are stored as Parquet."""

import io
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from auditor.corpus.corpus_files import is_url
from auditor.corpus.file_names import find_common_root
from auditor.corpus.shard import CorpusError, CorpusOptions
from auditor.corpus.tables.table import choose_columns


def is_data_frame(corpus: object) -> bool:
    return hasattr(corpus, "__arrow_c_stream__") and hasattr(corpus, "columns")


def write_data_frame(frame: Any, path: Path, options: CorpusOptions) -> tuple[str, ...]:
    """Write the columns that an audit reads, and return the folder of the media, if they are files.

    An equal table keeps its time, so that nothing is swept again.
    """
    is_arrow = isinstance(frame, pa.Table)
    names = {str(name): name for name in (frame.column_names if is_arrow else frame.columns)}
    columns = choose_columns("the DataFrame", list(names), options)
    if not len(frame):
        raise CorpusError("the DataFrame has no rows")
    series = {name: frame[names[name]] for name in columns.names}
    cells = {name: column.to_pylist() if is_arrow else list(column) for name, column in series.items()}
    cells[columns.media] = [resolve_cell(cell) for cell in cells[columns.media]]
    data = io.BytesIO()
    try:
        pq.write_table(pa.table({name: pa.array(values, from_pandas=True) for name, values in cells.items()}), data)
    except pa.ArrowException as error:
        raise CorpusError(f"the DataFrame cannot be stored as Parquet: {error}") from error
    if not path.is_file() or path.read_bytes() != data.getvalue():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.getvalue())
    files = [cell for cell in cells[columns.media] if isinstance(cell, str) and cell and not is_url(cell)]
    return (find_common_root(files),) if files else ()


def resolve_cell(cell: Any) -> Any:
    """Make a path absolute, because the table may be in another folder; URLs and bytes stay."""
    path = os.fspath(cell) if isinstance(cell, os.PathLike) else cell
    return os.path.abspath(path) if isinstance(path, str) and path and not is_url(path) else path
