"""What is declared of a column."""

from dataclasses import dataclass
from typing import Literal

Type = Literal["string", "bool", "int16", "int32", "int64", "float32", "float64"]
Group = Literal["fact", "score", "flag", "review"]
# headline: measured for every usable pair and shown wherever there are numbers; measurement: for every usable pair too,
# with percentiles, but shown only where it is asked for; detail: shown on the page of a row that has it.
Use = Literal["headline", "measurement", "detail", "other"]

RANGES: dict[str, tuple[float, float]] = {"probability": (0, 1), "share": (0, 1), "cosine": (-1, 1)}  # by unit


@dataclass(frozen=True, slots=True)
class Column:
    """One column of `samples`."""

    name: str
    type: Type
    label: str  # for people
    meaning: str  # one line for people
    group: Group = "fact"
    suspicious: Literal["high", "low"] | None = None  # which end of it; None: neither
    unit: str = ""
    use: Use = "other"
    place: int = 99  # among the headlines, the most telling first
    in_memory: bool = False  # the dashboard keeps it in memory
    unique: bool = False  # hardly a value repeats: stored without a dictionary
    hexadecimal: bool = False  # of high entropy, in hex: stored with zstd
    definition: str = ""  # how it is computed, for docs/columns.md
    short: str = ""  # label where there is little room
    sentence: str = ""  # what one value says; may hold {value}, {percent} and {kind}
    rule: str = ""  # help of the option of `auditor filter` that bounds it; empty: there is none
    logarithmic: bool = False  # axis of its histograms
    ties_by: str = ""  # the column that tells rows apart whose values are equal, as 0 and 1 often are
    within: tuple[float, float] | None = None  # the values it can have, where its unit does not say

    @property
    def rule_name(self) -> str:
        """max_p_mismatch, min_similarity: the rule keeps the end that is not suspicious."""
        return f"{'max' if self.suspicious == 'high' else 'min'}_{self.name}"

    @property
    def range(self) -> tuple[float, float] | None:
        """The least and the largest value that it can have, where there are such."""
        return self.within or RANGES.get(self.unit)
