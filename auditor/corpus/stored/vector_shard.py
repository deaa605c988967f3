"""A shard of stored embeddings: a range of rows of a Parquet file, with vectors in the table or in files beside it.

It has no media: it is read as `VectorStretch`es of rows and vectors.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from auditor.corpus.corpus_files import stamp_file
from auditor.corpus.parquet_rows import open_parquet, read_batches
from auditor.corpus.shard import CorpusError, OpenShard, ShardError, convert_shard_errors
from auditor.corpus.stored.npy_matrix import MatrixFile, OpenMatrix

STRETCH_ROWS = 8192  # whose vectors are read at once

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class VectorColumn:
    """A column of vectors in the table itself: lists or fixed-size lists of floats."""

    column: str

    parts: bool = False  # whether a row may be a list of vectors, those of the parts of a caption

    @property
    def column_name(self) -> str:
        return self.column

    def check(self, schema: pa.Schema, path: str) -> None:
        if self.column not in schema.names:
            raise CorpusError(f"no column {self.column!r}: {path} has {', '.join(schema.names[:30])}")
        column_type = schema.field(self.column).type
        vector_type = column_type.value_type if self.parts and has_parts(column_type) else column_type
        if not is_list(vector_type) or not pa.types.is_floating(vector_type.value_type):
            raise CorpusError(f"column {self.column!r} of {path} is {column_type}, not a list of floats")


VectorPlace = MatrixFile | VectorColumn


def is_list(column_type: pa.DataType) -> bool:
    return any(check(column_type) for check in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list))


def has_parts(column_type: pa.DataType) -> bool:
    """Whether each row of a column is a list of vectors."""
    return is_list(column_type) and is_list(column_type.value_type)


@dataclass(frozen=True, slots=True)
class StoredVectors:
    """Vectors as they are stored, and the number of values in each row: 0 if there is no vector."""

    values: npt.NDArray[np.floating[Any]]  # (N, D); undefined in rows of another width
    widths: Ints  # (N,)
    parts: Ints | None = None  # (R,) number of vectors of each row, if a row is a list of them; N is their sum


@dataclass(frozen=True, slots=True)
class ColumnRoles:
    """The columns of the table that have a role; the other plain columns are carried into the audit."""

    captions: tuple[str, ...]  # one for each source
    uid: str | None = None
    key: str | None = None
    path: str | None = None  # of the medium
    width: str | None = None
    height: str | None = None
    digest: str | None = None  # equal for equal media, in hex

    @property
    def names(self) -> list[str]:
        columns = (*self.captions, self.uid, self.key, self.path, self.width, self.height, self.digest)
        return [name for name in columns if name is not None]


@dataclass(frozen=True, slots=True)
class VectorStretch:
    """A range of rows of a shard with their vectors."""

    first: int  # row number in the shard
    visual: StoredVectors
    texts: tuple[StoredVectors, ...]  # one for each source of captions


@dataclass(frozen=True, slots=True)
class OpenVectors:
    """The rows of a shard without vectors, and the vectors one stretch at a time."""

    table: pa.Table
    stretches: Iterator[VectorStretch]


@dataclass(frozen=True, slots=True)
class VectorShard:
    """Rows `start` to `stop` of a Parquet file with the vectors of each."""

    name: str
    path: str  # of the Parquet file
    visual: VectorPlace
    texts: tuple[VectorPlace, ...]  # one for each source of captions
    roles: ColumnRoles
    carried: tuple[tuple[str, str], ...] = ()  # column and Arrow type, the same for all shards
    dim: int = 0
    start: int = 0
    stop: int | None = None

    @property
    def files(self) -> set[str]:
        places = [place.path for place in (self.visual, *self.texts) if isinstance(place, MatrixFile)]
        return {self.path, *places}

    def fingerprint(self) -> str:
        """Hash the sizes and times of the files, or the digests of the store."""
        digest = hashlib.blake2b(repr((self.start, self.stop, self.roles, self.carried)).encode(), digest_size=16)
        for path in sorted(self.files):
            with convert_shard_errors(self.name, path):
                digest.update(f"{path} {stamp_file(path)}".encode())
        return digest.hexdigest()

    def open(self) -> AbstractContextManager[OpenShard]:
        reason = "holds embeddings without media: it can be audited, but not used to train or evaluate"
        raise ShardError(self.name, reason)

    @contextmanager
    def open_vectors(self) -> Iterator[OpenVectors]:
        """Open the rows and their vectors. Raises ShardError if Parquet file and vectors disagree."""
        with convert_shard_errors(self.name, self.path), ExitStack() as stack:
            file = stack.enter_context(open_parquet(self.path))
            sides = [self._side(place, file, stack) for place in (self.visual, *self.texts)]
            stop = file.metadata.num_rows if self.stop is None else self.stop
            yield OpenVectors(self._table(file, stop), self._stretches(file, sides, stop))

    def _side(self, place: VectorPlace, file: pq.ParquetFile, stack: ExitStack) -> OpenMatrix | VectorColumn:
        if isinstance(place, VectorColumn):
            place.check(file.schema_arrow, self.path)
            return place
        matrix = stack.enter_context(place.open())
        name, rows = os.path.basename(self.path), file.metadata.num_rows
        if matrix.rows != rows:
            raise ShardError(self.name, f"{place.label} has {matrix.rows:,} rows, {name} {rows:,}")
        if self.dim and matrix.width != self.dim:
            raise ShardError(self.name, f"{place.label} has vectors of {matrix.width} numbers, not {self.dim}")
        return matrix

    def _table(self, file: pq.ParquetFile, stop: int) -> pa.Table:
        schema = file.schema_arrow
        for needed in (*self.roles.captions, self.roles.uid):
            if needed is not None and needed not in schema.names:
                raise ShardError(self.name, f"{os.path.basename(self.path)} has no column {needed!r}")
        columns = dict.fromkeys([*self.roles.names, *(name for name, _ in self.carried)])
        present = [name for name in columns if name in schema.names]
        batches = read_batches(file, self.start, stop, STRETCH_ROWS, present)
        return pa.Table.from_batches(batches, pa.schema(map(schema.field, present))).combine_chunks()

    def _stretches(
        self, file: pq.ParquetFile, sides: Sequence[OpenMatrix | VectorColumn], stop: int
    ) -> Iterator[VectorStretch]:
        columns = [side.column for side in sides if isinstance(side, VectorColumn)]
        batches = read_batches(file, self.start, stop, STRETCH_ROWS, columns) if columns else iter(())
        first = self.start
        while first < stop:
            batch = next(batches, None)
            last = min(first + STRETCH_ROWS, stop) if batch is None else first + batch.num_rows
            visual, *texts = (self._read(side, batch, first, last) for side in sides)
            yield VectorStretch(first - self.start, visual, tuple(texts))
            first = last

    def _read(
        self, side: OpenMatrix | VectorColumn, batch: pa.RecordBatch | None, first: int, last: int
    ) -> StoredVectors:
        if isinstance(side, OpenMatrix):
            return StoredVectors(side.read(first, last), np.full(last - first, side.width, np.int64))
        assert batch is not None
        column = batch.column(side.column)
        if not has_parts(column.type):
            return read_vector_column(column, self.dim)
        return replace(read_vector_column(column.flatten(), self.dim), parts=count_row_widths(column))


def read_vector_column(lists: pa.Array, dim: int) -> StoredVectors:
    """Return (N, dim) with zeros for rows of another width, and the widths; 0 if a row is null."""
    widths = count_row_widths(lists)
    numbers = lists.flatten().to_numpy(zero_copy_only=False)  # of rows that are not null; nulls inside become NaN
    values = np.zeros((len(lists), dim), numbers.dtype if numbers.dtype.kind == "f" else np.float32)
    right = widths == dim
    values[right] = numbers[np.repeat(right, widths)].reshape(-1, dim)
    return StoredVectors(values, widths)


def count_row_widths(lists: pa.Array) -> npt.NDArray[np.int64]:
    valid = lists.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_fixed_size_list(lists.type):
        return np.where(valid, lists.type.list_size, 0).astype(np.int64)
    return np.asarray(lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False), np.int64)


def find_usual_width(lists: pa.Array) -> int:
    """Return the most frequent width, or 0 if no row has a vector."""
    lists = lists.flatten() if has_parts(lists.type) else lists
    widths = count_row_widths(lists)
    widths = widths[widths > 0]
    return int(np.bincount(widths).argmax()) if len(widths) else 0
