"""Diverse rows: in each cell, the media that represent the others best (facility location, chosen greedily).

The value of a selection is the sum, over all candidates of the cell, of the cosine to their nearest selected one. Each
step adds the candidate with the largest gain. Gains only shrink while the selection grows, so a candidate whose old
gain is too small need not be computed again (lazy greedy); the result is that of the plain algorithm, at least 63% of
the best value. Rows stream in cell by cell, and their vectors are read from the flat file of the search
(auditor/query/search_index.py).
"""

import heapq
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from auditor.audit_folder.audit_files import get_shard_name
from auditor.keep.caption_changes import CaptionChanges
from auditor.query.database import AuditDatabase
from auditor.query.search_index import VectorIndex, open_vectors
from auditor.vectors import Floats, Ints

MOST_TOGETHER = 4096  # candidates that are compared with each other; a larger cell is divided at random


def choose_diverse_rows(database: AuditDatabase, candidates: str, quotas: Ints, changes: CaptionChanges) -> pa.Table:
    """The hashes of the rows chosen from each cell, by the SQL of all candidates and the number of each cell."""
    index = database.cached("vectors of media", lambda: open_vectors(database.files.folder, "visual"))
    numbers = {shard: number for number, shard in enumerate(index.shards)}
    shard_of_file = np.array([numbers.get(get_shard_name(file), -1) for file in database.files.all], np.int64)
    stored = (index.shard.astype(np.int64) << 32) + index.row
    chosen = [np.zeros(0, np.uint64)]
    for cell, quota in zip(iterate_cells(database, candidates, changes), quotas.tolist(), strict=True):
        units, first, unit_of_row = np.unique(cell["place"].to_numpy(), return_index=True, return_inverse=True)
        if quota < len(units):
            row = (shard_of_file[cell["file"].to_numpy()[first]] << 32) + cell["file_row_number"].to_numpy()[first]
            position = (
                np.searchsorted(stored, row, "right") - 1
            )  # of the medium whose first row is at or before the row
            selected = select_in_parts(index, position, cell["unit"].to_numpy()[first], quota)
        else:
            selected = np.arange(len(units))
        chosen.append(cell["row_hash"].to_numpy()[np.isin(unit_of_row, selected)])
    return pa.table({"row_hash": np.concatenate(chosen)})


def iterate_cells(database: AuditDatabase, candidates: str, changes: CaptionChanges) -> Iterator[pa.Table]:
    """Yield the candidates of each cell, best first, in the order of cells."""
    columns = "cell, place, unit, row_hash, file, file_row_number"
    sql = f"SELECT dense_rank() OVER (ORDER BY cell) AS number, {columns} FROM ({candidates}) ORDER BY number, place"
    waiting: list[pa.Table] = []
    sandbox = database.open_sandbox(limits=replace(database.limits, seconds=None), condition=candidates)
    try:
        changes.define(sandbox)
        for batch in sandbox.stream(sql):
            rows = pa.Table.from_batches([batch])
            number = rows["number"].to_numpy()
            cuts = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(rows)]
            for start, end in pairwise(cuts):
                part = rows.slice(start, end - start)
                if waiting and waiting[-1]["number"][0] != part["number"][0]:
                    yield pa.concat_tables(waiting)
                    waiting = []
                waiting.append(part)
        if waiting:
            yield pa.concat_tables(waiting)
    finally:
        sandbox.close()


def select_in_parts(index: VectorIndex, position: Ints, unit: Ints, quota: int) -> Ints:
    """The numbers of the selected candidates; a large cell is divided by the order of uids, which is random."""
    parts = [np.sort(part) for part in np.array_split(np.argsort(unit, kind="stable"), -(-len(unit) // MOST_TOGETHER))]
    ends = np.round(np.cumsum([len(part) for part in parts]) * (quota / len(unit))).astype(np.int64)
    counts = np.diff(ends, prepend=0)
    return np.concatenate(
        [
            part[select_representatives(np.asarray(index.matrix[position[part]], np.float32), count)]
            for part, count in zip(parts, counts.tolist(), strict=True)
        ]
    )


def select_representatives(vectors: Floats, count: int) -> Ints:
    """The rows that greedy facility location selects, in their order; the first of equals wins."""
    similarity = np.maximum(vectors @ vectors.T, 0)
    nearest = np.zeros(len(vectors), np.float32)  # similarity of each row to its nearest selected one
    heap = [(-gain, row) for row, gain in enumerate(similarity.sum(axis=1).tolist())]
    heapq.heapify(heap)
    selected: list[int] = []
    while len(selected) < count:
        _, row = heapq.heappop(heap)
        entry = (-float(np.maximum(similarity[row] - nearest, 0).sum()), row)
        if heap and entry > heap[0]:
            heapq.heappush(heap, entry)
            continue
        selected.append(row)
        nearest = np.maximum(nearest, similarity[row])
    return np.array(selected, np.int64)
