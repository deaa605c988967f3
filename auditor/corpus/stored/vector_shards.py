"""From files to shards of stored embeddings: large files cut, one width and one set of carried columns for all.

Files are opened until one can be read; whatever differs in another is told when that one is swept.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from auditor.audit_folder.plain_types import plain_type
from auditor.corpus import remote_files
from auditor.corpus.file_names import common_root, shard_names
from auditor.corpus.read_medium import open_parquet
from auditor.corpus.shard import Corpus, CorpusError, Shard
from auditor.corpus.stored.vector_column import VectorColumn, first_width
from auditor.corpus.stored.vector_shard import LARGE, ROWS, Roles, VectorPlace, VectorShard
from auditor.schema import COLUMNS

TRIED = 20  # files, before a corpus is called unreadable


@dataclass(frozen=True, slots=True)
class VectorFile:
    """A Parquet file, where its vectors are, and how much of them there is."""

    path: str
    visual: VectorPlace
    text: VectorPlace
    size: int  # bytes of the largest of its files


def list_shards(spec: str, root: str, files: Sequence[VectorFile], roles: Roles) -> Corpus:
    """The corpus of some files; the first that can be read says how wide vectors are and which columns there are."""
    below = common_root([file.path for file in files])
    names = shard_names([file.path.removeprefix(below).lstrip("/") for file in files])
    schema, dim, roles = _agree(spec, files, roles)
    carried = carried_columns(schema, roles)
    shards: list[Shard] = []
    for file, name in zip(files, names, strict=True):
        whole = VectorShard(name, file.path, file.visual, file.text, roles, carried, dim)
        shards += cut(whole) if file.size > LARGE else [whole]
    return Corpus(spec, root, shards)


def _agree(spec: str, files: Sequence[VectorFile], roles: Roles) -> tuple[pa.Schema, int, Roles]:
    first: Exception | None = None
    for file in files[:TRIED]:
        try:
            with open_parquet(file.path) as table:
                schema = table.schema_arrow
                widths = {side: _width(place, table, file.path) for side, place in _sides(file)}
        except (OSError, CorpusError, pa.ArrowException) as error:
            first = first or error
            continue
        if len(set(widths.values())) > 1:
            both = " and ".join(f"{side} vectors of {width} numbers" for side, width in widths.items())
            raise CorpusError(f"{file.path} has {both}: both sides must come from one model")
        if widths["visual"]:
            return schema, widths["visual"], _there(schema, roles)
    raise CorpusError(f"{spec}: {first or 'no row has a vector'}")


def _sides(file: VectorFile) -> list[tuple[str, VectorPlace]]:
    return [("visual", file.visual), ("text", file.text)]


def _width(place: VectorPlace, table: pq.ParquetFile, path: str) -> int:
    if not isinstance(place, VectorColumn):
        with place.open() as matrix:
            return matrix.width
    place.check(table.schema_arrow, path)
    found = (first_width(batch.column(0)) for batch in table.iter_batches(1000, columns=[place.column]))
    return next(filter(None, found), 0)


def _there(schema: pa.Schema, roles: Roles) -> Roles:
    """Without the columns that may be there and are not."""
    absent: dict[str, Any] = {
        part: None
        for part in ("key", "path", "width", "height", "digest")
        if getattr(roles, part) is not None and getattr(roles, part) not in schema.names
    }
    return replace(roles, **absent)


def carried_columns(schema: pa.Schema, roles: Roles) -> tuple[tuple[str, str], ...]:
    """The plain columns that the audit has under no name of its own, each with the Arrow type it is kept as."""
    found = []
    for field in schema:
        kept = plain_type(field.type)
        if kept and field.name not in roles.said_elsewhere and field.name not in COLUMNS:
            found.append((field.name, kept))
    return tuple(found)


def cut(shard: VectorShard) -> Iterator[VectorShard]:
    """Shards of at most ROWS rows, ending with row groups where those are not too large."""
    try:
        with open_parquet(shard.path) as file:
            groups = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
    except (OSError, CorpusError, pa.ArrowException):
        yield shard  # reading it will say what is wrong
        return
    start = 0
    total = sum(groups)
    for number, stop in enumerate([*range(ROWS, total, ROWS), total]):
        yield replace(shard, name=f"{shard.name}-{number:06d}", start=start, stop=stop)
        start = stop


def sized_files(folder: str) -> dict[str, int]:
    """Every file under a folder or URL with its size."""
    if remote_files.is_url(folder):
        return {path: int(info.get("size") or 0) for path, info in remote_files.listing(folder).items()}
    found = {}
    for top, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(top, name)
            found[path] = os.stat(path).st_size if os.path.exists(path) else 0
    return found


def size_of(path: str) -> int:
    return int(remote_files.describe(path).get("size") or 0) if remote_files.is_url(path) else os.stat(path).st_size
