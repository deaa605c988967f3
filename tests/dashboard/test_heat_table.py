"""Cells of a table, coloured by how bad their numbers are."""

from dashboard.heat_table import shades


def test_heat_is_deeper_where_numbers_are_worse() -> None:
    import pandas as pd

    assert [depth(style) for style in shades(pd.Series([1.0, 21, 41]), False)] == [0, 0.375, 0.75]
    assert [depth(style) for style in shades(pd.Series([0.4, 0.2]), True)] == [0, 0.75]
    assert depth(shades(pd.Series([2.0, 2.1]), False)[1]) < 0.01  # parts that hardly differ


def depth(style: str) -> float:
    return float(style.rpartition(",")[2].rstrip(")")) if style else 0.0
