"""Read the bytes of one medium: a file, a byte range of a tar, or a cell of a Parquet table; local or behind fsspec.

`media_path` in an audit is an absolute path or a URL. Two kinds have a fragment: `t.parquet#column=image&row=17`, and
`s.tar.gz#compression=gzip`, where offsets are those of the unpacked tar.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa

from auditor.audit_folder.confirmed_places import confirm_places, read_confirmed_places
from auditor.corpus.corpus_files import is_below, is_url, make_path_absolute, path_exists, read_range
from auditor.corpus.file_names import escape_name, resolve_stored_path
from auditor.corpus.parquet_rows import compute_row_edges, open_parquet, read_batches
from auditor.corpus.sample import Media
from auditor.corpus.shard import CorpusError
from auditor.corpus.tar_archive import read_compressed, split_compression
from auditor.errors import AuditorError

_CELL = re.compile(r"#column=([^&#]*)&row=(\d+)$")
# Untrusted tables may name no other protocol of fsspec (ssh, smb, a chained protocol).
PROTOCOLS = frozenset(["http", "https", "s3", "s3a", "gs", "gcs", "hf", "az", "abfs", "abfss", "memory", "file"])


class MediaError(AuditorError):
    """The bytes of a medium cannot be read."""


@dataclass(frozen=True, slots=True)
class MediaPlaces:
    """Where the media of an audit may be read: below the folders and URLs that the user has confirmed, nowhere else.

    `old_root` is the corpus as the audit saw it (`corpus.root` of the manifest). If the first root is another, a path
    below the old root is read from the same place below that one. Without `old_root`, the longest tail of the path that
    exists below the first root is read.
    """

    roots: tuple[str, ...]
    old_root: str | None = None
    follow_links: bool = False

    @property
    def moved_to(self) -> str | None:
        """The present root of the corpus, if it has moved."""
        root = self.roots[0] if self.roots else None
        return None if root is None or root == self.old_root else root

    def locate(self, path: str) -> str:
        """Return the present path of a medium. Raises MediaError if it does not lie in one of the places."""
        if not path:
            raise MediaError("the row names no file")
        if not self.roots:
            seen = f" (the audit says {self.old_root})" if self.old_root else ""
            where = "with --corpus ROOT, or Audit(..., corpus=ROOT)"
            raise MediaError(f"this audit was not made here: say where its media are {where}{seen}")
        path = relocate_path(path, self.moved_to, self.old_root) if self.moved_to else path
        file = resolve_stored_path(strip_fragment(path))
        if not any(is_below(file, root, follow_links=self.follow_links) for root in self.roots):
            raise MediaError(
                f"{path} is not read: it lies outside the corpus {self.roots[0]}; --corpus names another place"
            )
        return path

    def read(self, path: str, offset: int, size: int) -> bytes:
        return read_media(self.locate(path), offset, size)


NOWHERE = MediaPlaces(())


def find_media_places(manifest: Mapping[str, Any], corpus: str | Path | None) -> MediaPlaces:
    """Return where the media of an audit may be read. A given `corpus` is remembered for this audit."""
    confirmed = read_confirmed_places(manifest.get("id"))
    if corpus:
        root = make_path_absolute(str(corpus))
        confirmed = replace(confirmed, roots=(root, *(other for other in confirmed.roots if other != root)))
        confirm_places(manifest.get("id"), confirmed)
    return MediaPlaces(confirmed.roots, manifest.get("corpus", {}).get("root"), confirmed.follow_links)


def read_media(path: str, offset: int, size: int) -> bytes:
    """Return the bytes of one medium; a negative `size` reads the whole file."""
    try:
        if cell := parse_cell_path(path):
            return read_cell(*cell)
        file, compression = split_compression(path)
        if compression:
            data = read_compressed(resolve_stored_path(file), compression, offset, size)
        elif is_url(path) and path.split("://")[0].lower() not in PROTOCOLS:
            raise MediaError(f"{path}: media are not read over this protocol")
        else:
            data = read_range(resolve_stored_path(path), offset, size)
    except FileNotFoundError:
        raise MediaError(f"{path} does not exist") from None
    except (OSError, CorpusError, pa.ArrowException) as error:
        raise MediaError(f"{path} cannot be read: {error}") from error
    if 0 <= size != len(data):
        raise MediaError(f"{path} is too short: {len(data)} of {size} bytes at offset {offset}")
    return data


def read_medium_bytes(media: Media) -> bytes:
    return read_media(media.path, media.offset, media.size)


def relocate_path(path: str, root: str, old_root: str | None = None) -> str:
    """Return a path of the corpus after the corpus has moved to `root`; paths outside the old root stay."""
    root = make_path_absolute(root)
    if old_root is not None:
        old = escape_name(make_path_absolute(old_root).rstrip("/"))
        return root.rstrip("/") + path[len(old) :] if path.startswith(old + "/") else path
    names = path.split("/")
    candidates = ("/".join([root.rstrip("/"), *names[start:]]) for start in range(1, len(names)))
    return next((name for name in candidates if path_exists(resolve_stored_path(strip_fragment(name)))), path)


def format_cell_path(table: str, column: str, row: int) -> str:
    return f"{table}#column={quote(column, safe='')}&row={row}"


def parse_cell_path(path: str) -> tuple[str, str, int] | None:
    """Return (table, column, row) of a path that `format_cell_path` made, or None for any other path."""
    cell = _CELL.search(path)
    return (path[: cell.start()], unquote(cell[1]), int(cell[2])) if cell else None


def read_cell(table: str, column: str, row: int) -> bytes:
    """Return the bytes in one cell, or in Hugging Face's struct of bytes and path; reads only its row group."""
    with open_parquet(table) as file:
        batch = next(read_batches(file, row, row + 1, 16, [column]), None)
        if batch is None:
            raise MediaError(f"{table} has {compute_row_edges(file)[-1]} rows: there is no row {row}")
        value = batch.column(0)[0].as_py()
        data = value.get("bytes") if isinstance(value, dict) else value
        if not isinstance(data, bytes):
            raise MediaError(f"{table}: no bytes in column {column}")
        return data


def strip_fragment(path: str) -> str:
    """Return the file of a path without its fragment: the tar, the table, or the path itself."""
    return _CELL.sub("", split_compression(path)[0])
