"""Read the bytes of one medium: a file, a byte range of a tar, or a cell of a Parquet table; local or behind fsspec.

`media_path` in an audit is an absolute path or a URL. If the corpus has moved, `root` is its new folder. Two kinds of
path have a fragment: `t.parquet#column=image&row=17`, and `s.tar.gz#compression=gzip`, where offsets are those of the
unpacked tar.
"""

import os
import re
from functools import partial
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq

from auditor.audit_folder.parquet_reader import PythonParquetFile
from auditor.corpus import remote_files
from auditor.corpus.arrow_file import ArrowFile
from auditor.corpus.file_names import escape_name, resolve_stored_path
from auditor.corpus.sample import Media
from auditor.corpus.shard import CorpusError
from auditor.corpus.tar_archive import read_compressed, split_compression
from auditor.errors import AuditorError

BUFFER = 2**20  # bytes; without a buffer, Arrow reads a whole column chunk into memory
_CELL = re.compile(r"#column=([^&#]*)&row=(\d+)$")
# Untrusted tables may name no other protocol of fsspec (ssh, smb, a chained protocol).
PROTOCOLS = frozenset(["http", "https", "s3", "s3a", "gs", "gcs", "hf", "az", "abfs", "abfss", "memory", "file"])


class MediaError(AuditorError):
    """The bytes of a medium cannot be read."""


def read_media(path: str, offset: int, size: int, root: str | None = None, old_root: str | None = None) -> bytes:
    """Return the bytes of one medium; a negative `size` reads the whole file.

    `root` is the present folder of the corpus and `old_root` the former one (`corpus.root` of the manifest): a path
    below the old root is read from the same place below the new one. Without `old_root`, the longest tail of the path
    that exists below `root` is read.
    """
    if root is not None:
        path = relocate_path(path, root, old_root)
    try:
        if cell := parse_cell_path(path):
            return read_cell(*cell)
        tar, compression = split_compression(path)
        read = (
            partial(read_compressed, resolve_stored_path(tar), compression)
            if compression
            else partial(_read_file_range, path)
        )
        data = read(offset, size)
    except FileNotFoundError:
        raise MediaError(f"{path} does not exist") from None
    except (OSError, CorpusError, pa.ArrowException) as error:
        raise MediaError(f"{path} cannot be read: {error}") from error
    if 0 <= size != len(data):
        raise MediaError(f"{path} is too short: {len(data)} of {size} bytes at offset {offset}")
    return data


def read_medium_bytes(media: Media) -> bytes:
    """Return the bytes of a `Media` record."""
    return read_media(media.path, media.offset, media.size)


def relocate_path(path: str, root: str, old_root: str | None = None) -> str:
    """Return a path of the corpus after the corpus has moved to `root`; paths outside the old root stay."""
    root = remote_files.make_path_absolute(root)
    if old_root is not None:
        old = escape_name(remote_files.make_path_absolute(old_root).rstrip("/"))
        return root.rstrip("/") + path[len(old) :] if path.startswith(old + "/") else path
    names = path.split("/")
    for start in range(1, len(names)):
        candidate = "/".join([root.rstrip("/"), *names[start:]])
        if _media_exists(strip_fragment(candidate)):
            return candidate
    return path


def format_cell_path(table: str, column: str, row: int) -> str:
    """Format the path of the bytes in a cell of a Parquet table."""
    return f"{table}#column={quote(column, safe='')}&row={row}"


def read_cell(table: str, column: str, row: int) -> bytes:
    """Return the bytes in one cell; reads only the column of its row group."""
    with open_parquet(table) as file:
        first = 0
        for group in range(file.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            if row - first < rows:
                return _read_nth_cell(file, group, column, row - first, table)
            first += rows
    raise MediaError(f"{table} has {first} rows: there is no row {row}")


def open_parquet(path: str) -> pq.ParquetFile:
    """Open a local or remote Parquet file, or an Arrow file, which has the same methods."""
    if is_arrow_path(path):
        if not remote_files.is_url(path):
            return ArrowFile(resolve_stored_path(path))
        with remote_files.fetch_copy(path) as descriptor, open(descriptor, "rb", closefd=False) as file:
            return ArrowFile(file)  # the memory map outlives the descriptor
    if not remote_files.is_url(path):
        return pq.ParquetFile(resolve_stored_path(path), buffer_size=BUFFER)
    return PythonParquetFile(remote_files.open_url(path), buffer_size=BUFFER)


def is_arrow_path(path: str) -> bool:
    return path.lower().endswith(".arrow")


def parse_cell_path(path: str) -> tuple[str, str, int] | None:
    """Return (table, column, row) of a path that `format_cell_path` made, or None for any other path."""
    cell = _CELL.search(path)
    return (path[: cell.start()], unquote(cell[1]), int(cell[2])) if cell else None


def extract_cell_bytes(value: Any) -> bytes | None:
    """Return bytes, also those of Hugging Face's struct of bytes and path; None for any other value."""
    data = value.get("bytes") if isinstance(value, dict) else value
    return data if isinstance(data, bytes) else None


def _read_nth_cell(file: pq.ParquetFile, group: int, column: str, row: int, table: str) -> bytes:
    for batch in file.iter_batches(batch_size=16, row_groups=[group], columns=[column]):
        if row < batch.num_rows:
            data = extract_cell_bytes(batch.column(0)[row].as_py())
            if data is None:
                raise MediaError(f"{table}: no bytes in column {column}")
            return data
        row -= batch.num_rows
    raise MediaError(f"{table}: column {column} is shorter than its table")


def _read_file_range(path: str, offset: int, size: int) -> bytes:
    if remote_files.is_url(path):
        if path.split("://")[0].lower() not in PROTOCOLS:
            raise MediaError(f"{path}: media are not read over this protocol")
        return remote_files.read_object_range(path, offset, size)
    with open(resolve_stored_path(path), "rb") as file:
        file.seek(offset)
        return file.read(size) if size >= 0 else file.read()


def _media_exists(path: str) -> bool:
    return remote_files.url_exists(path) if remote_files.is_url(path) else os.path.exists(resolve_stored_path(path))


def strip_fragment(path: str) -> str:
    """Return the file of a path without its fragment: the tar, the table, or the path itself."""
    return _CELL.sub("", split_compression(path)[0])
