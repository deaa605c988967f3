"""A shard of stored embeddings: a stretch of a Parquet file, and the vectors of its rows beside it or in it.

It has a name and a fingerprint like every shard, and no media: what it has is read as `Stretch`es of rows and vectors.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from auditor.corpus import remote_files
from auditor.corpus.read_medium import open_parquet
from auditor.corpus.shard import CorpusError, OpenShard, ShardError
from auditor.corpus.stored.npy_matrix import MatrixPlace, OpenMatrix

STRETCH = 8192  # rows whose vectors are read at once
ROWS = 25_000  # of a shard, where a file is cut
LARGE = 2**28  # bytes of a file that is worth opening to be cut

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class VectorColumn:
    """A column of the table itself."""

    column: str

    def check(self, schema: pa.Schema, path: str) -> None:
        """CorpusError where the table has no such column, or one of something else."""
        if self.column not in schema.names:
            raise CorpusError(f"no column {self.column!r}: {path} has {', '.join(schema.names[:30])}")
        found = schema.field(self.column).type
        if not is_list(found) or not pa.types.is_floating(found.value_type):
            raise CorpusError(f"column {self.column!r} of {path} is {found}, not a list of floats")


VectorPlace = MatrixPlace | VectorColumn


@dataclass(frozen=True, slots=True)
class Vectors:
    """Vectors as they are stored, and how many numbers each row has: 0 where there is no vector."""

    values: npt.NDArray[np.floating[Any]]  # (N, D); anything in rows of another width
    widths: Ints  # (N,)


@dataclass(frozen=True, slots=True)
class Roles:
    """Which columns of the table say what; the other plain ones are carried along."""

    caption: str
    uid: str | None = None
    key: str | None = None
    path: str | None = None  # of the medium
    width: str | None = None
    height: str | None = None
    digest: str | None = None  # equal for equal media, in hex

    @property
    def said_elsewhere(self) -> tuple[str | None, ...]:
        """Columns that the audit has under a name of its own."""
        return self.caption, self.uid, self.key


@dataclass(frozen=True, slots=True)
class Stretch:
    """Some rows of a shard with their vectors."""

    first: int  # place in the shard
    visual: Vectors
    text: Vectors


@dataclass(frozen=True, slots=True)
class OpenVectors:
    """The rows of a shard but for their vectors, and the vectors a stretch at a time."""

    table: pa.Table
    stretches: Iterator[Stretch]


@dataclass(frozen=True, slots=True)
class VectorShard:
    """Rows `start` to `stop` of a Parquet file with the vectors of each."""

    name: str
    path: str  # of the Parquet file
    visual: VectorPlace
    text: VectorPlace
    roles: Roles
    carried: tuple[tuple[str, str], ...] = ()  # column and Arrow type, the same for all shards
    dim: int = 0
    start: int = 0
    stop: int | None = None

    @property
    def files(self) -> set[str]:
        """Where its rows and vectors are."""
        places = [place.path for place in (self.visual, self.text) if isinstance(place, MatrixPlace)]
        return {self.path, *places}

    def fingerprint(self) -> str:
        """Of the files' sizes and times, or of what the store says of them."""
        digest = hashlib.blake2b(repr((self.start, self.stop, self.roles, self.carried)).encode(), digest_size=16)
        try:
            for path in sorted(self.files):
                digest.update(_mark(path).encode())
        except FileNotFoundError:
            raise ShardError(self.name, f"{path} does not exist") from None
        except (OSError, CorpusError) as error:
            raise ShardError(self.name, f"{path}: {error}") from error
        return digest.hexdigest()

    def open(self) -> AbstractContextManager[OpenShard]:
        raise ShardError(self.name, "holds embeddings, no media: it can be audited, not trained or evaluated on")

    @contextmanager
    def open_vectors(self) -> Iterator[OpenVectors]:
        """The rows and their vectors; ShardError where Parquet and vectors do not fit together."""
        with ExitStack() as stack:
            try:
                file = stack.enter_context(open_parquet(self.path))
                sides = [self._side(place, file, stack) for place in (self.visual, self.text)]
                stop = file.metadata.num_rows if self.stop is None else self.stop
                yield OpenVectors(self._table(file, stop), self._stretches(file, sides, stop))
            except FileNotFoundError as error:
                raise ShardError(self.name, f"{error.filename or self.path} does not exist") from error
            except (OSError, CorpusError, pa.ArrowException) as error:
                if isinstance(error, ShardError):
                    raise
                raise ShardError(self.name, f"{os.path.basename(self.path)}: {error}") from error

    def _side(self, place: VectorPlace, file: pq.ParquetFile, stack: ExitStack) -> OpenMatrix | VectorColumn:
        if isinstance(place, VectorColumn):
            return place
        matrix = stack.enter_context(place.open())
        if matrix.rows != file.metadata.num_rows:
            raise ShardError(
                self.name,
                f"{place.label} has {matrix.rows:,} rows, {os.path.basename(self.path)} {file.metadata.num_rows:,}",
            )
        if self.dim and matrix.width != self.dim:
            raise ShardError(self.name, f"{place.label} has vectors of {matrix.width} numbers, not {self.dim}")
        return matrix

    def _table(self, file: pq.ParquetFile, stop: int) -> pa.Table:
        known = file.schema_arrow.names
        for needed in filter(None, (self.roles.caption, self.roles.uid)):
            if needed not in known:
                raise ShardError(self.name, f"{os.path.basename(self.path)} has no column {needed!r}")
        named = [*vars_of(self.roles), *(name for name, _ in self.carried)]
        wanted = [name for name in dict.fromkeys(named) if name in known]
        return pa.concat_tables(_batches(file, wanted, self.start, stop)).combine_chunks()

    def _stretches(
        self, file: pq.ParquetFile, sides: Sequence[OpenMatrix | VectorColumn], stop: int
    ) -> Iterator[Stretch]:
        columns = [side.column for side in sides if isinstance(side, VectorColumn)]
        batches = _batches(file, columns, self.start, stop) if columns else iter(())
        ranges = ((first, min(first + STRETCH, stop)) for first in range(self.start, stop, STRETCH))
        for first, last in ranges:
            batch = next(batches) if columns else None
            visual, text = (self._read(side, batch, first, last) for side in sides)
            yield Stretch(first - self.start, visual, text)

    def _read(self, side: OpenMatrix | VectorColumn, batch: pa.Table | None, first: int, last: int) -> Vectors:
        if isinstance(side, OpenMatrix):
            values = side.read(first, last)
            return Vectors(values, np.full(len(values), side.width, np.int64))
        assert batch is not None
        return Vectors(*vectors_of_column(batch.column(side.column), self.dim))


def vars_of(roles: Roles) -> list[str]:
    found = (roles.caption, roles.uid, roles.key, roles.path, roles.width, roles.height, roles.digest)
    return [name for name in found if name is not None]


def _batches(file: pq.ParquetFile, columns: Sequence[str], start: int, stop: int) -> Iterator[pa.Table]:
    """Rows `start` to `stop` of some columns in tables of STRETCH rows, the last one shorter; at least one table."""
    edges = np.cumsum([0, *(file.metadata.row_group(g).num_rows for g in range(file.num_row_groups))])
    groups = [g for g in range(file.num_row_groups) if edges[g] < stop and edges[g + 1] > start]
    skip = start - int(edges[groups[0]]) if groups else 0
    waiting = file.schema_arrow.empty_table().select(columns)
    given, wanted = 0, stop - start
    for batch in file.iter_batches(STRETCH, row_groups=groups, columns=list(columns)):
        if skip >= batch.num_rows:
            skip -= batch.num_rows
            continue
        waiting = pa.concat_tables([waiting, pa.Table.from_batches([batch.slice(skip)])])
        skip = 0
        while waiting.num_rows >= STRETCH and given + STRETCH <= wanted:
            yield waiting.slice(0, STRETCH)
            waiting, given = waiting.slice(STRETCH), given + STRETCH
        if given + waiting.num_rows >= wanted:
            break
    if given < wanted or not wanted:
        yield waiting.slice(0, wanted - given)


def _mark(path: str) -> str:
    if remote_files.is_url(path):
        return remote_files.fingerprint(path)
    status = os.stat(path)
    return f"{path} {status.st_size} {status.st_mtime_ns}"


def is_list(found: pa.DataType) -> bool:
    return bool(pa.types.is_list(found) or pa.types.is_large_list(found) or pa.types.is_fixed_size_list(found))


def vectors_of_column(column: pa.ChunkedArray, dim: int) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """(N, dim) with zeros where a row has another width, and the widths; 0 where a row is null or holds nulls."""
    lists = column.combine_chunks()
    lists = pa.concat_arrays(lists.chunks) if isinstance(lists, pa.ChunkedArray) else lists
    widths = row_widths(lists)
    flat = lists.flatten()  # of the rows that are not null
    numbers = flat.to_numpy(zero_copy_only=False)  # nulls inside become NaN, which is not finite
    values = np.zeros((len(lists), dim), numbers.dtype if numbers.dtype.kind == "f" else np.float32)
    right = widths == dim
    values[right] = numbers[np.repeat(right, widths)].reshape(-1, dim)
    return values, widths


def row_widths(lists: pa.Array) -> npt.NDArray[np.int64]:
    valid = lists.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_fixed_size_list(lists.type):
        return np.where(valid, lists.type.list_size, 0).astype(np.int64)
    return np.asarray(lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False), np.int64)


def first_width(lists: pa.Array) -> int:
    """The width most of some rows have; 0 where none has a vector."""
    widths = row_widths(lists)
    widths = widths[widths > 0]
    return int(np.bincount(widths).argmax()) if len(widths) else 0
