"""A table whose cells are coloured by how bad their numbers are, in colours that both themes can show."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

DEEPEST = 0.75  # opacity
ORANGE, BLUE = "232, 116, 59", "76, 139, 217"
NARROWEST = {False: 10.0, True: 0.1}  # a range of so many %, or so much similarity: parts that hardly differ stay pale
WORSE_UP = ("unusable", "mismatched", "ambiguous")
WORSE_DOWN = ("similarity",)


def heated(records: Sequence[Mapping[str, Any]]) -> Any:
    """Records as a styled frame: shares (in %) from the best part to the worst, similarity as well."""
    frame = pd.DataFrame(list(records))
    style = frame.style
    for column in (*WORSE_UP, *WORSE_DOWN):
        if column in frame:
            style = style.apply(shades, subset=[column], falling=column in WORSE_DOWN)
    return style


def shades(values: "pd.Series[float]", falling: bool) -> list[str]:
    """CSS of each cell of a column."""
    numbers = pd.to_numeric(values)
    low, high = numbers.min(), numbers.max()
    width = max(high - low, NARROWEST[falling])
    depth = ((high - numbers) if falling else (numbers - low)) / width
    colour = BLUE if falling else ORANGE
    return [f"background-color: rgba({colour}, {DEEPEST * d:.3f})" if d == d and d > 0 else "" for d in depth]
