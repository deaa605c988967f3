"""What a cut by uncertainty or by the number of matches removes, what it costs, and the cut that meets a limit on that.

A caption fails in retrieval if another medium of the reference sample fits it better than its own, and a medium if
another caption does. Intervals are Wilson's; the captions of one medium count as one observation.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from auditor.audit_folder.column_numbers import read_numbers
from auditor.keep.thresholds import NORMAL_95, Cuts, ThresholdError, check_shares, format_cut_share
from auditor.query.database import AuditDatabase
from auditor.query.rules import Rules, build_bound_sql, parse_limit
from auditor.schema import FAILURES, FLAGS
from auditor.vectors import Bools

REMOVED_SHARES = (0.5, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01)  # of the cuts that are shown by default
DIGITS = 5  # significant ones of a cut
TOPICS = 2  # that lose most


@dataclass(frozen=True, slots=True)
class UncertaintyCut:
    """The effect of removing the rows with more than `at` in `column`; `low` and `high` are 90% intervals.

    A share of no rows is None.
    """

    column: str
    at: float  # the largest value that is kept
    rows: int
    removed: int
    removed_share: float
    fails: float | None  # share of all rows that fail in retrieval
    fails_low: float | None
    fails_high: float | None
    fails_removed: float | None
    fails_removed_low: float | None
    fails_removed_high: float | None
    fails_kept: float | None
    fails_kept_low: float | None
    fails_kept_high: float | None
    lost: float | None  # share of the rows that do not fail that is removed
    lost_low: float | None
    lost_high: float | None
    flags: dict[str, int]  # removed rows with each flag
    topics: dict[int, float]  # the topics that lose most, and the share that each loses

    SHARES: ClassVar = {"removed fail": "fails_removed", "kept fail": "fails_kept", "others lost": "lost"}

    def __float__(self) -> float:
        return self.at

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def tabulate(self) -> dict[str, Any]:
        """The cut as a row of a table for people."""
        return {
            "cut": f"{self.at:g}",
            "removed": self.removed,
            "share": f"{self.removed_share:.1%}",
            **{title: format_cut_share(self, name) for title, name in self.SHARES.items()},
            **self.flags,
            "topics": ", ".join(f"{topic} ({share:.0%})" for topic, share in self.topics.items()),
        }

    def describe_failures(self) -> str:
        way = "another medium fits the caption" if self.column.endswith("text") else "another caption fits the medium"
        return f"{self.rows:,} pairs, {format_cut_share(self, 'fails')} of them fail in retrieval: {way} better"


def measure_cuts(
    database: AuditDatabase, column: str, at: Sequence[float | str] = (), where: str | None = None
) -> Cuts[UncertaintyCut]:
    """Measure the cuts at some values of a column, or those that remove 50, 30, 20, 10, 5, 2 and 1% of the rows."""
    table = build_table_sql(database, column, where)
    cuts = sorted({parse_limit(f"max_{column}", cut) for cut in at})
    if not cuts:
        values = database.value(f"SELECT quantile_disc({column}, {[1 - x for x in REMOVED_SHARES]}) FROM {table}")
        cuts = sorted({round_up(value) for value in values})
    step = " + ".join(f"CAST(NOT {build_bound_sql(column, '<=', cut)} AS INTEGER)" for cut in cuts)
    flags = ", ".join(f"count(*) FILTER ({flag}) AS {flag}" for flag in FLAGS)
    groups = database.run(
        f"SELECT {step} AS step, coalesce(topic, -1) AS topic, count(*) AS rows, "
        f"count(*) FILTER ({FAILURES[column]} > 0) AS fails, {flags} FROM {table} GROUP BY ALL ORDER BY ALL"
    )
    counts = {name: read_numbers(groups[name]) for name in groups.column_names}
    weight = compute_observation_weight(database)
    return Cuts(build_cut(column, cut, counts, counts["step"] > number, weight) for number, cut in enumerate(cuts))


def measure_limits(database: AuditDatabase, rules: Rules) -> list[UncertaintyCut]:
    """The cut of each rule that limits such a column, by itself and row by row; none for an older audit."""
    limits = {column: limit for column, comparison, limit in rules.bounds().values() if comparison == "<="}
    try:
        return [measure_cuts(database, column, [limit])[0] for column, limit in limits.items() if column in FAILURES]
    except ThresholdError:
        return []


def build_table_sql(database: AuditDatabase, column: str, where: str | None) -> str:
    """SQL of the usable rows with the column and with its failures."""
    if column not in FAILURES:
        raise ThresholdError(f"by: one of p_mismatch, {', '.join(FAILURES)}, not {column!r}")
    condition, failure = database.where(where), FAILURES[column]
    usable = f"status = 'ok' AND {condition} AND {column} IS NOT NULL AND {failure} IS NOT NULL"
    table = f"{database.table(condition, column, failure)} WHERE {usable}"
    if not database.value(f"SELECT count(*) FROM {table}"):
        raise ThresholdError(f"no row has {column} and {failure}: `auditor score` adds them to an older audit")
    return table


def round_up(value: float) -> float:
    """The next number of a few digits, so that the cut removes no more."""
    digits = DIGITS - 1 - math.floor(math.log10(abs(value) or 1))
    return round(math.ceil(round(value * 10.0**digits, 6)) / 10.0**digits, max(digits, 0))


def compute_observation_weight(database: AuditDatabase) -> float:
    """The number of media for each pair."""
    kinds = [kind for kind in database.statistics.values() if isinstance(kind, dict)]
    media, pairs = (sum(kind.get(name) or 0 for kind in kinds) for name in ("media", "pairs"))
    return min(media / pairs, 1.0) if media and pairs else 1.0


def build_cut(column: str, cut: float, counts: dict[str, Any], is_removed: Bools, weight: float) -> UncertaintyCut:
    def total(name: str, chosen: Any = True) -> int:
        return int(counts[name].sum(where=chosen))

    rows, fails, removed, removed_fails = (total(n, which) for which in (True, is_removed) for n in ("rows", "fails"))
    parts = {
        "fails": (fails, rows),
        "fails_removed": (removed_fails, removed),
        "fails_kept": (fails - removed_fails, rows - removed),
        "lost": (removed - removed_fails, rows - fails),
    }
    shares: dict[str, Any] = {}
    for name, (part, whole) in parts.items():
        low, high = wilson_interval(part * weight, whole * weight, NORMAL_95) if whole else (None, None)
        shares |= {name: part / whole if whole else None, f"{name}_low": low, f"{name}_high": high}
    topics = {int(topic): counts["topic"] == topic for topic in np.unique(counts["topic"][is_removed]) if topic >= 0}
    losses = [(topic, total("rows", here & is_removed), total("rows", here)) for topic, here in topics.items()]
    losses.sort(key=lambda loss: -wilson_interval(*loss[1:])[0])  # the share of a small topic is chance
    flags = {flag: total(flag, is_removed) for flag in FLAGS}
    worst = {topic: part / whole for topic, part, whole in losses[:TOPICS]}
    return UncertaintyCut(column, cut, rows, removed, removed / rows, **shares, flags=flags, topics=worst)


def choose_uncertainty_cut(
    database: AuditDatabase,
    column: str,
    *,
    lose_at_most: float | None = None,
    expect_precision: float | None = None,
    where: str | None = None,
) -> UncertaintyCut:
    """The cut that removes the most while it removes at most this share of the rows that do not fail in retrieval.

    The limit holds with 95% confidence: the upper end of the interval of the share lost stays below it.
    """
    if expect_precision is not None or lose_at_most is None:
        raise ThresholdError(f"a cut by {column} is chosen by lose_at_most; expect_precision is for p_mismatch only")
    check_shares(lose_at_most=lose_at_most)
    table, weight = build_table_sql(database, column, where), compute_observation_weight(database)
    good = f"{table} AND {FAILURES[column]} = 0"
    count = database.value(f"SELECT count(*) FROM {good}")

    def bound_loss(lost: int) -> float:
        return wilson_interval(lost * weight, count * weight, NORMAL_95)[1]

    kept = count - bisect_right(range(count), lose_at_most, key=bound_loss) + 1  # rows that do not fail
    largest = f"max({column}) FROM {table}"
    if kept <= count:  # half a row avoids rounding
        largest = f"quantile_disc({column}, {(kept - 0.5) / count!r}) FROM {good}"
    cut = database.value(f"SELECT {largest}")
    return measure_cuts(database, column, [round_up(cut)], where)[0]


def wilson_interval(successes: float, trials: float, z: float = 1.959964) -> tuple[float, float]:
    """Wilson's interval for a share, accurate for small counts and near 0 and 1."""
    if not trials:
        return 0.0, 1.0
    share = successes / trials
    scale = 1 + z * z / trials
    middle = (share + z * z / (2 * trials)) / scale
    half = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials)) / scale
    return max(0.0, middle - half), min(1.0, middle + half)
