"""Duplicate groups of media in memory, by the functions that the search on disk uses."""

import numpy as np

from auditor.score.statistics.duplicates import (
    assign_cells,
    choose_cell_count,
    estimate_copy_threshold,
    fit_cells,
    group_cell,
    join_groups,
)
from auditor.vectors import Floats, Ints


def group_duplicates(visual: Floats, marks: Ints, cells: Floats | None = None) -> Ints:
    """For each medium, the index of the first of its group: its own if it repeats none."""
    threshold = estimate_copy_threshold(visual)
    centroids = fit_cells(visual, choose_cell_count(len(visual))) if cells is None else cells
    number, cell, home = assign_cells(visual, centroids, threshold)
    groups = np.arange(len(visual))
    for current in np.unique(cell):
        inside = np.flatnonzero(cell == current)
        members = number[inside]
        first = members[group_cell(visual[members], marks[members], home[inside], threshold)]
        groups = join_groups(groups, members, first)
    return groups
