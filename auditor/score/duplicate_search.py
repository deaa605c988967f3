"""The search for duplicates in a corpus of any size, cell by cell (auditor.score.statistics.duplicates).

Vectors and thumbnails are written to disk sorted by cell, one file for several shards: the places of the groups of
cells, then records of fixed size. Each group of cells is read from all files and searched, so that memory is bounded by
a group of cells. First the vectors are embeddings, then the layouts of the thumbnails. The media that repeat another
are written shard by shard to duplicates/<shard>.parquet, so that a scorer reads only its own shard; a shard without
duplicates has no file.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from auditor.audit_folder.embeddings import (
    MEDIUM_COLUMNS,
    compute_media_identities,
    find_medium_starts,
    name_embeddings_file,
    read_half_matrix,
    read_random_row_groups,
    read_thumbnails,
)
from auditor.audit_folder.folder import Folder, StorageError
from auditor.corpus.corpus_files import digest
from auditor.score.pair_sample import ShardCounts, number_digests
from auditor.score.score_config import PIXELS, ScoreConfig
from auditor.score.statistics.duplicates import (
    LAYOUT_COSINE,
    SAMPLE_PER_CELL,
    CellMedia,
    CopyRule,
    assign_cells,
    choose_cell_count,
    choose_copy_rule,
    choose_representatives,
    find_copies,
    fit_axes,
    fit_cells,
    link_groups,
    project_vectors,
)
from auditor.score.statistics.picture_match import Thumbnails, compute_layouts, find_structure
from auditor.vectors import Bools, Floats, Halves, Ints
from auditor.workers.process_pool import SERIAL, Engine

DUPLICATES = "duplicates"
SCHEMA = pa.schema([("uid", pa.string()), ("duplicate_of", pa.string())])
RECORD = [
    *((name, "i8") for name in ("medium", "cell", "mark", "file")),
    *(("worth", "f8"), ("home", "?"), ("writable", "?")),
]
SORTED = "sorted"  # folder inside it that exists only during the search
FILE_BYTES = 24 << 20  # records of media that are sorted into one file
GROUP_BYTES = 48 << 20  # records of a group of cells, which a task reads at once
SAMPLE_SHARDS = 256  # shards from which media are sampled
EVERY_ROW = 2**62  # more than any file has
SAMPLED_AMONG = 4  # rows that are read of a shard for each medium that is sampled
REQUESTS = 64  # ranges of files that are read together
WRITTEN_TOGETHER = 4096  # records
TRIED = 2000  # media of the sample whose cells are counted
SAMPLE = 20_000  # media from which the rule is estimated, and the cells if they are few


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """The parameters that all tasks of a search share."""

    folder: Folder
    rule: CopyRule
    by_layout: bool  # search among the layouts of thumbnails, not among embeddings
    axes: Floats | None  # (D, W) on which media are first compared; None for all
    cells: Floats  # (C, W or D)
    record: np.dtype[np.void]  # a medium in a cell
    groups: int  # number of groups of consecutive cells
    best: str  # which medium represents a group
    writable: frozenset[str]  # shards; the others cannot change, so their media come first


def duplicates_file(shard: str) -> str:
    return f"{DUPLICATES}/{shard}.parquet"


def read_duplicates(folder: Folder, shard: str) -> dict[str, str]:
    """For the media of a shard: uid of the first row -> uid of the medium that it repeats."""
    if not folder.exists(duplicates_file(shard)):
        return {}
    table = folder.read_table(duplicates_file(shard), schema=SCHEMA)
    return dict(zip(table["uid"].to_pylist(), table["duplicate_of"].to_pylist(), strict=True))


def search_duplicates(
    folder: Folder,
    counts: Sequence[ShardCounts],
    config: ScoreConfig,
    *,
    only: Sequence[str] | None = None,
    engine: Engine = SERIAL,
) -> dict[str, float | None]:
    """Write which media of every shard repeat another; returns their number and the rule, for the manifest.

    With `only`, just the files of these shards are written: their media can repeat those of other shards, but not the
    reverse.
    """
    for path in [DUPLICATES] if only is None else [f"{DUPLICATES}/{SORTED}", *map(duplicates_file, only)]:
        folder.remove(path)
    counts = [count for count in counts if count.media.total()]  # a sample of the others would have no vector
    sizes = np.array([count.media.total() for count in counts])
    if sizes.sum() < 2:
        return {"repeats": 0}
    shards = [count.shard for count in counts]
    starts = np.cumsum(sizes) - sizes  # number of each shard's first medium
    plans = plan_search(folder, shards, frozenset(shards if only is None else only), int(sizes.sum()), config, engine)
    edges = np.concatenate([_search_space(plan, shards, starts, engine) for plan in plans])
    return {"repeats": write_groups(plans[0], shards, starts, edges, engine), **asdict(plans[0].rule)}


def plan_search(
    folder: Folder, shards: Sequence[str], writable: frozenset[str], media: int, config: ScoreConfig, engine: Engine
) -> list[SearchPlan]:
    """The search among embeddings and, if thumbnails are stored, that among their layouts."""
    count = choose_cell_count(media)
    generator = np.random.default_rng(config.seed)
    chosen = np.sort(generator.choice(len(shards), min(SAMPLE_SHARDS, len(shards)), replace=False))
    chosen_shards = [shards[number] for number in chosen]
    work = partial(_sample_media, folder, -(-SAMPLE // len(chosen)), config.seed)
    visual, thumbnails = map(np.concatenate, zip(*engine.each(work, chosen_shards), strict=True))
    rule = choose_copy_rule(visual, thumbnails, config.near_duplicate, config.copy_agreement)
    spaces = [(rule, visual)]
    if rule.agreement is not None:
        layouts = compute_layouts(thumbnails[find_structure(thumbnails)])
        spaces.append((replace(rule, candidate=LAYOUT_COSINE, cosine=np.inf), layouts))
    thumbnail_bytes = 1 if rule.agreement is None else thumbnails.shape[1]
    del visual, thumbnails
    plans = []
    for number, (space_rule, vectors) in enumerate(spaces):
        axes = fit_axes(vectors, space_rule.candidate) if count > 1 else None
        record = np.dtype([*RECORD, ("vector", "f2", vectors.shape[1:]), ("thumbnail", "u1", (thumbnail_bytes,))])
        sample = project_vectors(vectors, axes)
        plan = SearchPlan(folder, space_rule, number == 1, axes, sample[:1], record, 1, config.keep_duplicate, writable)
        if count * SAMPLE_PER_CELL > SAMPLE:
            project = partial(_sample_space, plan, -(-count * SAMPLE_PER_CELL // len(chosen)), config.seed)
            sample = np.concatenate(list(engine.each(project, chosen_shards)))
        plans.append(plan if count == 1 else _divide_space(plan, sample, count, media, config.seed))
    return plans


def _divide_space(plan: SearchPlan, sample: Floats, count: int, media: int, seed: int) -> SearchPlan:
    """The plan with cells, and with groups of them that fit into memory."""
    cells = fit_cells(sample, count, seed)
    tried = sample[:: -(-len(sample) // TRIED)]
    rows = media * len(assign_cells(tried, cells, plan.rule.candidate)[0]) // len(tried)
    return replace(plan, cells=cells, groups=max(1, min(len(cells), rows * plan.record.itemsize // GROUP_BYTES)))


def _sample_media(folder: Folder, limit: int, seed: int, shard: str) -> tuple[Halves, Thumbnails]:
    """Vectors and thumbnails of at most `limit` media of a shard, at random, from as many row groups as they need."""
    generator = np.random.default_rng(seed)
    media = _read_media_rows(folder, shard, SAMPLED_AMONG * limit, generator)
    if not len(media):  # all others failed
        media = _read_media_rows(folder, shard, EVERY_ROW, generator)
    media = media.take(np.sort(generator.choice(len(media), min(limit, len(media)), replace=False)))
    return read_half_matrix(media["visual"], media["visual"].type.list_size), read_thumbnails(media)


def _read_media_rows(folder: Folder, shard: str, count: int, generator: np.random.Generator) -> pa.Table:
    table = read_random_row_groups(folder, shard, count, generator, ["visual", "thumbnail"])
    return table.filter(table["visual"].is_valid())


def _sample_space(plan: SearchPlan, limit: int, seed: int, shard: str) -> Floats:
    vectors, thumbnails = _sample_media(plan.folder, limit, seed, shard)
    return project_vectors(_describe_space(plan, vectors, thumbnails)[1], plan.axes)


def read_first_rows(folder: Folder, shard: str, columns: Sequence[str]) -> tuple[pa.Table, Halves]:
    """Columns of the first row of each encoded medium of a shard, and their vectors if "visual" is among them.

    Files of earlier versions have no "thumbnail".
    """
    rows = folder.read_table(name_embeddings_file(shard), [*columns, *MEDIUM_COLUMNS])
    starts = find_medium_starts(rows)
    rows = rows if starts.all() else rows.filter(pa.array(starts))
    if "visual" not in columns:
        return rows, np.zeros((0, 0), np.float16)
    return rows.drop_columns("visual"), read_half_matrix(rows["visual"], rows["visual"].type.list_size)


def _search_space(plan: SearchPlan, shards: Sequence[str], starts: Ints, engine: Engine) -> Ints:
    """Copies by embedding or by layout, as those of `_search_cells`."""
    batches: dict[int, list[tuple[str, int]]] = {}
    for shard, start in zip(shards, starts.tolist(), strict=True):
        batches.setdefault(start * plan.record.itemsize // FILE_BYTES, []).append((shard, start))
    files = list(engine.each(partial(_write_sorted, plan), list(batches.items())))
    edges = np.concatenate(list(engine.each(partial(_search_cells, plan, files), range(plan.groups))))
    plan.folder.remove(f"{DUPLICATES}/{SORTED}")
    return edges


def _describe_space(
    plan: SearchPlan, vectors: Halves, thumbnails: Thumbnails
) -> tuple[Ints, Floats | Halves, Thumbnails]:
    """The rows of the media that are searched, and their vectors and thumbnails as they are compared."""
    if plan.by_layout:
        rows = np.flatnonzero(find_structure(thumbnails))
        return rows, compute_layouts(thumbnails[rows]), thumbnails[rows]
    is_compared = plan.rule.agreement is not None
    return np.arange(len(vectors)), vectors, thumbnails if is_compared else np.zeros((len(vectors), 1), np.uint8)


def _write_sorted(plan: SearchPlan, batch: tuple[int, list[tuple[str, int]]]) -> str:
    """Write the media of a batch of shards, sorted by cell, after the number of the first record of each group."""
    number, shards = batch
    parts = [_assign_media(plan, shard, start) for shard, start in shards]
    first = np.cumsum([0, *(len(records) for records, *_ in parts)])
    records = np.concatenate([part[0] for part in parts])
    medium = np.concatenate([part[1] + start for part, start in zip(parts, first, strict=False)])
    cell, home = (np.concatenate([part[column] for part in parts]) for column in (2, 3))
    del parts
    order = np.argsort(cell, kind="stable")
    places = np.searchsorted(cell[order] * plan.groups // len(plan.cells), np.arange(plan.groups + 1))
    name = f"{DUPLICATES}/{SORTED}/{number:06d}"
    with plan.folder.writing(name) as local, local.open("wb") as file:
        file.write(places.astype(np.int64).tobytes())
        for rows in np.split(order, range(WRITTEN_TOGETHER, len(order), WRITTEN_TOGETHER)):
            block = records.take(medium[rows])
            block["cell"], block["home"] = cell[rows], home[rows]
            file.write(block.view(np.uint8).data)
    return name


def _assign_media(plan: SearchPlan, shard: str, start: int) -> tuple[npt.NDArray[np.void], Ints, Ints, Bools]:
    """The records of a shard, and a row (record, cell, whether it is its own) for each cell that a medium is in."""
    columns = ["visual", "media_digest", *list_worth_columns(plan.best)]
    columns += [] if plan.rule.agreement is None else ["thumbnail"]
    media, halves = read_first_rows(plan.folder, shard, columns)
    rows, vectors, thumbnails = _describe_space(plan, halves, read_thumbnails(media))
    records = np.zeros(len(rows), plan.record)
    records["medium"] = rows + start
    records["mark"] = number_digests(compute_media_identities(media))[rows]
    records["file"] = number_digests(media["media_digest"].to_pylist())[rows]
    records["worth"] = compute_worth(media, plan.best)[rows]
    records["writable"] = shard in plan.writable
    records["vector"], records["thumbnail"] = vectors, thumbnails
    return records, *assign_cells(project_vectors(vectors, plan.axes), plan.cells, plan.rule.candidate)


def _search_cells(plan: SearchPlan, files: Sequence[str], group: int) -> Ints:
    """Copies in one group of cells: rows (E, 3) as those of `find_copies`, with the numbers of media in the corpus."""
    records = _read_group(plan, files, group)
    order = np.lexsort((records["medium"], -records["worth"], records["writable"], records["cell"]))
    edges = [np.zeros((0, 3), np.int64)]
    for rows in np.split(order, np.flatnonzero(np.diff(records["cell"][order])) + 1):
        if len(rows) < 2:
            continue
        names = ("vector", "thumbnail", "mark", "file", "home")
        copies = find_copies(CellMedia(*(records[name][rows] for name in names)), plan.rule, plan.axes)
        copies[:, :2] = records["medium"][rows[copies[:, :2]]]
        edges.append(copies)
    return np.concatenate(edges)


def _read_group(plan: SearchPlan, files: Sequence[str], group: int) -> npt.NDArray[np.void]:
    """The records of one group of cells from all files."""
    header, size = 8 * (plan.groups + 1), plan.record.itemsize
    places = [np.frombuffer(part, np.int64) for part in _read_ranges(plan, [(name, 8 * group, 16) for name in files])]
    records = np.empty(sum(end - start for start, end in places), plan.record)
    ranges = [
        (name, header + int(start) * size, int(end - start) * size)
        for name, (start, end) in zip(files, places, strict=True)
        if end > start  # object stores answer an empty range with the whole file, or with an error
    ]
    row = 0
    for part in _read_ranges(plan, ranges):
        records[row : row + len(part) // size] = np.frombuffer(part, plan.record)
        row += len(part) // size
    return records


def _read_ranges(plan: SearchPlan, ranges: Sequence[tuple[str, int, int]]) -> Iterator[bytes]:
    """Parts of files (name, start, size); an object store is asked for many at a time."""
    for first in range(0, len(ranges), REQUESTS):
        batch = ranges[first : first + REQUESTS]
        paths, starts = [plan.folder.path(name) for name, *_ in batch], [start for _, start, _ in batch]
        answers = plan.folder.fs.cat_ranges(paths, starts, [start + size for _, start, size in batch])
        for (name, _, size), answer in zip(batch, answers, strict=True):
            with plan.folder.reading(name):
                if isinstance(answer, BaseException):
                    raise answer
            if len(answer) != size:
                raise StorageError(f"{name} was cut off")
            yield answer


def write_groups(plan: SearchPlan, shards: Sequence[str], starts: Ints, edges: Ints, engine: Engine) -> int:
    """Write duplicates/<shard>.parquet for shards with duplicates; returns the number of media that repeat another."""
    media, ends = np.unique(edges[:, :2], return_inverse=True)
    if not len(media):
        return 0
    shard = np.searchsorted(starts, media, side="right") - 1
    numbers, firsts = np.unique(shard, return_index=True)  # media are in the order of shards
    tasks = [(shards[n], part - starts[n]) for n, part in zip(numbers, np.split(media, firsts[1:]), strict=True)]
    parts = list(engine.each(partial(_read_media, plan), tasks))
    uid, worth, thumbnails = (np.concatenate(column) for column in zip(*parts, strict=True))
    writable = np.isin(shards, list(plan.writable))[shard]
    order = np.lexsort((media, -worth, writable))  # best first
    edges = np.column_stack([np.sort(np.argsort(order)[ends.reshape(-1, 2)], axis=1), edges[:, 2]])
    representative = choose_representatives(len(media), edges)
    if plan.rule.agreement is not None:
        links = link_groups(representative, edges, thumbnails[order], plan.rule.agreement)
        representative = choose_representatives(len(media), np.concatenate([edges, links]))
    repeats = np.flatnonzero((representative != np.arange(len(media))) & writable[order])
    repeats = repeats[np.argsort(order[repeats])]
    originals, repeats = order[representative[repeats]], order[repeats]
    numbers, firsts = np.unique(shard[repeats], return_index=True)
    for number, rows in zip(numbers, np.split(np.arange(len(repeats)), firsts[1:]), strict=True):
        table = pa.table({"uid": uid[repeats[rows]], "duplicate_of": uid[originals[rows]]})
        mark = digest(repr(table.to_pylist()).encode())
        plan.folder.write_table(duplicates_file(shards[number]), table, {"mark": mark})
    return len(repeats)


def _read_media(plan: SearchPlan, task: tuple[str, Ints]) -> tuple[Any, Any, Any]:
    """uid, worth and, if pixels are compared, thumbnail of these media of a shard."""
    shard, rows = task
    has_pixels = plan.rule.agreement is not None
    columns = ["uid", *list_worth_columns(plan.best), *(["thumbnail"] if has_pixels else [])]
    media = read_first_rows(plan.folder, shard, columns)[0].take(pa.array(rows))
    thumbnails = read_thumbnails(media) if has_pixels else np.zeros((len(rows), 0), np.uint8)
    return np.array(media["uid"].to_pylist(), object), compute_worth(media, plan.best), thumbnails


def list_worth_columns(best: str) -> list[str]:
    return {"first": [], PIXELS: ["width", "height"]}.get(best, [best])


def compute_worth(media: pa.Table, best: str) -> npt.NDArray[np.float64]:
    """The product of the columns that rate a medium; a missing value is worth least."""
    worth = np.ones(media.num_rows)
    for name in list_worth_columns(best):
        worth = worth * media[name].to_numpy(zero_copy_only=False).astype(np.float64)
    return np.where(np.isnan(worth), -np.inf, worth)
