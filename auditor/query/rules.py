"""What the flags and the filter rules mean, each defined once, as SQL over the measurements of an audit.

A flag says "suspicious", a rule says "keep"; both are false where a measurement is missing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from auditor.errors import AuditorError
from auditor.query.sandbox import literal, name

# Columns whose small values are the good ones; of all others the large ones are.
LOW_IS_GOOD = frozenset(
    {
        "uncertainty_visual",
        "uncertainty_text",
        "mean_similarity_visual",
        "mean_similarity_text",
        "matches_visual",
        "matches_text",
        "p_mismatch",
        "frame_spread",
    }
)
# threshold in the manifest -> the measurement it cuts, by flag. `paper_*` is the definition of the PAU paper (by u).
FLAG_MEASURES = {
    "mismatch": "p_mismatch",
    "ambiguous_visual": "matches_visual",
    "ambiguous_text": "matches_text",
}
PAPER_MEASURES = {"ambiguous_visual": "uncertainty_visual", "ambiguous_text": "uncertainty_text"}


class RuleError(AuditorError):
    """A rule that makes no sense."""


# One number for all rows, or one for each kind of medium: what is much for 200 clips is little for 2,000 photos.
Threshold = float | Mapping[str, float] | None


def flag_sql(thresholds: Mapping[str, Threshold]) -> dict[str, str]:
    """SQL of each flag. A threshold named after a measurement (`uncertainty_text`) cuts that one instead."""
    flags = {}
    for flag, measure in FLAG_MEASURES.items():
        paper = PAPER_MEASURES.get(flag)
        if paper and thresholds.get(paper) is not None:
            flags[flag] = at_least(paper, thresholds[paper])
        else:
            flags[flag] = at_least(measure, thresholds.get(flag))
    return flags


def at_least(column: str, threshold: Threshold) -> str:
    if threshold is None:
        return "FALSE"
    if isinstance(threshold, Mapping):
        kinds = [f"(kind = {literal(kind)} AND {at_least(column, cut)})" for kind, cut in sorted(threshold.items())]
        return f"coalesce({' OR '.join(kinds) or 'FALSE'}, FALSE)"
    return bound_sql(column, ">=", threshold)


@dataclass(frozen=True, slots=True)
class Rules:
    """What to keep: all that are given must hold. `keep_top` is a share ('30%', 0.3) of the usable rows or a count."""

    max_p_mismatch: float | None = None
    max_uncertainty_visual: float | None = None
    max_uncertainty_text: float | None = None
    max_matches_visual: float | None = None
    max_matches_text: float | None = None
    min_similarity: float | None = None
    keep_top: str | float | int | None = None
    by: str | None = None
    where: str | None = None
    no_duplicates: bool = False

    def __post_init__(self) -> None:
        if (self.keep_top is None) != (self.by is None):
            raise RuleError("keep_top and by go together: --keep-top 30% --by similarity")
        if self.keep_top is not None:
            parse_share(self.keep_top)

    @classmethod
    def of(cls, given: "Rules | Mapping[str, Any] | None") -> "Rules":
        """Rules from keyword arguments, unknown ones refused."""
        if isinstance(given, Rules):
            return given
        known = {field.name for field in fields(cls)}
        unknown = set(given or {}) - known
        if unknown:
            raise RuleError(f"there is no rule {sorted(unknown)[0]!r}; the rules are {', '.join(sorted(known))}")
        return cls(**(given or {}))

    def bounds(self) -> dict[str, tuple[str, str, float]]:
        """Rule -> (column, comparison that keeps, threshold) for the rules that are plain bounds."""
        found = {}
        for field in fields(self):
            side, _, column = field.name.partition("_")
            value = getattr(self, field.name)
            if side in {"max", "min"} and value is not None:
                found[field.name] = (column, "<=" if side == "max" else ">=", float(value))
        return found

    def to_dict(self) -> dict[str, Any]:
        """The rules that are set."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {rule: value for rule, value in values.items() if value is not None and value is not False}

    def command_line(self) -> list[str]:
        """The same rules as options of `auditor filter`."""
        options = []
        for rule, value in self.to_dict().items():
            options.append("--" + rule.replace("_", "-"))
            if value is not True:
                options.append(str(value))
        return options


def bound_sql(column: str, comparison: str, threshold: float) -> str:
    # measurements are 32-bit: compared as such, as NumPy does, and so that Parquet statistics can skip row groups
    return f"coalesce({name(column)} {comparison} CAST('{float(threshold)}' AS FLOAT), FALSE)"


def parse_share(given: str | float | int) -> float | int:
    """'30%' and 0.3 -> 0.3 (a share); 1000 and '1000' -> 1000 (a count)."""
    text = str(given).strip()
    try:
        if text.endswith("%"):
            value: float | int = float(text[:-1]) / 100
        elif any(mark in text for mark in ".e"):
            value = float(text)
        else:
            value = int(text)
    except ValueError:
        raise RuleError(f"{given!r} is neither a share like 30% nor a count") from None
    if isinstance(value, float) and not 0 < value <= 1:
        raise RuleError(f"{given!r} is not a share between 0 and 100%")
    if isinstance(value, int) and value < 1:
        raise RuleError(f"{given!r} keeps nothing")
    return value
