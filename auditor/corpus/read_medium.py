"""Read one medium for a browser: a file, a stretch of a tar, a cell of a Parquet table; local or behind fsspec.

`media_path` in an audit is an absolute path or a URL. Where the corpus has moved since, `root` says where it is now.
Two kinds of path carry a fragment: `t.parquet#column=image&row=17`, and `s.tar.gz#compression=gzip`, whose offset is
that in the unpacked tar.
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
from auditor.corpus.file_names import as_text, real_path
from auditor.corpus.sample import Media
from auditor.corpus.shard import CorpusError
from auditor.corpus.tar_archive import read_packed, split_compression
from auditor.errors import AuditorError

BUFFER = 2**20  # without it Arrow takes a whole column chunk into memory at once
_CELL = re.compile(r"#column=([^&#]*)&row=(\d+)$")
# What a table may name; anything else that fsspec knows (ssh, smb, a chained protocol) is not for untrusted tables.
PROTOCOLS = frozenset(["http", "https", "s3", "s3a", "gs", "gcs", "hf", "az", "abfs", "abfss", "memory", "file"])


class MediaError(AuditorError):
    """The bytes of a medium cannot be had."""


def read_media(path: str, offset: int, size: int, root: str | None = None, old_root: str | None = None) -> bytes:
    """The bytes of one medium; `size` below zero means all of the file.

    `root` is where the corpus is now and `old_root` where it was (`corpus.root` of the manifest): a path under the old
    one is looked for at the same place under the new. Without `old_root` the longest tail of the path that exists
    under `root` is taken.
    """
    if root is not None:
        path = moved(path, root, old_root)
    try:
        if cell := parse_cell(path):
            return read_cell(*cell)
        tar, compression = split_compression(path)
        read = partial(read_packed, real_path(tar), compression) if compression else partial(_read_file, path)
        data = read(offset, size)
    except FileNotFoundError:
        raise MediaError(f"{path} does not exist") from None
    except (OSError, CorpusError, pa.ArrowException) as error:
        raise MediaError(f"{path} cannot be read: {error}") from error
    if 0 <= size != len(data):
        raise MediaError(f"{path} is too short: {len(data)} of {size} bytes at offset {offset}")
    return data


def media_reader(media: Media) -> bytes:
    """`read_media` for a medium that is a file of its own."""
    return read_media(media.path, media.offset, media.size)


def moved(path: str, root: str, old_root: str | None = None) -> str:
    """Where a path of the corpus is after the corpus has moved to `root`; paths outside the old root stay."""
    root = remote_files.absolute(root)
    if old_root is not None:
        old = as_text(remote_files.absolute(old_root).rstrip("/"))
        return root.rstrip("/") + path[len(old) :] if path.startswith(old + "/") else path
    names = path.split("/")
    for start in range(1, len(names)):
        candidate = "/".join([root.rstrip("/"), *names[start:]])
        if _exists(without_fragment(candidate)):
            return candidate
    return path


def cell_path(table: str, column: str, row: int) -> str:
    """How the bytes in a cell of a Parquet table are named."""
    return f"{table}#column={quote(column, safe='')}&row={row}"


def read_cell(table: str, column: str, row: int) -> bytes:
    """The bytes in one cell, reading no more than its row group's column."""
    with open_parquet(table) as file:
        before = 0
        for group in range(file.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            if row - before < rows:
                return _nth_cell(file, group, column, row - before, table)
            before += rows
    raise MediaError(f"{table} has {before} rows: there is no row {row}")


def open_parquet(path: str) -> pq.ParquetFile:
    """A Parquet file, local or remote; or an Arrow file, which reads like one."""
    if is_arrow(path):
        if not remote_files.is_url(path):
            return ArrowFile(real_path(path))
        with remote_files.fetched(path) as descriptor, open(descriptor, "rb", closefd=False) as file:
            return ArrowFile(file)  # what is mapped outlives its descriptor
    if not remote_files.is_url(path):
        return pq.ParquetFile(real_path(path), buffer_size=BUFFER)
    return PythonParquetFile(remote_files.open_url(path), buffer_size=BUFFER)


def is_arrow(path: str) -> bool:
    return path.lower().endswith(".arrow")


def parse_cell(path: str) -> tuple[str, str, int] | None:
    """(table, column, row) of a path that `cell_path` made; None for any other."""
    cell = _CELL.search(path)
    return (path[: cell.start()], unquote(cell[1]), int(cell[2])) if cell else None


def cell_bytes(value: Any) -> bytes | None:
    """Bytes as they are, or out of Hugging Face's struct of bytes and path."""
    found = value.get("bytes") if isinstance(value, dict) else value
    return found if isinstance(found, bytes) else None


def _nth_cell(file: pq.ParquetFile, group: int, column: str, row: int, table: str) -> bytes:
    for batch in file.iter_batches(batch_size=16, row_groups=[group], columns=[column]):
        if row < batch.num_rows:
            data = cell_bytes(batch.column(0)[row].as_py())
            if data is None:
                raise MediaError(f"{table}: no bytes in column {column}")
            return data
        row -= batch.num_rows
    raise MediaError(f"{table}: column {column} is shorter than its table")


def _read_file(path: str, offset: int, size: int) -> bytes:
    if remote_files.is_url(path):
        if path.split("://")[0].lower() not in PROTOCOLS:
            raise MediaError(f"{path}: media are not read over this protocol")
        return remote_files.read_range(path, offset, size)
    with open(real_path(path), "rb") as file:
        file.seek(offset)
        return file.read(size) if size >= 0 else file.read()


def _exists(path: str) -> bool:
    return remote_files.exists(path) if remote_files.is_url(path) else os.path.exists(real_path(path))


def without_fragment(path: str) -> str:
    """The file that a path lies in: the tar, the table, or itself."""
    return _CELL.sub("", split_compression(path)[0])
