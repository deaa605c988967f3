"""Duplicate media: equal bytes (digest), or embeddings closer than those of different photos ever are.

Duplicates distort every statistic of a corpus. Groups are the connected components of "equal or near", so the grouping
does not depend on the order of the media. A small corpus is one cell, in which all pairs are compared. A large one is
partitioned into cells around the centroids of a k-means; a medium near the border of its cell is also a guest in the
neighboring cells, so that memory and work per cell do not depend on the size of the corpus.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from auditor.score.statistics.rivals import iterate_blocks
from auditor.score.statistics.topics import cluster_vectors
from auditor.vectors import Bools, Floats, Ints

# Distance of a copy, as a share of the mean distance of two media. On Flickr8k, where that mean is 1, the most similar
# two of 1,000 different photos have cosine 0.90 and 99% stay below 0.85, while copies saved again at JPEG quality 75
# have at least 0.988. A model with all media in a narrow cone has a smaller mean distance and so a higher threshold.
COPY_DISTANCE = 0.04
ONE_CELL = 20_000  # media up to which comparing all pairs is faster
MOST_CELLS = 16_384
SAMPLE_PER_CELL = 40
ROUNDS = 10
CHOICES = 4  # cells that a medium can be in: its own and three others
# A medium is a guest in a cell whose centroid is at most this much farther than its own, in units of the distance of
# two copies. Twice that distance would be certain; in high dimensions the difference is a small part of it.
BORDER = 0.5


def cosine_at_distance(distance: float, vectors: Floats) -> float:
    """Cosine of two vectors at a share `distance` of the mean distance; the mean cosine of all pairs is |mean|^2."""
    mean = vectors.mean(axis=0, dtype=np.float64)
    return float(1 - distance * (1 - min(1.0, float(mean @ mean))))


def estimate_copy_threshold(visual: Floats) -> float:
    """The cosine above which two media of this corpus are copies."""
    return cosine_at_distance(COPY_DISTANCE, visual)


def choose_cell_count(media: int) -> int:
    """The number of cells that balances the cost of finding a medium's cell and of comparing it there."""
    return 1 if media <= ONE_CELL else int(np.clip(1.5 * np.sqrt(media), 16, MOST_CELLS))


def fit_cells(sample: Floats, count: int, seed: int = 0) -> Floats:
    count = min(count, len(sample))
    return cluster_vectors(sample, count, rounds=ROUNDS, points_per_cluster=SAMPLE_PER_CELL, seed=seed)


def assign_cells(visual: Floats, cells: Floats, threshold: float) -> tuple[Ints, Ints, Bools]:
    """Assign media to cells: a row (medium, cell, whether the cell is its own) for each cell that a medium is in."""
    import faiss

    media = np.arange(len(visual))
    if len(cells) == 1 or not len(visual):
        return media, np.zeros(len(visual), np.int64), np.ones(len(visual), bool)
    index = faiss.IndexFlatIP(cells.shape[1])
    index.add(np.ascontiguousarray(cells))
    cosine, cell = index.search(np.ascontiguousarray(visual, np.float32), min(CHOICES, len(cells)))
    border = BORDER * np.sqrt(max(0.0, 2 * (1 - threshold)))
    chosen = cosine >= cosine[:, :1] - border
    number, rank = np.nonzero(chosen)
    return number, cell[number, rank], rank == 0


def join_groups(first: Ints, items: Ints, partners: Ints) -> Ints:
    """For each of N items, the first item of its group, after `items` and `partners` are joined.

    `first` (N,) holds the groups before that; np.arange(N) if every item is alone.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    ends = np.concatenate([np.arange(len(first)), items]), np.concatenate([first, partners])
    graph = coo_array((np.ones(len(ends[0]), np.int8), ends), shape=(len(first), len(first)))
    group = connected_components(graph, directed=False)[1]
    return np.asarray(np.unique(group, return_index=True)[1][group], np.int64)


def group_equal(marks: npt.NDArray[np.generic]) -> Ints:
    """For each item, the first item with the same mark."""
    _, first, inverse = np.unique(marks, return_index=True, return_inverse=True)
    return np.asarray(first[inverse.reshape(-1)], np.int64)


def group_cell(visual: Floats, marks: Ints, home: Bools, threshold: float, files: Ints | None = None) -> Ints:
    """For each of the N media of a cell, the first medium of its group; `marks` are equal for equal bytes.

    Spans of one file (equal `files`) are never near-duplicates: a similar picture a minute later is the same scene, not
    a copy. Guests are compared only with residents: two guests meet in the cell of which one of them is a resident.
    """
    # equal stored float16 vectors are joined first, which keeps thousands of blank images from being compared
    half = np.ascontiguousarray(visual.astype(np.float16))
    equal_vectors = group_equal(half.view(f"V{half.shape[1] * 2}").reshape(-1))
    groups = join_groups(group_equal(marks), np.arange(len(visual)), equal_vectors)
    first, index = np.unique(groups, return_inverse=True)
    resident = np.zeros(len(first), bool)
    np.logical_or.at(resident, index.reshape(-1), home)
    ordered = np.concatenate([first[resident], first[~resident]])
    for row, column in find_near_pairs(np.ascontiguousarray(visual[ordered]), int(resident.sum()), threshold):
        a, b = ordered[row], ordered[column]
        apart = slice(None) if files is None else files[a] != files[b]
        groups = join_groups(groups, a[apart], b[apart])
    return groups


def find_near_pairs(visual: Floats, residents: int, threshold: float) -> Iterator[tuple[Ints, Ints]]:
    """All pairs with at least the threshold of which one is among the first `residents`, block by block."""
    for rows in iterate_blocks(residents, len(visual)):
        row, column = np.nonzero(visual[rows] @ visual[rows.start :].T >= threshold)
        keep = row < column
        if keep.any():
            yield row[keep] + rows.start, column[keep] + rows.start
