"""Duplicate media: equal bytes, or near in the embedding (or in layout) with pixels that agree.

Duplicates distort every statistic of a corpus. The best medium of a group represents it, and each other member is a
copy of that one, not of another copy. Media are candidates from a moderate cosine up, because similar photos can be
nearer than altered copies; their pixels decide (auditor.score.statistics.picture_match). If pixels cannot, because none
are stored or both pictures are blank, a high cosine does.

A small corpus is one cell, in which all pairs are compared. A large one is partitioned into cells around the centroids
of a k-means; a medium near the border of its cell is also a guest in the neighboring cells, so that memory and work per
cell do not depend on the size of the corpus.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from auditor.score.statistics.picture_match import Thumbnails, compare_pictures, find_structure
from auditor.score.statistics.rivals import iterate_blocks
from auditor.score.statistics.topics import cluster_vectors
from auditor.vectors import BLOCK_ELEMENTS, Bools, Floats, Halves, Ints, Rows, convert_to_single, multiply_rows

# Distance of a copy, as a share of the mean distance of two media. On Flickr8k, where that mean is 1, the most similar
# two of 1,000 different photos have cosine 0.90 and 99% stay below 0.85, while copies saved again at JPEG quality 75
# have at least 0.988. A model with all media in a narrow cone has a smaller mean distance and so a higher threshold.
COPY_DISTANCE = 0.04
# From this distance down, pixels are compared. 720 altered copies of 80 photos (tests/bench/copies.py) are nearer, but
# for gray and tiny ones, which have the same layout.
CANDIDATE_DISTANCE = 0.32
LAYOUT_COSINE = 0.95  # copies that are saved again, tiny or gray have at least 0.99; 600 photos have no pair of that
# Copies agree by 0.63 or more in their pixels, the nearest of other photos by up to 0.50, pages of a template by 0.60.
LOWEST_AGREEMENT, HIGHEST_AGREEMENT = 0.64, 0.98
AGREEMENT_MARGIN = 0.2  # above the agreement of 99% of the random pairs of the corpus
CROWD, WITNESSES = 24, 8  # a picture with so many candidates is compared with some of the farther half of them
RANDOM_PAIRS = (64, 32)  # pictures, each with so many others
CANDIDATES = 6  # nearest media whose pixels are compared; more, as long as half of them are copies
ONE_CELL = 20_000  # media up to which comparing all pairs is faster
MOST_CELLS = 16_384
SAMPLE_PER_CELL = 40
ROUNDS = 10
# A medium is a guest in a cell if the border between this cell and its own is near, in units of the distance of two
# copies. Half that distance is certain: two copies on different sides of a border are not both farther from it. In 40
# dimensions, a quarter misses 4 of 100,000 copies. Rows: distance of two copies up to which the row is valid, most
# cells of a medium, and border. Copies that may be very different would be in most cells, which takes too much disk.
BORDERS = ((0.0, 1, 0.0), (0.4, 16, 0.25), (2.0, 4, 0.5))
FEW = 4  # cells that are searched first
SKETCH_WIDTHS = (64, 128)  # dimensions of sketches, smallest first
SKETCH_MISSES = 0.01  # largest share of random pairs that sketches may let through
SKETCH_SAMPLE = 20_000  # media from which the axes of sketches are computed, and a tenth of them to try them
ROUNDING = np.float32(1e-4)  # of a cosine from a sketch
BLOCK_ROWS = 256  # most rows that are compared at once: only later rows matter, and a large block has many earlier ones
DENSE = 1 / 16  # share of candidates from which a whole product is faster than one product for each


def cosine_at_distance(distance: float, vectors: Floats) -> float:
    """Cosine of two vectors at a share `distance` of the mean distance; the mean cosine of all pairs is |mean|^2."""
    mean = vectors.mean(axis=0, dtype=np.float64)
    return float(1 - distance * (1 - min(1.0, float(mean @ mean))))


@dataclass(frozen=True, slots=True)
class CopyRule:
    """The limits from which two media count as copies."""

    cosine: float  # if pixels cannot tell
    candidate: float  # cosine from which pixels are compared
    agreement: float | None  # of the pixels; None: only cosines are compared


def choose_copy_rule(visual: Floats, thumbnails: Thumbnails, cosine: float | None, agreement: float | None) -> CopyRule:
    """The rule of a corpus from a sample of its media; `cosine` and `agreement` replace what is estimated if given."""
    strict = estimate_copy_threshold(visual) if cosine is None else cosine
    pictures = thumbnails[find_structure(thumbnails)]
    if agreement == 0 or not len(pictures):
        return CopyRule(strict, strict, None)
    candidate = min(strict, cosine_at_distance(CANDIDATE_DISTANCE, visual)) if cosine is None else cosine
    return CopyRule(strict, candidate, estimate_agreement(pictures) if agreement is None else agreement)


def estimate_agreement(pictures: Thumbnails) -> float:
    """More agreement than random pairs of the corpus have: much on radiographs or pages, little on photos."""
    generator = np.random.default_rng(0)
    first, count = generator.permutation(len(pictures))[: RANDOM_PAIRS[0]], min(RANDOM_PAIRS[1], len(pictures))
    pairs = [(row, generator.choice(len(pictures), count, replace=False)) for row in first]
    values = np.concatenate(
        [compare_pictures(pictures[row], pictures[candidates[candidates != row]]) for row, candidates in pairs]
    )
    typical = float(np.quantile(values, 0.99)) if len(values) else 0.0
    return float(np.clip(typical + AGREEMENT_MARGIN, LOWEST_AGREEMENT, HIGHEST_AGREEMENT))


def estimate_copy_threshold(visual: Floats) -> float:
    """The cosine above which two media of this corpus are copies."""
    return cosine_at_distance(COPY_DISTANCE, visual)


def fit_axes(sample: Floats, limit: float) -> Floats | None:
    """The leading eigenvectors (D, W) whose sketches show that most random pairs are less similar than `limit`.

    None if there are none: then vectors are compared in full.
    """
    chosen = sample[:: max(1, len(sample) // SKETCH_SAMPLE)].astype(np.float32)
    _, axes = np.linalg.eigh((chosen.T @ chosen).astype(np.float64))
    for width in SKETCH_WIDTHS:
        if 2 * width > chosen.shape[1]:
            break
        leading = np.ascontiguousarray(axes[:, -width:], np.float32)
        sketches = sketch_vectors(chosen[::10], leading)
        misses = (sketches @ sketches.T >= limit).sum() - len(sketches)  # without each with itself
        if misses < SKETCH_MISSES * len(sketches) ** 2:
            return leading
    return None


def project_vectors(vectors: Floats | Halves, axes: Floats | None) -> Floats:
    """The vectors on the axes, or themselves, of single precision; block by block, which is narrower than all."""
    if axes is None:
        return convert_to_single(vectors)
    blocks = iterate_blocks(len(vectors), vectors.shape[1])
    return np.concatenate([convert_to_single(vectors[rows]) @ axes for rows in blocks])


def sketch_vectors(vectors: Floats, axes: Floats | None) -> Floats:
    """Vectors (N, W + 1) whose product is at least that of the vectors: the projections and the length of the rest."""
    if axes is None:
        return vectors
    projected = project_vectors(vectors, axes)
    rest = np.einsum("nd,nd->n", vectors, vectors) - np.einsum("nw,nw->n", projected, projected)
    return np.column_stack([projected, np.sqrt(np.maximum(rest, 0))])


def choose_cell_count(media: int) -> int:
    """The number of cells that balances the cost of finding a medium's cell and of comparing it there."""
    return 1 if media <= ONE_CELL else int(np.clip(1.5 * np.sqrt(media), 16, MOST_CELLS))


def fit_cells(sample: Floats, count: int, seed: int = 0) -> Floats:
    """The centers of cells; all of the sample counts, as faiss would copy the part that it takes of it."""
    count = min(count, len(sample))
    return cluster_vectors(sample, count, rounds=ROUNDS, seed=seed)


def assign_cells(visual: Floats, cells: Floats, threshold: float) -> tuple[Ints, Ints, Bools]:
    """Assign media to cells: a row (medium, cell, whether the cell is its own) for each cell that a medium is in."""
    import faiss

    media = np.arange(len(visual))
    if len(cells) == 1 or not len(visual):
        return media, np.zeros(len(visual), np.int64), np.ones(len(visual), bool)
    index = faiss.IndexFlatIP(cells.shape[1])
    index.add(np.ascontiguousarray(cells))
    distance = np.sqrt(max(0.0, 2 * (1 - threshold)))
    choices, border = next((choices, border) for most, choices, border in BORDERS if distance <= most)
    reach = 2 * border * distance  # no two centroids are farther from each other than 2
    cosine, cell = _find_nearest_cells(index, np.ascontiguousarray(visual, np.float32), choices, reach)
    gap = cosine[:, :1] - cosine
    number, rank = np.nonzero(gap <= reach)
    own, other = cell[number, 0], cell[number, rank]
    blocks = iterate_blocks(len(number), cells.shape[1])
    between = np.concatenate([np.linalg.norm(cells[own[rows]] - cells[other[rows]], axis=1) for rows in blocks])
    is_near = (gap[number, rank] <= border * distance * between) | (rank == 0)
    number, rank = number[is_near], rank[is_near]
    return number, cell[number, rank], rank == 0


def _find_nearest_cells(index: Any, visual: Floats, choices: int, reach: float) -> tuple[Floats, Ints]:
    """The cosines (N, `choices`) of the nearest cells, and the cells; few if the others are out of reach.

    faiss takes 1.8 ns for each medium and cell to find the nearest four, and 2.8 to find the nearest 16.
    """
    few, choices = min(FEW, choices, index.ntotal), min(choices, index.ntotal)
    cosine, cell = np.full((len(visual), choices), -np.inf, np.float32), np.zeros((len(visual), choices), np.int64)
    cosine[:, :few], cell[:, :few] = index.search(visual, few)
    rows = np.flatnonzero((cosine[:, 0] - cosine[:, few - 1] <= reach) & (few < choices))
    if len(rows):
        cosine[rows], cell[rows] = index.search(visual[rows], choices)
    return cosine, cell


def group_equal(marks: npt.NDArray[np.generic]) -> Ints:
    """For each item, the first item with the same mark."""
    _, first, inverse = np.unique(marks, return_index=True, return_inverse=True)
    return np.asarray(first[inverse.reshape(-1)], np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class CellMedia:
    """The N media of a cell, best first. Media with equal `marks` have equal bytes."""

    vectors: Floats | Halves  # (N, D)
    thumbnails: Thumbnails
    marks: Ints
    files: Ints  # spans of one file are never near-duplicates: a similar picture a minute later is the same scene
    home: Bools  # guests are compared only with residents: two guests meet in the cell of which one is a resident

    def group_equal(self) -> Ints:
        """For each medium, the first with the same bytes, or with the same vector and thumbnail.

        It keeps thousands of blank images from being compared.
        """
        same_bytes = group_equal(self.marks)
        matrices = [np.ascontiguousarray(self.vectors, np.float16).view(np.uint8), self.thumbnails]
        same_rows = group_equal(hash_rows(matrices[0]) + hash_rows(matrices[1]) * np.uint64(3))
        repeats = np.flatnonzero(same_rows != np.arange(len(same_rows)))
        for rows in matrices:
            is_other = (rows[repeats] != rows[same_rows[repeats]]).any(axis=1)
            same_rows[repeats[is_other]] = repeats[is_other]
        return group_equal(same_rows[same_bytes])


def hash_rows(rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
    """A 64-bit hash of each row of bytes: a sum with odd factors, as sorting the rows themselves is slow."""
    padding = -rows.shape[1] % 8
    words = np.ascontiguousarray(np.pad(rows, ((0, 0), (0, padding))) if padding else rows).view(np.uint64)
    factors = np.random.default_rng(0).integers(0, 2**63, words.shape[1], np.uint64) * np.uint64(2) + np.uint64(1)
    return np.asarray(words @ factors)


def find_copies(media: CellMedia, rule: CopyRule, axes: Floats | None = None) -> Ints:
    """Rows (E, 3): a medium, a later copy of it, and whether pixels alone prove it. A copy is not compared further.

    With `axes`, the pairs that their sketches exclude are not compared; the result is the same.
    """
    equal = media.group_equal()
    rows, index = np.unique(equal, return_inverse=True)
    resident = np.zeros(len(rows), bool)
    np.logical_or.at(resident, index.reshape(-1), media.home)
    vectors, thumbnails, files = convert_to_single(media.vectors[rows]), media.thumbnails[rows], media.files[rows]
    sketches = sketch_vectors(vectors, axes)
    original, is_proved = np.arange(len(rows)), np.ones(len(rows), bool)
    for block in iterate_blocks(len(rows), max(len(rows), BLOCK_ELEMENTS // BLOCK_ROWS)):
        start = block.start if rule.agreement is None else 0  # earlier media matter only in a crowd
        row, column, cosine = find_near_residents(vectors, sketches, resident, block, start, rule.candidate)
        chosen = (row != column) & (files[row] != files[column])
        row, column, cosine = row[chosen], column[chosen], cosine[chosen]
        for near in np.split(np.arange(len(row)), np.flatnonzero(np.diff(row)) + 1) if len(row) else ():
            number, candidates = row[near[0]], column[near]
            is_free = (candidates > number) & (original[candidates] == candidates)
            if original[number] != number or not is_free.any():
                continue
            order = np.argsort(-cosine[near], kind="stable")
            limit = choose_limit(thumbnails[number], thumbnails[candidates[order]], rule.agreement)
            order = order[is_free[order]]
            candidates, nearness = candidates[order], cosine[near[order]]
            copies = candidates[_verify_copies(thumbnails, number, candidates, nearness, rule, limit)]
            original[copies], is_proved[copies] = number, limit < HIGHEST_AGREEMENT
    first, repeats = rows[original[index.reshape(-1)]], np.arange(len(equal))
    edges = np.stack([first, repeats, is_proved[index.reshape(-1)].astype(np.int64)], axis=1)
    return np.asarray(edges[first != repeats])


def find_near_residents(
    vectors: Floats, sketches: Floats, resident: Bools, block: slice, start: int, limit: float
) -> tuple[Ints, Ints, Floats]:
    """(row, column, cosine) of the rows of a block and the rows from `start` on that are at least so similar.

    Ordered by row. Of two guests, the pair is left out: two thirds of the rows of a cell are guests.
    """
    is_resident = resident[block]
    residents, guests = (np.flatnonzero(rows) + block.start for rows in (is_resident, ~is_resident))
    parts = [
        find_near(vectors, sketches, residents, slice(start, None), limit),
        find_near(vectors, sketches, guests, np.flatnonzero(resident[start:]) + start, limit),
    ]
    row, column, cosine = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = np.argsort(row, kind="stable")
    return row[order], column[order], cosine[order]


def find_near(vectors: Floats, sketches: Floats, rows: Ints, columns: Rows, limit: float) -> tuple[Ints, Ints, Floats]:
    """(row, column, cosine) of these rows and columns that are at least so similar."""
    product = sketches[rows] @ sketches[columns].T
    places = np.flatnonzero(product >= limit - ROUNDING)
    if sketches is not vectors and len(places) > DENSE * product.size:
        sketches, product = vectors, vectors[rows] @ vectors[columns].T
        places = np.flatnonzero(product >= limit)
    row, column = np.divmod(places, max(1, product.shape[1]))
    cosine = product.ravel()[places]
    row, column = rows[row], np.arange(len(vectors))[columns][column]
    if sketches is not vectors:
        cosine = multiply_rows(vectors, row, vectors, column)
    is_near = cosine >= limit
    return row[is_near], column[is_near], cosine[is_near]


def _verify_copies(
    thumbnails: Thumbnails, number: int, candidates: Ints, cosine: Floats, rule: CopyRule, limit: float
) -> Bools:
    """Compare a medium with candidates, nearest first, and return whether each is a copy."""
    is_near = cosine >= rule.cosine
    if rule.agreement is None:
        return is_near
    is_copy = np.zeros(len(candidates), bool)
    for start in range(0, len(candidates), CANDIDATES):
        part = slice(start, start + CANDIDATES)
        agreement = compare_pictures(thumbnails[number], thumbnails[candidates[part]])
        is_proved = (agreement >= limit) & (is_near[part] | (limit < HIGHEST_AGREEMENT))
        is_copy[part] = np.where(np.isnan(agreement), is_near[part], is_proved)
        if is_copy[part].mean() < 0.5:
            break
    return is_copy


def choose_limit(picture: Thumbnails, candidates: Thumbnails, agreement: float | None) -> float:
    """The agreement of a copy of a picture: more than `agreement` if many others look alike, such as star patterns.

    From HIGHEST_AGREEMENT on, pixels prove little, and copies need the cosine of copies as well.
    """
    if agreement is None or len(candidates) < CROWD:
        return agreement or 0.0
    witnesses = np.linspace(len(candidates) // 2, len(candidates) - 1, WITNESSES).astype(np.int64)
    typical = np.nan_to_num(compare_pictures(picture, candidates[witnesses])).max()
    return max(agreement, min(HIGHEST_AGREEMENT, float(typical) + AGREEMENT_MARGIN))


def choose_representatives(count: int, edges: Ints) -> Ints:
    """For each of `count` media, best first, the best one that it is a copy of: itself if it is a copy of none.

    `edges` (E, 2 or more) begin with a medium and a later copy. A representative represents itself.
    """
    representative = np.arange(count)
    edges = edges[np.argsort(edges[:, 0], kind="stable")]
    for group in np.split(edges, np.flatnonzero(np.diff(edges[:, 0])) + 1) if len(edges) else ():
        first, copies = group[0, 0], group[:, 1]
        if representative[first] == first:
            representative[copies[representative[copies] == copies]] = first
    return representative


def link_groups(representative: Ints, edges: Ints, thumbnails: Thumbnails, agreement: float) -> Ints:
    """More rows like `edges`: members of a group that are copies of the representative of a better group.

    Groups that share an edge were found in different cells. Only edges that pixels alone prove count.
    """
    links = np.unique(np.sort(representative[edges[edges[:, 2] > 0, :2]], axis=1), axis=0)
    links = links[links[:, 0] != links[:, 1]]
    order = np.argsort(representative, kind="stable")
    starts, ends = (np.searchsorted(representative[order], links[:, 1], side) for side in ("left", "right"))
    pairs = [np.zeros((0, 3), np.int64)]
    for (first, _), start, end in zip(links, starts, ends, strict=True):
        members = order[start:end]
        copies = members[compare_pictures(thumbnails[first], thumbnails[members]) >= agreement]
        pairs.append(np.stack([np.full(len(copies), first), copies, np.ones_like(copies)], axis=1))
    return np.concatenate(pairs)
