"""The declaration of one column."""

from dataclasses import dataclass
from typing import Literal

Type = Literal["string", "bool", "int16", "int32", "int64", "float32", "float64"]
Group = Literal["fact", "score", "flag", "review"]
# headline: measured for every usable pair and shown next to every list of numbers; measurement: also measured for every
# usable pair, with percentiles, but shown only on request; detail: shown on the page of a row that has a value.
Use = Literal["headline", "measurement", "detail", "other"]

UNIT_RANGES: dict[str, tuple[float, float]] = {"probability": (0, 1), "share": (0, 1), "cosine": (-1, 1)}


@dataclass(frozen=True, slots=True)
class Column:
    """One column of `samples`."""

    name: str
    type: Type
    label: str  # display name
    meaning: str  # one line for users
    group: Group = "fact"
    suspicious: Literal["high", "low"] | None = None  # the suspicious end of its values, if there is one
    unit: str = ""
    use: Use = "other"
    cached: bool = False  # the dashboard keeps the column in memory, although no rule and no list of numbers needs it
    unique: bool = False  # values rarely repeat: stored without a dictionary
    hexadecimal: bool = False  # high-entropy hex digits: stored with zstd
    definition: str = ""  # how the column is computed, for docs/columns.md
    short: str = ""  # label for narrow places
    sentence: str = ""  # reads one value out loud; may contain {value}, {percent} and {kind}
    rule: str = ""  # help of the `auditor filter` option that bounds the column; empty: no such option
    logarithmic: bool = False  # histogram axis
    failure: str = ""  # column above 0 where the row fails in retrieval; `auditor thresholds --by` measures such cuts
    tie_breaker: str = ""  # column that orders rows with equal values: 0 and 1 are frequent
    bounds: tuple[float, float] | None = None  # range of values if the unit does not imply it

    @property
    def in_memory(self) -> bool:
        return self.cached or bool(self.rule) or self.use in ("headline", "measurement")

    @property
    def rule_name(self) -> str:
        """For example max_p_mismatch or min_similarity: the rule keeps the end that is not suspicious."""
        return f"{'max' if self.suspicious == 'high' else 'min'}_{self.name}"

    @property
    def value_range(self) -> tuple[float, float] | None:
        """The smallest and largest possible value, or None if unbounded."""
        return self.bounds or UNIT_RANGES.get(self.unit)
