"""The search for duplicates in a corpus of any size, cell by cell (auditor.score.statistics.duplicates).

Vectors are written to disk sorted by cell, one file for several shards; then each group of cells is read from all files
and searched, so that memory is bounded by a group of cells. The media that repeat another are written shard by shard to
duplicates/<shard>.parquet, so that a scorer reads only its own shard; a shard without duplicates has no file.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from auditor.audit_folder.embeddings import (
    MEDIUM_COLUMNS,
    compute_media_identities,
    find_medium_starts,
    read_facts,
    read_vector_matrix,
)
from auditor.audit_folder.folder import Folder, StorageError
from auditor.score.pair_sample import ShardCounts, number_digests
from auditor.score.score_config import PIXELS, ScoreConfig
from auditor.score.statistics.duplicates import (
    SAMPLE_PER_CELL,
    assign_cells,
    choose_cell_count,
    estimate_copy_threshold,
    fit_cells,
    group_cell,
    join_groups,
)
from auditor.sweep.sample_rows import digest
from auditor.vectors import Bools, Floats, Ints
from auditor.workers.process_pool import SERIAL, Engine

DUPLICATES = "duplicates"
SORTED = "sorted"  # folder inside it that exists only during the search
MEDIA_TOGETHER = 50_000  # fewest media whose vectors are sorted into one file
GROUP_BYTES = 128 << 20  # float16 vectors that a task reads at once; as float32 they take twice that
SAMPLE_SHARDS = 256  # shards from which the sample for the cells is drawn


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """The parameters that all tasks of a search share."""

    folder: Folder
    cells: Floats  # (C, D)
    threshold: float
    groups: int  # number of groups of consecutive cells


def duplicates_file(shard: str) -> str:
    return f"{DUPLICATES}/{shard}.parquet"


def read_duplicates(folder: Folder, shard: str) -> dict[str, str]:
    """For the media of a shard: uid of the first row -> uid of the medium that it repeats."""
    if not folder.exists(duplicates_file(shard)):
        return {}
    table = folder.read_table(duplicates_file(shard))
    return dict(zip(table["uid"].to_pylist(), table["duplicate_of"].to_pylist(), strict=True))


def search_duplicates(
    folder: Folder,
    counts: Sequence[ShardCounts],
    config: ScoreConfig,
    *,
    only: Sequence[str] | None = None,
    engine: Engine = SERIAL,
) -> int:
    """Write which media of every shard repeat another and return their number.

    With `only`, just the files of these shards are written: their media can repeat those of other shards, but not the
    reverse.
    """
    for path in [DUPLICATES] if only is None else [f"{DUPLICATES}/{SORTED}", *map(duplicates_file, only)]:
        folder.remove(path)
    sizes = np.array([count.media.total() for count in counts])
    if sizes.sum() < 2:
        return 0
    shards = [count.shard for count in counts]
    starts = np.cumsum(sizes) - sizes  # number of each shard's first medium
    plan = plan_search(folder, shards, int(sizes.sum()), config, engine)
    batches: dict[int, list[tuple[str, int]]] = {}
    for shard, start in zip(shards, starts.tolist(), strict=True):
        batches.setdefault(start // MEDIA_TOGETHER, []).append((shard, start))
    files = list(engine.each(partial(_write_sorted, plan), list(batches.items())))
    edges = np.concatenate(list(engine.each(partial(_search_cells, plan, files), range(plan.groups))))
    folder.remove(f"{DUPLICATES}/{SORTED}")
    writable = np.isin(shards, shards if only is None else only)
    return write_groups(folder, shards, starts, edges, config.keep_duplicate, writable, engine)


def plan_search(folder: Folder, shards: Sequence[str], media: int, config: ScoreConfig, engine: Engine) -> SearchPlan:
    count = choose_cell_count(media)
    generator = np.random.default_rng(config.seed)
    chosen = np.sort(generator.choice(len(shards), min(SAMPLE_SHARDS, len(shards)), replace=False))
    shard_sample = -(-max(count * SAMPLE_PER_CELL, 20_000) // len(chosen))
    work = partial(_sample_vectors, folder, shard_sample, config.seed)
    sample = np.concatenate(list(engine.each(work, [shards[i] for i in chosen])))
    cells = fit_cells(sample, count, config.seed)
    total_bytes = 2 * media * sample.shape[1] * 2  # with guests, a medium is in about two cells
    threshold = estimate_copy_threshold(sample) if config.near_duplicate is None else config.near_duplicate
    return SearchPlan(folder, cells, threshold, max(1, min(len(cells), total_bytes // GROUP_BYTES)))


def _sample_vectors(folder: Folder, limit: int, seed: int, shard: str) -> Floats:
    visual = read_first_rows(folder, shard, ["visual"])[1]
    chosen = np.random.default_rng(seed).choice(len(visual), min(limit, len(visual)), replace=False)
    return visual[np.sort(chosen)]


def read_first_rows(folder: Folder, shard: str, columns: Sequence[str]) -> tuple[pa.Table, Floats]:
    """Columns of the first row of each encoded medium of a shard, and their vectors if "visual" is among them."""
    rows = read_facts(folder, shard, [*columns, *MEDIUM_COLUMNS])
    rows = rows.filter(pa.array(find_medium_starts(rows)))
    if "visual" not in columns:
        return rows, np.zeros((0, 0), np.float32)
    return rows.drop_columns("visual"), read_vector_matrix(rows["visual"], rows["visual"].type.list_size)


def _write_sorted(plan: SearchPlan, batch: tuple[int, list[tuple[str, int]]]) -> str:
    """Write the media of a batch of shards with their cells, one row group per group of cells; returns the file."""
    number, shards = batch
    parts = [_assign_media(plan, shard, start) for shard, start in shards]
    medium, cell, home, mark, file, vectors = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(cell, kind="stable")
    ends = np.searchsorted(cell[order] * plan.groups // len(plan.cells), np.arange(plan.groups + 1))
    name = f"{DUPLICATES}/{SORTED}/{number:06d}.parquet"
    numbers = {"medium": pa.int64(), "cell": pa.int64(), "home": pa.bool_(), "mark": pa.int64(), "file": pa.int64()}
    schema = pa.schema({**numbers, "vector": pa.binary(vectors.shape[1] * 2)})
    with plan.folder.writing(name) as local, pq.ParquetWriter(local, schema, compression="none") as writer:
        for start, end in pairwise(ends.tolist()):
            rows = order[start:end]
            flat = pa.py_buffer(np.ascontiguousarray(vectors[rows]))
            column = pa.Array.from_buffers(schema.field("vector").type, len(rows), [None, flat])
            columns = [pa.array(values[rows]) for values in (medium, cell, home, mark, file)]
            table = pa.Table.from_arrays([*columns, column], schema=schema)
            writer.write_table(table, row_group_size=max(1, len(rows)))
    return name


def _assign_media(plan: SearchPlan, shard: str, start: int) -> tuple[Any, ...]:
    """The columns of `_write_sorted` for a shard; a medium has a row for each cell that it is in."""
    media, visual = read_first_rows(plan.folder, shard, ["media_digest", "visual"])
    number, cell, home = assign_cells(visual, plan.cells, plan.threshold)
    marks, files = number_digests(compute_media_identities(media)), number_digests(media["media_digest"].to_pylist())
    return number + start, cell, home, marks[number], files[number], visual.astype(np.float16)[number]


def _search_cells(plan: SearchPlan, files: Sequence[str], group: int) -> Ints:
    """Duplicates in one group of cells: pairs (E, 2) of a medium and the first medium of its group."""
    parts = []
    for name in files:
        with plan.folder.open_table(name) as parquet:
            if parquet.num_row_groups != plan.groups:
                raise StorageError(f"{name} has {parquet.num_row_groups} parts, not {plan.groups}")
            parts.append(parquet.read_row_group(group))
    table = pa.concat_tables(parts)
    medium, cell, home, mark, file = (table[name].to_numpy() for name in ("medium", "cell", "home", "mark", "file"))
    edges = [np.zeros((0, 2), np.int64)]
    order = np.argsort(cell, kind="stable")
    width = plan.cells.shape[1]
    for rows in np.split(order, np.flatnonzero(np.diff(cell[order])) + 1):
        if len(rows) < 2:
            continue
        chosen = table["vector"].take(pa.array(rows)).combine_chunks()
        chosen = chosen.chunk(0) if isinstance(chosen, pa.ChunkedArray) else chosen
        vectors = np.frombuffer(chosen.buffers()[1], np.float16, len(rows) * width, chosen.offset * width * 2)
        visual = vectors.reshape(-1, width).astype(np.float32)
        first = group_cell(visual, mark[rows], home[rows], plan.threshold, file[rows])
        repeats = np.flatnonzero(first != np.arange(len(rows)))
        edges.append(np.stack([medium[rows[repeats]], medium[rows[first[repeats]]]], axis=1))
    return np.concatenate(edges)


def write_groups(
    folder: Folder,
    shards: Sequence[str],
    starts: Ints,
    edges: Ints,  # (E, 2) media that are duplicates of each other
    best: str,
    writable: Bools,  # which shards may be written
    engine: Engine,
) -> int:
    """Write duplicates/<shard>.parquet for shards with duplicates; returns the number of media that repeat another."""
    media, ends = np.unique(edges, return_inverse=True)
    if not len(media):
        return 0
    group = join_groups(np.arange(len(media)), *ends.reshape(-1, 2).T)
    shard = np.searchsorted(starts, media, side="right") - 1
    tasks = [(shards[number], media[shard == number] - starts[number]) for number in np.unique(shard)]
    parts = list(engine.each(partial(_read_uids, folder, best), tasks))
    uid, worth = (np.concatenate(column) for column in zip(*parts, strict=True))
    # the first of a group represents it; shards that may not be written cannot change, so their media come first
    order = np.lexsort((media, -worth, writable[shard], group))
    _, first, index = np.unique(group[order], return_index=True, return_inverse=True)
    representative = np.empty_like(order)
    representative[order] = order[first[index]]
    repeats = np.flatnonzero((representative != np.arange(len(media))) & writable[shard])
    for number in np.unique(shard[repeats]):
        rows = repeats[shard[repeats] == number]
        table = pa.table({"uid": uid[rows], "duplicate_of": uid[representative[rows]]})
        mark = digest(repr(table.to_pylist()).encode())
        folder.write_table(duplicates_file(shards[number]), table, {"mark": mark})
    return len(repeats)


def _read_uids(folder: Folder, best: str, task: tuple[str, Ints]) -> tuple[Any, Any]:
    """uid and worth of these media of a shard; a missing value is worth least."""
    shard, rows = task
    factors = {"first": [], PIXELS: ["width", "height"]}.get(best, [best])
    media, _ = read_first_rows(folder, shard, ["uid", *factors])
    chosen = media.take(pa.array(rows))
    worth = np.ones(len(rows))
    for name in factors:
        worth = worth * chosen[name].to_numpy(zero_copy_only=False).astype(np.float64)
    return np.array(chosen["uid"].to_pylist(), object), np.where(np.isnan(worth), -np.inf, worth)
