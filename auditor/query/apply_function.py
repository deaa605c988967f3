"""`audit.apply(function, columns=["caption"])`: a user's function over the rows of an audit, its results as columns.

    def shouting(caption):                     # called with batches, by name
        return [text.isupper() for text in caption]

    audit.apply(shouting, columns=["caption"])                     # the column `shouting`
    audit.apply(Aesthetics, columns=["image"], prefix="my_")       # a class is made once, then called with batches

The function gives one value for each row, or a mapping of several such lists: numbers, truth values or texts, None
where there is none. What it may ask for is in auditor/query/function_inputs.py. Each shard is written when it is done and all
become visible together in the end; the same call after a kill goes on with the first shard that is missing, unless the
function has changed.
"""

import hashlib
import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from auditor.audit_folder.audit_files import get_shard_name
from auditor.audit_folder.extra_columns import (
    ColumnSource,
    cast_columns,
    name_column_file,
    find_plain_type,
    publish_source,
    remove_source,
    write_columns,
)
from auditor.audit_folder.folder import Folder
from auditor.audit_folder.lock import hold_folder_lock
from auditor.query.database import AuditDatabase
from auditor.query.function_inputs import PIXELS, Given, batches, check_inputs, shard_rows
from auditor.query.join_columns import ColumnError, check_new, source_name

MARK = "applied"  # in the metadata of a shard's file: what made it
MISSED = "missed"  # how many usable rows the function was not asked about

Function = Callable[..., Any]
Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be done with each shard; can be sent to a worker."""

    name: str  # of the source, and of the column where the function gives only one
    columns: tuple[str, ...]
    mark: str  # of the function and all that decides its results
    prefix: str = ""
    batch_size: int = 256
    image_size: int = 224
    decoders: int = 2


@dataclass(frozen=True, slots=True)
class Applied:
    """What an apply did."""

    name: str
    columns: tuple[str, ...]
    rows: int
    shards: int
    resumed: int  # shards that were done before
    missed: int  # usable rows whose medium could not be read or decoded

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def make_work(function: Function, columns: Sequence[str], **options: Any) -> Work:
    """The work of a function; `name` is its own unless another is given."""
    if not callable(function):
        raise ColumnError(f"function is one to be called, or a class, not {function!r}")
    if not columns or isinstance(columns, str):
        raise ColumnError('say what the function is given: columns=["caption"], ["visual", "text"] or ["image"]')
    name = source_name(options.pop("name", None) or getattr(function, "__name__", "") or type(function).__name__)
    work = Work(name, tuple(columns), "", **options)
    if work.batch_size < 1 or work.image_size < 1:
        raise ColumnError("batch_size and image_size are at least 1")
    decides = (name, work.columns, work.prefix, work.image_size, source_of(function))
    digest = hashlib.blake2b(json.dumps(decides).encode(), digest_size=16).hexdigest()
    return Work(name, work.columns, digest, work.prefix, work.batch_size, work.image_size, work.decoders)


def source_of(function: Function) -> str:
    """The text of a function, so that results of another one are not taken for its own."""
    try:
        return inspect.getsource(
            function if inspect.isroutine(function) or inspect.isclass(function) else type(function)
        )
    except (OSError, TypeError):
        return f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', type(function).__name__)}"


def apply(
    database: AuditDatabase, function: Function, work: Work, *, force: bool = False, progress: Progress | None = None
) -> Applied:
    """Run a function over all shards, here; those that are done already are left as they are."""
    with applying(database, work, force) as missing, ExitStack() as stack:
        worker = stack.enter_context(ShardWorker(database, function, work)) if missing else None
        for shard in missing:
            assert worker is not None
            rows = worker.run(shard)
            if progress:
                progress(rows)
    return applied(database, work, len(missing))


@contextmanager
def applying(database: AuditDatabase, work: Work, force: bool) -> Iterator[list[str]]:
    """The shards that are missing; when all are there afterwards, their columns are made visible."""
    check_inputs(database, work.columns)
    folder = database.files.folder
    with hold_folder_lock(folder):
        check_new(database, work.name, {}, force)
        if force:
            remove_source(folder, work.name)
        shards = [get_shard_name(file) for file in database.files.all]
        yield [shard for shard in shards if not is_done(folder, work, shard)]
        if lost := [shard for shard in shards if not is_done(folder, work, shard)]:
            raise ColumnError(f"{len(lost):,} shards are missing, such as {lost[0]}: the same call goes on")
        finish(database, work, shards)


def is_done(folder: Folder, work: Work, shard: str) -> bool:
    return folder.table_metadata(name_column_file(work.name, shard)).get(MARK) == work.mark


class ShardWorker:
    """A function, made once, with the decoders it needs."""

    def __init__(self, database: AuditDatabase, function: Function, work: Work) -> None:
        self.database, self.work = database, work
        self.function: Any = function() if inspect.isclass(function) else function
        self.stack = ExitStack()
        self.decoders: Any = None

    def __enter__(self) -> "ShardWorker":
        if set(self.work.columns) & {"image"}:
            from auditor.workers.decoder_pool import DecoderPool, PixelSpec  # decoders are started only where asked for

            spec = PixelSpec(size=(self.work.image_size,) * 2)
            self.decoders = self.stack.enter_context(DecoderPool(spec, frames=1, workers=self.work.decoders))
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def run(self, shard: str) -> int:
        """Write the columns of a shard; returns its rows."""
        work = self.work
        rows = shard_rows(self.database, shard, work.columns)
        size = min(work.batch_size, 64) if set(work.columns) & set(PIXELS) else work.batch_size
        made = [
            (given, self.call(shard, given))
            for given in batches(self.database, shard, rows, work.columns, size, self.decoders)
        ]
        table = scattered(made, len(rows), work)
        check_new(self.database, work.name, dict.fromkeys(table.column_names, ""), force=True)  # names that are taken
        asked = sum(len(given.rows) for given, _ in made)
        usable = int(np.count_nonzero(rows.column("usable").to_numpy(zero_copy_only=False)))
        about = {MARK: work.mark, MISSED: str(usable - asked)}
        write_columns(self.database.files.folder, work.name, shard, table, about)
        return len(rows)

    def call(self, shard: str, given: Given) -> pa.Table:
        """What the function makes of a batch, checked."""
        try:
            found = self.function(**given.values)
        except Exception as error:
            raise ColumnError(
                f"{self.work.name} failed in shard {shard}: {type(error).__name__}: {error}; finished shards are kept"
            ) from error
        named = found if isinstance(found, Mapping) else {self.work.name: found}
        columns = {f"{self.work.prefix}{name}": self.column(name, values, given) for name, values in named.items()}
        return pa.table(columns)

    def column(self, name: str, values: Any, given: Given) -> pa.Array:
        try:
            array = pa.array(np.asarray(values) if hasattr(values, "__array__") else values)
        except (pa.ArrowException, TypeError) as error:
            raise ColumnError(f"{name}: {self.work.name} gave what is no column: {error}") from error
        if len(array) != len(given.rows):
            raise ColumnError(f"{name}: {self.work.name} gave {len(array)} values for {len(given.rows)} rows")
        if not pa.types.is_null(array.type) and find_plain_type(array.type) is None:
            raise ColumnError(f"{name} holds {array.type}: give numbers, truth values or texts")
        return array


def scattered(made: Sequence[tuple[Given, pa.Table]], count: int, work: Work) -> pa.Table:
    """The results at their rows; null elsewhere."""
    if not made:
        return pa.table({f"{work.prefix}{work.name}": pa.nulls(count)})
    try:
        table = pa.concat_tables([table for _, table in made], promote_options="permissive")
    except pa.ArrowException as error:
        raise ColumnError(f"{work.name} gives different types for different rows: {error}") from error
    places = np.full(count, -1, np.int64)
    rows = np.concatenate([given.rows for given, _ in made])
    places[rows] = np.arange(len(rows))
    return table.combine_chunks().take(pa.array(places, mask=places < 0))


def finish(database: AuditDatabase, work: Work, shards: Sequence[str]) -> None:
    """One type for each column over all shards; then they are seen."""
    folder = database.files.folder
    schemas = {shard: folder.table_schema(name_column_file(work.name, shard)) for shard in shards}
    try:
        schema = pa.unify_schemas(list(schemas.values()), promote_options="permissive")
    except pa.ArrowException as error:
        raise ColumnError(f"{work.name} gives different types in different shards: {error}") from error
    columns = {field.name: find_plain_type(field.type) or "float64" for field in schema}
    source = ColumnSource(work.name, columns, {"from": work.name, "given": list(work.columns), MARK: work.mark})
    for shard, found in schemas.items():
        if not found.equals(source.schema):
            name = name_column_file(work.name, shard)
            cast = cast_columns(folder.read_table(name), list(columns.items()))
            write_columns(folder, work.name, shard, cast, folder.table_metadata(name))
    publish_source(folder, source)


def applied(database: AuditDatabase, work: Work, fresh: int) -> Applied:
    """What is there now."""
    folder, shards = database.files.folder, [get_shard_name(file) for file in database.files.all]
    stored = [folder.table_metadata(name_column_file(work.name, shard)) for shard in shards]
    columns = folder.table_columns(name_column_file(work.name, shards[0])) if shards else []
    missed = sum(int(metadata.get(MISSED, 0)) for metadata in stored)
    return Applied(work.name, tuple(columns), database.counts["rows"], len(shards), len(shards) - fresh, missed)
