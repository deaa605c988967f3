"""A column computed from the vectors of media: streamed shard by shard, on any engine, and resumed.

The column is stored like those of `Audit.apply`: every caption of a medium has its value, and rows without a vector
have none. A finished shard carries the mark of what was computed, so the same call continues after an interruption.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from auditor.audit_folder.audit_files import find_swept_shards, get_shard_name
from auditor.audit_folder.embeddings import name_embeddings_file, read_vector_matrix
from auditor.audit_folder.extra_columns import write_columns
from auditor.audit_folder.folder import Folder
from auditor.console import Progress
from auditor.errors import AuditError
from auditor.query.apply_function import MARK, ApplyResult, ApplyTask, begin_apply, summarize_apply
from auditor.query.database import AuditDatabase
from auditor.query.join_columns import check_new_columns
from auditor.vectors import Floats, Ints
from auditor.workers.process_pool import SERIAL, Engine


@dataclass(frozen=True)
class MediaColumn:
    """A column, the function from vectors (M, D) to its values (M,), and the fingerprint of that function."""

    name: str
    compute: Callable[[Floats], Any]
    mark: str
    origin: Mapping[str, Any]  # for people and for rules


def store_media_column(
    database: AuditDatabase, column: MediaColumn, *, force: bool = False, engine: Engine = SERIAL, quiet: bool = True
) -> ApplyResult:
    """Compute a column for all shards that do not have it yet."""
    folder = database.files.folder
    if missing := {*map(get_shard_name, database.files.all)}.difference(find_swept_shards(folder)):
        raise AuditError(f"{folder.url} has no embeddings of {len(missing):,} shards, such as {min(missing)}")
    work = ApplyTask(column.name, ("visual",), column.mark, origin=column.origin)
    check_new_columns(database, column.name, [column.name], force)
    with begin_apply(database, work, force) as shards, Progress(column.name, len(shards), "shards", quiet=quiet) as bar:
        for _ in engine.each(partial(write_shard_column, folder, column), shards):
            bar.advance(1)
    return summarize_apply(database, work, len(shards))


def write_shard_column(folder: Folder, column: MediaColumn, shard: str) -> None:
    visual, medium = read_shard_media(folder, shard)
    values = pa.array(column.compute(visual))
    table = pa.table({column.name: values.take(pa.array(medium, mask=medium < 0))})
    write_columns(folder, column.name, shard, table, {MARK: column.mark})


def read_shard_media(folder: Folder, shard: str) -> tuple[Floats, Ints]:
    """Read the vectors of a shard's media (M, D), and for each row the number of its medium, -1 if it is not usable."""
    table = folder.read_table(name_embeddings_file(shard), ["status", "visual"])
    vectors = table["visual"]
    has_vector = vectors.is_valid().to_numpy()
    medium = np.where(table["status"].to_numpy(zero_copy_only=False) == "ok", np.cumsum(has_vector) - 1, -1)
    return read_vector_matrix(vectors, vectors.type.list_size)[has_vector], medium.astype(np.int64)
