"""`audit.apply(function, columns=["caption"])`: call a user's function with the rows of an audit and store the results.

    def shouting(caption):                     # called with batches, by keyword
        return [text.isupper() for text in caption]

    audit.apply(shouting, columns=["caption"])                     # the column `shouting`
    audit.apply(Aesthetics, columns=["image"], prefix="my_")       # an instance is made once, then called with batches

The function returns one value for each row, or a mapping of several such lists: numbers, booleans, texts or None. Its
possible arguments are listed in auditor/query/function_inputs.py. Each shard is written as soon as it is finished, and
the columns of all shards become visible together at the end. After an interruption the same call continues with the
first missing shard, unless the function has changed: its code, or its `fingerprint` if it has one.

A function of stored vectors alone can run on an engine, that is in several processes or on a cluster.
"""

import hashlib
import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from auditor.audit_folder.audit_files import get_shard_name
from auditor.audit_folder.extra_columns import (
    ColumnSource,
    cast_columns,
    find_plain_type,
    name_column_file,
    publish_source,
    remove_source,
    write_columns,
)
from auditor.audit_folder.folder import Folder
from auditor.audit_folder.lock import hold_folder_lock
from auditor.console import Progress
from auditor.errors import AuditorError
from auditor.query.database import AuditDatabase
from auditor.query.function_inputs import (
    PIXELS,
    check_input_columns,
    iterate_batches,
    read_shard_rows,
    read_side_vectors,
)
from auditor.query.join_columns import ColumnError, check_new_columns, make_source_name
from auditor.vectors import Ints
from auditor.workers.process_pool import Engine

MARK = "applied"  # metadata of a shard's file: fingerprint of the function
MISSED = "missed"  # metadata: number of usable rows that the function was not called with

Function = Callable[..., Any]
Publish = Callable[[AuditDatabase, "ApplyTask", Sequence[str]], None]  # makes the columns of all shards visible


@dataclass(frozen=True, slots=True)
class ApplyTask:
    """The settings of one apply; can be sent to a worker."""

    name: str  # of the source, and of the column if the function returns only one
    columns: tuple[str, ...]
    mark: str  # fingerprint of the function and all settings that affect its results
    prefix: str = ""
    batch_size: int = 256
    image_size: int = 224
    decoders: int = 2
    origin: Mapping[str, Any] = field(default_factory=dict)  # entries of about.json


@dataclass(frozen=True, slots=True)
class ApplyResult:
    name: str
    columns: tuple[str, ...]
    rows: int
    shards: int
    resumed: int  # shards that an earlier call finished
    missed: int  # usable rows whose medium could not be read or decoded

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def make_apply_task(function: Function, columns: Sequence[str], **options: Any) -> ApplyTask:
    if not callable(function):
        raise ColumnError(f"function must be a function or a class, not {function!r}")
    if not columns or isinstance(columns, str):
        raise ColumnError('name the arguments of the function: columns=["caption"], ["visual", "text"] or ["image"]')
    own_name = getattr(function, "__name__", "") or getattr(function, "name", "") or type(function).__name__
    name = make_source_name(options.pop("name", None) or own_name)
    work = ApplyTask(name, tuple(columns), "", **options)
    if work.batch_size < 1 or work.image_size < 1:
        raise ColumnError("batch_size and image_size must be at least 1")
    inputs = (name, work.columns, work.prefix, work.image_size, read_source_text(function))
    return replace(work, mark=hashlib.blake2b(json.dumps(inputs).encode(), digest_size=16).hexdigest())


def read_source_text(function: Function) -> str:
    """Return the source text of a function, so that a changed function does not reuse old results."""
    if fingerprint := getattr(function, "fingerprint", ""):
        return str(fingerprint)
    is_code = inspect.isroutine(function) or inspect.isclass(function)
    try:
        return inspect.getsource(function if is_code else type(function))
    except (OSError, TypeError):
        return f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', type(function).__name__)}"


def apply_function(
    database: AuditDatabase,
    function: Function,
    work: ApplyTask,
    *,
    force: bool = False,
    engine: Engine | None = None,
    publish: Publish | None = None,
) -> ApplyResult:
    """Run a function over all shards, in this process or on an engine; finished shards are skipped."""
    with begin_apply(database, work, force, publish) as missing:
        if engine is not None:
            run = partial(apply_to_vectors, database.files.folder, function, work)
            with Progress(work.name, len(missing), "shards") as progress:
                for _ in engine.each(run, missing):
                    progress.advance()
        elif missing:
            with ShardWorker(database, function, work) as worker:
                for shard in missing:
                    worker.run(shard)
    return summarize_apply(database, work, len(missing))


@contextmanager
def begin_apply(
    database: AuditDatabase, work: ApplyTask, force: bool, publish: Publish | None = None
) -> Iterator[list[str]]:
    """Lock the audit and yield the missing shards; afterwards publish the columns if no shard is missing."""
    check_input_columns(database, work.columns)
    folder = database.files.folder
    with hold_folder_lock(folder):
        check_new_columns(database, work.name, (), force)
        if force:
            remove_source(folder, work.name)
        shards = [get_shard_name(file) for file in database.files.all]

        def list_missing() -> list[str]:
            marks = {shard: folder.table_metadata(name_column_file(work.name, shard)).get(MARK) for shard in shards}
            return [shard for shard, mark in marks.items() if mark != work.mark]

        yield list_missing()
        if missing := list_missing():
            raise ColumnError(f"{len(missing):,} shards are missing, such as {missing[0]}: call it again to continue")
        (publish or publish_columns)(database, work, shards)


def apply_to_vectors(folder: Folder, function: Function, work: ApplyTask, shard: str) -> int:
    """Write the columns that a function computes from the vectors of one side; each vector is read and passed once."""
    (side,) = work.columns
    vectors, numbers = read_side_vectors(folder, shard, side)
    step = work.batch_size
    blocks = [slice(start, start + step) for start in range(0, len(vectors), step)]
    tables = [call_function(function, work, shard, {side: part}, len(part)) for part in (vectors[b] for b in blocks)]
    results = [(np.arange(len(vectors))[b], table) for b, table in zip(blocks, tables, strict=True)]
    table = align_results(results, len(vectors), work).take(pa.array(numbers, mask=numbers < 0))
    write_columns(folder, work.name, shard, table, {MARK: work.mark})
    return len(numbers)


class ShardWorker:
    """A function, instantiated once, with the decoders that it needs."""

    def __init__(self, database: AuditDatabase, function: Function, work: ApplyTask) -> None:
        self.database, self.work = database, work
        self.function: Any = function() if inspect.isclass(function) else function
        self.stack = ExitStack()
        self.decoders: Any = None

    def __enter__(self) -> "ShardWorker":
        if set(self.work.columns) & {"image"}:
            from auditor.workers.decoder_pool import DecoderPool, PixelSpec  # only functions of images need decoders

            spec = PixelSpec(size=(self.work.image_size,) * 2)
            self.decoders = self.stack.enter_context(DecoderPool(spec, frames=1, workers=self.work.decoders))
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def run(self, shard: str) -> int:
        """Write the columns of a shard and return the number of its rows."""
        work = self.work
        rows = read_shard_rows(self.database, shard, work.columns)
        size = min(work.batch_size, 64) if set(work.columns) & set(PIXELS) else work.batch_size
        batches = iterate_batches(self.database, shard, rows, work.columns, size, self.decoders)
        results = [
            (numbers, call_function(self.function, work, shard, values, len(numbers))) for numbers, values in batches
        ]
        table = align_results(results, len(rows), work)
        # refuses names in use
        check_new_columns(self.database, work.name, table.column_names, force=True)
        missed = (pc.sum(rows["usable"]).as_py() or 0) - sum(len(numbers) for numbers, _ in results)
        write_columns(self.database.files.folder, work.name, shard, table, {MARK: work.mark, MISSED: str(missed)})
        return len(rows)


def call_function(function: Function, work: ApplyTask, shard: str, arguments: dict[str, Any], count: int) -> pa.Table:
    try:
        output = function(**arguments)
    except AuditorError:
        raise
    except Exception as error:
        raise ColumnError(
            f"{work.name} failed in shard {shard}: {type(error).__name__}: {error}; finished shards are kept"
        ) from error
    outputs = output if isinstance(output, Mapping) else {work.name: output}
    return pa.table(
        {f"{work.prefix}{name}": make_column(work, name, values, count) for name, values in outputs.items()}
    )


def make_column(work: ApplyTask, name: str, values: Any, count: int) -> pa.Array:
    try:
        array = pa.array(np.asarray(values) if hasattr(values, "__array__") else values)
    except (pa.ArrowException, TypeError) as error:
        raise ColumnError(f"{name}: {work.name} returned something that is not a column: {error}") from error
    if len(array) != count:
        raise ColumnError(f"{name}: {work.name} returned {len(array)} values for {count} rows")
    if not pa.types.is_null(array.type) and find_plain_type(array.type) is None:
        raise ColumnError(f"{name} holds {array.type}: return numbers, booleans or texts")
    return array


def align_results(results: Sequence[tuple[Ints, pa.Table]], count: int, work: ApplyTask) -> pa.Table:
    """Put the results at their rows; other rows are null."""
    if not results:
        return pa.table({f"{work.prefix}{work.name}": pa.nulls(count)})
    try:
        table = pa.concat_tables([table for _, table in results], promote_options="permissive")
    except pa.ArrowException as error:
        raise ColumnError(f"{work.name} returns different types for different rows: {error}") from error
    rows = np.concatenate([rows for rows, _ in results])
    positions = np.full(count, -1, np.int64)
    positions[rows] = np.arange(len(rows))
    return table.combine_chunks().take(pa.array(positions, mask=positions < 0))


def publish_columns(database: AuditDatabase, work: ApplyTask, shards: Sequence[str]) -> None:
    """Convert each column to one type in all shards, then make the columns visible."""
    folder = database.files.folder
    schemas = {shard: folder.table_schema(name_column_file(work.name, shard)) for shard in shards}
    try:
        schema = pa.unify_schemas(list(schemas.values()), promote_options="permissive")
    except pa.ArrowException as error:
        raise ColumnError(f"{work.name} returns different types in different shards: {error}") from error
    columns = {field.name: find_plain_type(field.type) or "float64" for field in schema}
    entries = {"from": work.name, "given": list(work.columns), MARK: work.mark, **work.origin}
    source = ColumnSource(work.name, columns, entries)
    for shard, shard_schema in schemas.items():
        if not shard_schema.equals(source.schema):
            name = name_column_file(work.name, shard)
            cast = cast_columns(folder.read_table(name), list(columns.items()))
            write_columns(folder, work.name, shard, cast, folder.table_metadata(name))
    publish_source(folder, source)


def summarize_apply(database: AuditDatabase, work: ApplyTask, new_shards: int) -> ApplyResult:
    folder, shards = database.files.folder, [get_shard_name(file) for file in database.files.all]
    stored = [folder.table_metadata(name_column_file(work.name, shard)) for shard in shards]
    columns = folder.table_schema(name_column_file(work.name, shards[0])).names if shards else []
    missed = sum(int(metadata.get(MISSED, 0)) for metadata in stored)
    rows, resumed = database.counts["rows"], len(shards) - new_shards
    return ApplyResult(work.name, tuple(columns), rows, len(shards), resumed, missed)
