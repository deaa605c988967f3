"""What a cut by uncertainty or by the number of matches removes, what it costs, and the cut that meets a limit on that.

A caption fails in retrieval if another medium of the reference sample fits it better than its own, and a medium if
another caption does. A good cut removes pairs that fail and few of the others. Intervals are Wilson's; the captions
of one medium count as one observation, because they tend to fail together.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from auditor.audit_folder.side_files import read_topics
from auditor.keep.thresholds import NORMAL_95, ThresholdError, check_shares
from auditor.query.corpus_groups import format_topic_name
from auditor.query.database import AuditDatabase
from auditor.query.distributions import find_value_range
from auditor.query.rules import Rules, build_bound_sql, parse_limit
from auditor.schema import COLUMNS, FAILURES, FLAGS
from auditor.vectors import Bools

REMOVED_SHARES = (0.5, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01)  # of the cuts that are shown by default
BINS = 2000  # of the values, from which a cut is chosen
TINY = 1e-9
DIGITS = 5  # significant ones of a cut
TOPICS = 2  # that lose most


@dataclass(frozen=True, slots=True)
class TopicLoss:
    topic: int
    name: str
    rows: int
    removed: int


@dataclass(frozen=True, slots=True)
class UncertaintyCut:
    """The effect of removing the rows with more than `at` in `column`; `low` and `high` are 90% intervals.

    A share is None if there are no rows of which it could be one.
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
    flags: dict[str, int]  # rows among the removed that have each flag
    topics: list[TopicLoss]  # those that lose the largest share of their rows

    def __float__(self) -> float:
        return self.at

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def measure_cuts(
    database: AuditDatabase, column: str, at: Sequence[float | str] = (), where: str | None = None
) -> list[UncertaintyCut]:
    """Measure the cuts at some values of a column, or those that remove 50, 30, 20, 10, 5, 2 and 1% of the rows."""
    table = build_table_sql(database, column, where)
    cuts = sorted({parse_limit(f"max_{column}", cut) for cut in at}) or list_shown_cuts(database, column, table)
    step = " + ".join(f"CAST(NOT {build_bound_sql(column, '<=', cut)} AS INTEGER)" for cut in cuts)
    flags = ", ".join(f"count(*) FILTER ({flag}) AS {flag}" for flag in FLAGS)
    groups = database.run(
        f"SELECT {step} AS step, coalesce(topic, -1) AS topic, count(*) AS rows, "
        f"count(*) FILTER ({FAILURES[column]} > 0) AS fails, {flags} FROM {table} GROUP BY ALL ORDER BY ALL"
    )
    counts = {name: groups[name].to_numpy() for name in groups.column_names}
    names, weight = read_topics(database.files.folder), compute_observation_weight(database)
    return [build_cut(column, cut, counts, counts["step"] > number, weight, names) for number, cut in enumerate(cuts)]


def measure_limits(database: AuditDatabase, rules: Rules) -> list[UncertaintyCut]:
    """The cut of each rule that limits such a column, by itself and row by row; none if the audit has no failures."""
    cuts = {column: limit for column, comparison, limit in rules.bounds().values() if comparison == "<="}
    try:
        return [measure_cuts(database, column, [cut])[0] for column, cut in cuts.items() if column in FAILURES]
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


def list_shown_cuts(database: AuditDatabase, column: str, table: str) -> list[float]:
    places = [1 - share for share in REMOVED_SHARES]
    return sorted({round_up(cut) for cut in database.value(f"SELECT quantile_disc({column}, {places}) FROM {table}")})


def round_up(value: float) -> float:
    """The next number of a few digits, so that the cut removes no more."""
    digits = DIGITS - 1 - math.floor(math.log10(abs(value) or 1))
    return round(math.ceil(round(value * 10.0**digits, 6)) / 10.0**digits, max(digits, 0))


def compute_observation_weight(database: AuditDatabase) -> float:
    """The number of media for each pair."""
    kinds = [kind for kind in (database.manifest.get("statistics") or {}).values() if isinstance(kind, dict)]
    media, pairs = (sum(kind.get(name) or 0 for kind in kinds) for name in ("media", "pairs"))
    return min(media / pairs, 1.0) if media and pairs else 1.0


def build_cut(
    column: str, cut: float, counts: dict[str, Any], is_removed: Bools, weight: float, topic_names: list[list[str]]
) -> UncertaintyCut:
    rows, fails = counts["rows"], counts["fails"]
    removed, removed_fails = int(rows[is_removed].sum()), int(fails[is_removed].sum())
    whole, all_fails = int(rows.sum()), int(fails.sum())
    parts = {
        "fails": (all_fails, whole),
        "fails_removed": (removed_fails, removed),
        "fails_kept": (all_fails - removed_fails, whole - removed),
        "lost": (removed - removed_fails, whole - all_fails),
    }
    shares: dict[str, Any] = {}
    for name, (part, total) in parts.items():
        low, high = wilson_interval(part * weight, total * weight, NORMAL_95) if total else (None, None)
        shares |= {name: part / total if total else None, f"{name}_low": low, f"{name}_high": high}
    losses = []
    for topic in np.unique(counts["topic"][is_removed & (counts["topic"] >= 0)]):
        of_topic = counts["topic"] == topic
        name = format_topic_name(topic_names, int(topic))
        losses.append(TopicLoss(int(topic), name, int(rows[of_topic].sum()), int(rows[of_topic & is_removed].sum())))
    losses.sort(key=lambda loss: -wilson_interval(loss.removed, loss.rows)[0])  # the share of a small topic is chance
    flags = {flag: int(counts[flag][is_removed].sum()) for flag in FLAGS}
    return UncertaintyCut(column, cut, whole, removed, removed / whole, **shares, flags=flags, topics=losses[:TOPICS])


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
    table = build_table_sql(database, column, where)
    bins = count_good_rows(database, column, table)
    weight, good, lost = compute_observation_weight(database), sum(count for _, count in bins), 0
    cut = bins[0][0]
    for (value, _), (_, removed) in zip(bins[1:], bins, strict=False):
        lost += removed
        if wilson_interval(lost * weight, good * weight, NORMAL_95)[1] > lose_at_most:
            break
        cut = value
    return measure_cuts(database, column, [round_up(cut)], where)[0]


def count_good_rows(database: AuditDatabase, column: str, table: str) -> list[tuple[float, int]]:
    """The largest value of each narrow range of values and its number of rows that do not fail, highest first."""
    low, high = find_value_range(database, column)
    value = f"CAST({column} AS DOUBLE)"
    if COLUMNS[column].logarithmic:
        low, high, value = math.log(max(low, TINY)), math.log(max(high, TINY)), f"ln(greatest({value}, {TINY}))"
    bins = database.rows(
        f"SELECT floor(({value} - {low!r}) / {max(high - low, TINY)!r} * {BINS}) AS bin, max({column}) AS value, "
        f"count(*) FILTER ({FAILURES[column]} = 0) AS good FROM {table} GROUP BY bin ORDER BY bin DESC"
    )
    return [(row["value"], row["good"]) for row in bins]


def wilson_interval(successes: float, trials: float, z: float = 1.959964) -> tuple[float, float]:
    """Wilson's interval for a share, accurate for small counts and near 0 and 1."""
    if not trials:
        return 0.0, 1.0
    share = successes / trials
    scale = 1 + z * z / trials
    middle = (share + z * z / (2 * trials)) / scale
    half = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials)) / scale
    return max(0.0, middle - half), min(1.0, middle + half)
