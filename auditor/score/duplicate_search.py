"""Duplicates of a corpus of any size, found cell by cell (auditor.score.statistics.duplicates) by whatever engine there is.

Vectors go to disk sorted by cell, a file for some shards; then each group of cells is read from all files and searched.
Memory is bounded by a group of cells. What repeats another medium is written shard by shard, so that a scorer reads of
its own shard only: duplicates/<shard>.parquet, which a shard without duplicates does not have.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from auditor.audit_folder.embeddings import MEDIUM, begins_medium, file_name, identities, matrix, read_facts
from auditor.audit_folder.folder import Folder, StorageError
from auditor.schema import COLUMNS, FACTS
from auditor.score.pair_sample import KINDS, Each, ShardCounts, groups, in_turn
from auditor.score.statistics.duplicates import (
    SAMPLE_PER_CELL,
    Components,
    cell_count,
    cell_groups,
    default_threshold,
    fit_cells,
    places,
)
from auditor.sweep.sample_rows import digest
from auditor.vectors import Bools, Floats, Ints

PIXELS = "pixels"  # width times height
# What the best of a group may be chosen by: the first, or the largest value that the sweep has found.
PLACES = ("caption_index", "caption_hash", "start", "end", "media_offset")
BEST = (
    "first",
    PIXELS,
    *(name for name in FACTS if COLUMNS[name].type.startswith(("int", "float")) and name not in PLACES),
)
PLACE = "duplicates"
SORTED = "sorted"  # a folder inside, for as long as the search takes
MEDIA_TOGETHER = 50_000  # whose vectors are sorted into one file, at least
GROUP_BYTES = 128 << 20  # of vectors, held by a task at once as 32 bits: twice that
SAMPLE_SHARDS = 256  # that the sample for the cells is drawn from


@dataclass(frozen=True, slots=True)
class Plan:
    """What all tasks of a search need to know."""

    folder: Folder
    cells: Floats  # (C, D)
    threshold: float
    groups: int  # of cells, neighbours by number

    def group_of(self, cell: Ints) -> Ints:
        return cell * self.groups // len(self.cells)


def duplicates_name(shard: str) -> str:
    return f"{PLACE}/{shard}.parquet"


def read_duplicates(folder: Folder, shard: str) -> dict[str, str]:
    """uid of a medium's first row -> uid of the medium it repeats, for the media of a shard."""
    if not folder.exists(duplicates_name(shard)):
        return {}
    table = folder.read_table(duplicates_name(shard))
    return dict(zip(table["uid"].to_pylist(), table["duplicate_of"].to_pylist(), strict=True))


def find_duplicates(
    folder: Folder,
    counts: Sequence[ShardCounts],
    threshold: float | None = None,
    best: str = "first",
    *,
    only: Sequence[str] | None = None,
    seed: int = 0,
    each: Each = in_turn,
) -> int:
    """Write for every shard which of its media repeat another; returns how many do. `best` is the one that stays.

    With `only`, files of these shards alone are written: their media repeat those of other shards, never the reverse.
    """
    for place in [PLACE] if only is None else [f"{PLACE}/{SORTED}", *map(duplicates_name, only)]:
        folder.remove(place)
    sizes = np.array([sum(count.media.get(kind, 0) for kind in KINDS) for count in counts])
    if sizes.sum() < 2:
        return 0
    shards = [count.shard for count in counts]
    starts = np.cumsum(sizes) - sizes
    plan = make_plan(folder, shards, int(sizes.sum()), threshold, seed, each)
    files = list(each(partial(_sort, plan), batches(shards, starts)))
    edges = np.concatenate(list(each(partial(_search, plan, files), range(plan.groups))))
    folder.remove(f"{PLACE}/{SORTED}")
    writable = np.isin(shards, shards if only is None else only)
    return write_groups(folder, shards, starts, joined(edges), best, writable, each)


def batches(shards: Sequence[str], starts: Ints) -> list[tuple[int, list[tuple[str, int]]]]:
    """Shards, each with the number of its first medium, in lots of some media."""
    found: dict[int, list[tuple[str, int]]] = {}
    for shard, start in zip(shards, starts.tolist(), strict=True):
        found.setdefault(start // MEDIA_TOGETHER, []).append((shard, start))
    return list(found.items())


def make_plan(
    folder: Folder, shards: Sequence[str], media: int, threshold: float | None, seed: int, each: Each
) -> Plan:
    """Cells and threshold, from a sample of the media."""
    count = cell_count(media)
    generator = np.random.default_rng(seed)
    chosen = np.sort(generator.choice(len(shards), min(SAMPLE_SHARDS, len(shards)), replace=False))
    most = -(-max(count * SAMPLE_PER_CELL, 20_000) // len(chosen))
    sample = np.concatenate(list(each(partial(_sample, folder, most, seed), [shards[i] for i in chosen])))
    cells = fit_cells(sample, count, seed)
    places_bytes = 2 * media * sample.shape[1] * 2  # with guests, about two places for each medium
    return Plan(
        folder,
        cells,
        default_threshold(sample) if threshold is None else threshold,
        max(1, min(len(cells), places_bytes // GROUP_BYTES)),
    )


def _sample(folder: Folder, most: int, seed: int, shard: str) -> Floats:
    visual = media_of(folder, shard, ["visual"])[1]
    chosen = np.random.default_rng(seed).choice(len(visual), min(most, len(visual)), replace=False)
    return visual[np.sort(chosen)]


def media_of(folder: Folder, shard: str, columns: Sequence[str]) -> tuple[pa.Table, Floats]:
    """The first row of each encoded medium of a shard, and its vector."""
    facts = read_facts(folder, shard, [name for name in columns if name != "visual"] + list(MEDIUM))
    encoded = pa.array(begins_medium(facts))
    if "visual" not in columns:
        return facts.filter(encoded), np.zeros((0, 0), np.float32)
    visual = folder.read_table(file_name(shard), ["visual"])["visual"].filter(encoded)
    return facts.filter(encoded), matrix(visual.combine_chunks(), visual.type.list_size)


def _sort(plan: Plan, batch: tuple[int, list[tuple[str, int]]]) -> str:
    """Write the media of some shards with their places, a row group for each group of cells; returns the file."""
    number, shards = batch
    parts = [_placed(plan, shard, start) for shard, start in shards]
    medium, cell, home, mark, file, vectors = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(cell, kind="stable")
    ends = np.searchsorted(plan.group_of(cell[order]), np.arange(plan.groups + 1))
    name = f"{PLACE}/{SORTED}/{number:06d}.parquet"
    schema = pa.schema(
        {
            "medium": pa.int64(),
            "cell": pa.int32(),
            "home": pa.bool_(),
            "mark": pa.int64(),
            "file": pa.int64(),
            "vector": pa.binary(vectors.shape[1] * 2),
        }
    )
    with plan.folder.writing(name) as local, pq.ParquetWriter(local, schema, compression="none") as writer:
        for start, end in pairwise(ends.tolist()):
            rows = order[start:end]
            flat = pa.py_buffer(np.ascontiguousarray(vectors[rows]))
            column = pa.Array.from_buffers(schema.field("vector").type, len(rows), [None, flat])
            columns = [pa.array(values[rows]) for values in (medium, cell.astype(np.int32), home, mark, file)]
            writer.write_table(
                pa.Table.from_arrays([*columns, column], schema=schema), row_group_size=max(1, len(rows))
            )
    return name


def _placed(plan: Plan, shard: str, start: int) -> tuple[Any, ...]:
    media, visual = media_of(plan.folder, shard, ["media_digest", "visual"])
    number, cell, home = places(visual, plan.cells, plan.threshold)
    marks, files = groups(identities(media)), groups(media["media_digest"].to_pylist())
    return number + start, cell, home, marks[number], files[number], visual.astype(np.float16)[number]


def _search(plan: Plan, files: Sequence[str], group: int) -> Ints:
    """Pairs (E, 2) of media that are the same, of one group of cells: one for each that is not the first."""
    table = pa.concat_tables([_row_group(plan.folder, file, group, plan.groups) for file in files])
    names = ("medium", "cell", "home", "mark", "file")
    medium, cell, home, mark, files_of = (table[name].to_numpy() for name in names)
    found = [np.zeros((0, 2), np.int64)]
    order = np.argsort(cell, kind="stable")
    width = plan.cells.shape[1]
    for rows in np.split(order, np.flatnonzero(np.diff(cell[order])) + 1):
        if len(rows) < 2:
            continue
        chosen = table["vector"].take(pa.array(rows)).combine_chunks()
        chosen = chosen.chunk(0) if isinstance(chosen, pa.ChunkedArray) else chosen
        vectors = np.frombuffer(chosen.buffers()[1], np.float16, len(rows) * width, chosen.offset * width * 2)
        visual = vectors.reshape(-1, width).astype(np.float32)
        first = cell_groups(visual, mark[rows], home[rows], plan.threshold, files_of[rows])
        repeats = np.flatnonzero(first != np.arange(len(rows)))
        found.append(np.stack([medium[rows[repeats]], medium[rows[first[repeats]]]], axis=1))
    return np.concatenate(found)


def _row_group(folder: Folder, name: str, group: int, count: int) -> pa.Table:
    """The media of a group of cells in one file."""
    with folder.open_table(name) as parquet:
        if parquet.num_row_groups != count:
            raise StorageError(f"{name} has {parquet.num_row_groups} parts, not {count}")
        return parquet.read_row_group(group)


def joined(edges: Ints) -> dict[int, list[int]]:
    """Groups of two and more from pairs: the least number -> all numbers, sorted."""
    numbers, flat = np.unique(edges, return_inverse=True)
    pairs = flat.reshape(-1, 2)
    components = Components(len(numbers))
    components.join(pairs[:, 0], pairs[:, 1])
    found: dict[int, list[int]] = {}
    for number, first in zip(numbers.tolist(), numbers[components.first()].tolist(), strict=True):
        found.setdefault(first, []).append(number)
    return found


def write_groups(
    folder: Folder,
    shards: Sequence[str],
    starts: Ints,
    found: dict[int, list[int]],
    best: str,
    writable: Bools,  # which shards may be written
    each: Each,
) -> int:
    """duplicates/<shard>.parquet for the shards that have any; returns how many media repeat another."""
    members = np.array(sorted(number for group in found.values() for number in group), np.int64)
    if not len(members):
        return 0
    shard_of = np.searchsorted(starts, members, side="right") - 1
    wanted = [(shards[at], members[shard_of == at] - starts[at]) for at in np.unique(shard_of)]
    named = list(each(partial(_named, folder, best), wanted))
    uids = dict(zip(members.tolist(), (uid for part in named for uid in part[0]), strict=True))
    worth = dict(zip(members.tolist(), (value for part in named for value in part[1]), strict=True))
    repeats: dict[int, list[tuple[str, str]]] = {}
    for group in found.values():
        at_of = {number: int(np.searchsorted(starts, number, side="right") - 1) for number in group}
        # what is written already stays as it is, so one of those is kept where there is one
        kept = max(group, key=lambda number: (not writable[at_of[number]], worth[number], -number))
        for number, at in at_of.items():
            if number != kept and writable[at]:
                repeats.setdefault(at, []).append((uids[number], uids[kept]))
    for at, rows in repeats.items():
        uid, duplicate_of = zip(*rows, strict=True)
        table = pa.table({"uid": uid, "duplicate_of": duplicate_of})
        folder.write_table(duplicates_name(shards[at]), table, {"mark": mark_of(rows)})
    return sum(map(len, repeats.values()))


def mark_of(rows: Sequence[tuple[str, str]]) -> str:
    return digest(repr(sorted(rows)).encode())


def _named(folder: Folder, best: str, wanted: tuple[str, Ints]) -> tuple[list[str], list[float]]:
    """uid and worth of some media of a shard; what has no value is worth least."""
    shard, rows = wanted
    factors = {"first": [], PIXELS: ["width", "height"]}.get(best, [best])
    media, _ = media_of(folder, shard, ["uid", *factors])
    chosen = media.take(pa.array(rows))
    worth = np.ones(len(rows))
    for name in factors:
        worth = worth * chosen[name].to_numpy(zero_copy_only=False).astype(np.float64)
    return chosen["uid"].to_pylist(), np.where(np.isnan(worth), -np.inf, worth).tolist()
