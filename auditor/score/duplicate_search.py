"""The search for duplicates in a corpus of any size, cell by cell (auditor.score.statistics.duplicates).

Vectors and thumbnails are written to disk sorted by cell, one file for several shards; then each group of cells is read
from all files and searched, so that memory is bounded by a group of cells. First the vectors are embeddings, then the
layouts of the thumbnails. The media that repeat another are written shard by shard to
duplicates/<shard>.parquet, so that a scorer reads only its own shard; a shard without duplicates has no file.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from auditor.audit_folder.embeddings import (
    MEDIUM_COLUMNS,
    compute_media_identities,
    find_medium_starts,
    name_embeddings_file,
    read_thumbnails,
    read_vector_matrix,
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
from auditor.vectors import Floats, Ints
from auditor.workers.process_pool import SERIAL, Engine

DUPLICATES = "duplicates"
SCHEMA = pa.schema([("uid", pa.string()), ("duplicate_of", pa.string())])
SORTED = "sorted"  # folder inside it that exists only during the search
MEDIA_TOGETHER = 50_000  # fewest media whose vectors are sorted into one file
GROUP_BYTES = 96 << 20  # float16 vectors that a task reads at once, and copies once
ROW_BYTES = {"vector": np.float16, "thumbnail": np.uint8}
SAMPLE_SHARDS = 256  # shards from which the sample for the cells is drawn


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """The parameters that all tasks of a search share."""

    folder: Folder
    rule: CopyRule
    by_layout: bool  # search among the layouts of thumbnails, not among embeddings
    axes: Floats | None  # (D, W) on which media are first compared; None for all
    cells: Floats  # (C, W or D)
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
    shard_sample = -(-max(count * SAMPLE_PER_CELL, 20_000) // len(chosen))
    work = partial(_sample_media, folder, shard_sample, config.seed)
    parts = list(engine.each(work, [shards[i] for i in chosen]))
    visual, thumbnails = (np.concatenate(column) for column in zip(*parts, strict=True))
    rule = choose_copy_rule(visual, thumbnails, config.near_duplicate, config.copy_agreement)
    spaces = [(rule, visual)]
    if rule.agreement is not None:
        layouts = compute_layouts(thumbnails[find_structure(thumbnails)])
        spaces.append((replace(rule, candidate=LAYOUT_COSINE, cosine=np.inf), layouts))
    plans = []
    for number, (space_rule, vectors) in enumerate(spaces):
        axes = fit_axes(vectors, space_rule.candidate) if count > 1 else None
        cells = fit_cells(project_vectors(vectors, axes), count, config.seed)
        row_bytes = 2 * vectors.shape[1] + (thumbnails.shape[1] if rule.agreement is not None else 0)
        groups = max(1, min(len(cells), 2 * media * row_bytes // GROUP_BYTES))  # a medium is in about two cells
        plans.append(SearchPlan(folder, space_rule, number == 1, axes, cells, groups, config.keep_duplicate, writable))
    return plans


def _sample_media(folder: Folder, limit: int, seed: int, shard: str) -> tuple[Floats, Thumbnails]:
    media, visual = read_first_rows(folder, shard, ["visual", "thumbnail"])
    chosen = np.sort(np.random.default_rng(seed).choice(len(visual), min(limit, len(visual)), replace=False))
    return visual[chosen].astype(np.float16), read_thumbnails(media)[chosen]


def read_first_rows(folder: Folder, shard: str, columns: Sequence[str]) -> tuple[pa.Table, Floats]:
    """Columns of the first row of each encoded medium of a shard, and their vectors if "visual" is among them.

    Files of earlier versions have no "thumbnail".
    """
    rows = folder.read_table(name_embeddings_file(shard), [*columns, *MEDIUM_COLUMNS])
    rows = rows.filter(pa.array(find_medium_starts(rows)))
    if "visual" not in columns:
        return rows, np.zeros((0, 0), np.float32)
    return rows.drop_columns("visual"), read_vector_matrix(rows["visual"], rows["visual"].type.list_size)


def _search_space(plan: SearchPlan, shards: Sequence[str], starts: Ints, engine: Engine) -> Ints:
    """Copies by embedding or by layout, as those of `_search_cells`."""
    batches: dict[int, list[tuple[str, int]]] = {}
    for shard, start in zip(shards, starts.tolist(), strict=True):
        batches.setdefault(start // MEDIA_TOGETHER, []).append((shard, start))
    files = list(engine.each(partial(_write_sorted, plan), list(batches.items())))
    edges = np.concatenate(list(engine.each(partial(_search_cells, plan, files), range(plan.groups))))
    plan.folder.remove(f"{DUPLICATES}/{SORTED}")
    return edges


def _write_sorted(plan: SearchPlan, batch: tuple[int, list[tuple[str, int]]]) -> str:
    """Write the media of a batch of shards with their cells, one row group per group of cells; returns the file."""
    number, shards = batch
    parts = [_assign_media(plan, shard, start) for shard, start in shards]
    columns = concatenate_columns(parts)
    cell = columns["cell"]
    order = np.argsort(cell, kind="stable")
    ends = np.searchsorted(cell[order] * plan.groups // len(plan.cells), np.arange(plan.groups + 1))
    name = f"{DUPLICATES}/{SORTED}/{number:06d}.parquet"
    schema = pa.schema({key: _build_column(values[:0]).type for key, values in columns.items()})
    with plan.folder.writing(name) as local, pq.ParquetWriter(local, schema, compression="none") as writer:
        for start, end in pairwise(ends.tolist()):
            rows = order[start:end]
            table = pa.Table.from_arrays([_build_column(values[rows]) for values in columns.values()], schema=schema)
            writer.write_table(table, row_group_size=max(1, len(rows)))
    return name


def _build_column(values: Any) -> pa.Array:
    """An array as a column; the rows of a matrix as bytes."""
    if values.ndim == 1:
        return pa.array(values)
    width = values.shape[1] * values.itemsize
    return pa.Array.from_buffers(pa.binary(width), len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def _assign_media(plan: SearchPlan, shard: str, start: int) -> dict[str, Any]:
    """The columns of `_write_sorted` for a shard; a medium has a row for each cell that it is in."""
    names = ["media_digest", "visual", "thumbnail", *list_worth_columns(plan.best)]
    media, vectors = read_first_rows(plan.folder, shard, names)
    thumbnails, rows = read_thumbnails(media), np.arange(media.num_rows)
    if plan.by_layout:
        rows = np.flatnonzero(find_structure(thumbnails))
        vectors = compute_layouts(thumbnails[rows])
    number, cell, home = assign_cells(project_vectors(vectors, plan.axes), plan.cells, plan.rule.candidate)
    rows = rows[number]
    return {
        "medium": rows + start,
        "cell": cell,
        "home": home,
        "mark": number_digests(compute_media_identities(media))[rows],
        "file": number_digests(media["media_digest"].to_pylist())[rows],
        "worth": compute_worth(media, plan.best)[rows],
        "writable": np.full(len(rows), shard in plan.writable),
        "vector": vectors.astype(np.float16)[number],
        "thumbnail": thumbnails[rows] if plan.rule.agreement is not None else np.zeros((len(rows), 1), np.uint8),
    }


def _search_cells(plan: SearchPlan, files: Sequence[str], group: int) -> Ints:
    """Copies in one group of cells: rows (E, 3) as those of `find_copies`, with the numbers of media in the corpus."""
    columns = _read_group(plan, files, group)
    order = np.lexsort((columns["medium"], -columns["worth"], columns["writable"], columns["cell"]))
    edges = [np.zeros((0, 3), np.int64)]
    for rows in np.split(order, np.flatnonzero(np.diff(columns["cell"][order])) + 1):
        if len(rows) < 2:
            continue
        names = ("vector", "thumbnail", "mark", "file", "home")
        copies = find_copies(CellMedia(*(columns[name][rows] for name in names)), plan.rule, plan.axes)
        copies[:, :2] = columns["medium"][rows[copies[:, :2]]]
        edges.append(copies)
    return np.concatenate(edges)


def _read_group(plan: SearchPlan, files: Sequence[str], group: int) -> dict[str, Any]:
    """The columns of one group of cells from all files; of each file, only the matrices are kept while reading."""
    parts: list[dict[str, Any]] = []
    for name in files:
        with plan.folder.open_table(name) as parquet:
            if parquet.num_row_groups != plan.groups:
                raise StorageError(f"{name} has {parquet.num_row_groups} parts, not {plan.groups}")
            table = parquet.read_row_group(group)
        parts.append({key: _read_column(table[key], ROW_BYTES.get(key)) for key in table.column_names})
    return concatenate_columns(parts)


def concatenate_columns(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The columns of several parts as one; the parts are emptied, so that only one column is in memory twice."""
    return {name: np.concatenate([part.pop(name) for part in parts]) for name in list(parts[0])}


def _read_column(column: pa.ChunkedArray, kind: Any) -> Any:
    """A column as an array; a column of bytes as a matrix of numbers of this kind."""
    if kind is None:
        return column.to_numpy()
    width = column.type.byte_width // np.dtype(kind).itemsize
    parts = [
        np.frombuffer(chunk.buffers()[1], kind)[chunk.offset * width :][: len(chunk) * width].reshape(-1, width)
        for chunk in column.chunks
    ]
    return parts[0] if len(parts) == 1 else np.concatenate([np.zeros((0, width), kind), *parts])


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
    columns = ["uid", *list_worth_columns(plan.best), *([] if plan.rule.agreement is None else ["thumbnail"])]
    media = read_first_rows(plan.folder, shard, columns)[0].take(pa.array(rows))
    return np.array(media["uid"].to_pylist(), object), compute_worth(media, plan.best), read_thumbnails(media)


def list_worth_columns(best: str) -> list[str]:
    return {"first": [], PIXELS: ["width", "height"]}.get(best, [best])


def compute_worth(media: pa.Table, best: str) -> npt.NDArray[np.float64]:
    """The product of the columns that rate a medium; a missing value is worth least."""
    worth = np.ones(media.num_rows)
    for name in list_worth_columns(best):
        worth = worth * media[name].to_numpy(zero_copy_only=False).astype(np.float64)
    return np.where(np.isnan(worth), -np.inf, worth)
