"""Builds the SQL condition of the filters on a page, and the ends and steps of its sliders."""

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from auditor.query.corpus_groups import build_facet_condition, list_facets
from auditor.query.database import AuditDatabase
from auditor.query.distributions import find_value_range
from auditor.query.sandbox import quote_literal
from auditor.schema import COLUMNS, MARKS

DISAGREEMENT = "reviewers disagree"


@dataclass(frozen=True)
class RowSelection:
    """The filters of a page; a row meets all that are set."""

    facets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # values by facet, as of count_facets
    review: str | None = None  # a mark, 'none', 'reviewed' or DISAGREEMENT
    text: str = ""
    where: str = ""
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def condition(self, database: AuditDatabase, without: str = "") -> str | None:
        """The filters as SQL, without one facet; the user's own condition passes the sandbox before it joins them."""
        facets = set(list_facets(database)) - {without}
        values = {facet: values for facet, values in self.facets.items() if facet in facets}
        parts = [*(build_facet_condition(database, *item) for item in values.items()), *self._facts()]
        for column, ends in self.ranges.items():
            low, high = (quote_literal(float(end)) for end in ends)
            parts.append(f"{database.column(column)} BETWEEN {low} AND {high}")
        if self.where.strip():
            parts.append(database.check_condition(self.where))
        return " AND ".join(f"({part})" for part in parts) or None

    def _facts(self) -> list[str]:
        parts = []
        if self.review == DISAGREEMENT:
            parts.append(
                "EXISTS (SELECT 1 FROM reviews WHERE reviews.uid = samples.uid "
                "AND reviews.caption_index = samples.caption_index HAVING count(DISTINCT mark) > 1)"
            )
        elif self.review in MARKS:
            parts.append(f"review = {quote_literal(self.review)}")
        elif self.review:
            parts.append("review IS NULL" if self.review == "none" else "review IS NOT NULL")
        if self.text.strip():
            parts.append(f"contains(lower(caption), lower({quote_literal(self.text.strip())}))")
        return parts


class SliderBounds(NamedTuple):
    """Round numbers that enclose every value of a column, and a sensible step between them."""

    low: float
    high: float
    step: float


def find_slider_bounds(database: AuditDatabase, column: str) -> SliderBounds:
    low, high = find_value_range(database, column)
    width = high - low
    step = 10.0 ** math.floor(math.log10(width / 200)) if width > 0 else 0.001
    digits = max(0, -math.floor(math.log10(step)))
    first, last = math.floor(low / step) * step, math.ceil(high / step) * step
    return SliderBounds(round(first, digits), round(last, digits), round(step, digits) or 1.0)


def list_slider_steps(database: AuditDatabase, column: str) -> list[float]:
    """The values that a limit on a column can take.

    Thousandths for a probability, round numbers for a count, even steps for anything else.
    """
    if COLUMNS[column].unit == "probability":
        return [step / 1000 for step in range(1001)]
    if COLUMNS[column].logarithmic:
        return list_round_steps(database, column)
    low, high, step = find_slider_bounds(database, column)
    return [round(low + step * number, 6) for number in range(round((high - low) / step) + 1)]


def list_round_steps(database: AuditDatabase, column: str) -> list[float]:
    """1, 2, 3, 5, 7, 10, 15, ... up to the first number above every value of the column."""
    _, high = find_value_range(database, column)
    steps = [lead * 10**power for power in range(8) for lead in (1, 1.5, 2, 3, 5, 7)]
    whole = [float(step) for step in steps if step == round(step)]
    return whole[: bisect_right(whole, high) + 1]


def round_up_probability(cut: float) -> str:
    """The slider step at or just above a cut, which never loses more pairs than the cut."""
    return f"{math.ceil(round(cut * 1000, 6)) / 1000:g}"
