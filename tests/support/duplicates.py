"""Duplicate groups of media in memory, by the functions that the search on disk uses."""

import numpy as np

from auditor.score.statistics.duplicates import (
    CellMedia,
    CopyRule,
    assign_cells,
    choose_cell_count,
    choose_representatives,
    estimate_copy_threshold,
    find_copies,
    fit_cells,
)
from auditor.vectors import Floats, Ints


def group_duplicates(visual: Floats, marks: Ints, cells: Floats | None = None) -> Ints:
    """For each medium, the index of the first of its group, by vectors alone: its own if it repeats none."""
    threshold = estimate_copy_threshold(visual)
    rule = CopyRule(threshold, threshold, None)
    centroids = fit_cells(visual, choose_cell_count(len(visual))) if cells is None else cells
    number, cell, home = assign_cells(visual, centroids, threshold)
    edges = [np.zeros((0, 2), np.int64)]
    for current in np.unique(cell):
        inside = np.flatnonzero(cell == current)
        members = number[inside]
        edges.append(members[find_copies(list_cell(visual[members], marks[members], home[inside]), rule)[:, :2]])
    return choose_representatives(len(visual), np.concatenate(edges))


def list_cell(vectors: Floats, marks: Ints, home: np.ndarray, thumbnails: np.ndarray | None = None) -> CellMedia:
    """Media of a cell that are all in files of their own."""
    blank = np.zeros((len(vectors), 1024), np.uint8)
    return CellMedia(vectors, blank if thumbnails is None else thumbnails, marks, np.arange(len(vectors)), home)
