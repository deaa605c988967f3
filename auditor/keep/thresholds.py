"""What each cut-off of p_mismatch removes, what that costs, and the cut-off that meets a limit on either.

p_mismatch is a probability, so its sums are expectations: the mean of p over the removed pairs is the precision, and
the sum of 1 - p over them is the number of good pairs lost. Intervals combine the resampled curves of the mismatch
model in the manifest with chance; tests/bench/threshold_coverage.py measures their coverage. One aggregation of the
audit is enough, so ten million rows take about a second.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from auditor.audit_folder.column_numbers import read_numbers
from auditor.errors import AuditError, AuditorError
from auditor.notebook_view import NotebookView
from auditor.query.database import AuditDatabase
from auditor.query.summary import Noise
from auditor.score.statistics.mismatch import INTERVAL, MismatchModel

T = TypeVar("T")
Doubles = npt.NDArray[np.float64]

NORMAL_95 = 1.645
CURVE = 0.3  # standard error of the curve's log odds, from simulated corpora: tests/bench/threshold_coverage.py
STEPS = 1000  # cut-offs are multiples of 1/1000
SHOWN = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
NOTHING = (STEPS + 1) / STEPS  # the cut-off above 1, which removes nothing
SCORE_STEPS = 200  # pairs within a step of p are divided by score, because very many have p near 0 or 1


class ThresholdError(AuditorError):
    """An invalid limit, or an audit without p_mismatch."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The effect of removing pairs with p_mismatch of at least `p`; `low` and `high` are 90% intervals.

    `precision` is None if nothing is removed, `left` if nothing is kept.
    """

    p: float
    removed: int
    removed_share: float
    precision: float | None  # expected share of mismatched pairs among the removed
    precision_low: float | None
    precision_high: float | None
    caught: float  # expected share of the mismatched pairs that are removed
    caught_low: float
    caught_high: float
    lost: float  # expected share of the good pairs that are removed
    lost_low: float
    lost_high: float
    left: float | None  # expected share of mismatched pairs among the kept
    left_low: float | None
    left_high: float | None

    SHARES: ClassVar = {"mismatched": "precision", "caught": "caught", "good lost": "lost", "left": "left"}

    @property
    def max_p_mismatch(self) -> float:
        """The largest p that is kept, as filters express the same cut."""
        return float(np.nextafter(np.float32(self.p), np.float32(0)))

    def __float__(self) -> float:
        return self.max_p_mismatch

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def tabulate(self) -> dict[str, Any]:
        """The cut as a row of a table for people."""
        row: dict[str, Any] = {"cut": f"{self.p:g}", "removed": self.removed, "share": f"{self.removed_share:.1%}"}
        return row | {title: format_cut_share(self, name) for title, name in self.SHARES.items()}


class Cuts(list[T], NotebookView):
    """Cuts of one column, from low to high."""


@dataclass(frozen=True)
class PairCounts:
    """Pairs aggregated by p and score: everything that cut-offs need of an audit."""

    step: npt.NDArray[np.int64]  # (T,) floor(p * STEPS)
    pairs: Doubles  # (T,)
    p: Doubles  # (T,) mean p of these pairs
    resampled: Doubles  # (B, T) mean p by the resampled curves; B may be 0
    unscored: int = 0  # usable pairs without p_mismatch, which no cut-off removes


def count_pairs(database: AuditDatabase, where: str | None = None) -> PairCounts:
    models = load_mismatch_models(database.statistics)
    scores = [part.score for model in models.values() for part in (model, *model.groups.values())]
    width = min((float(np.ptp(score)) for score in scores), default=1.0) / SCORE_STEPS or 1.0
    group = "calibration_group" if any(model.groups for model in models.values()) else "NULL"
    condition = database.where(where)
    table = database.run(
        f"SELECT kind, {group} AS calibrated, CAST(floor(p_mismatch * {STEPS}) AS BIGINT) AS step, "
        f"CAST(floor(mismatch_score / {width!r}) AS BIGINT) AS place, count(*) AS pairs, "
        f"avg(p_mismatch) AS p, avg(mismatch_score) AS score FROM {database.table(condition, group)} "
        f"WHERE status = 'ok' AND {condition} GROUP BY ALL ORDER BY ALL"
    )
    values = {name: read_numbers(table[name]) for name in ("step", "pairs", "p", "score")}
    scored = np.flatnonzero(~np.isnan(values["p"]))
    if not len(scored):
        raise ThresholdError("no row of this audit has p_mismatch: it has too few pairs, or it is not scored yet")
    step, pairs, p, score = (numbers[scored] for numbers in values.values())
    kinds, calibrated = (np.array(table[name].to_pylist(), object)[scored].tolist() for name in ("kind", "calibrated"))
    groups = list(zip(kinds, calibrated, strict=True))
    counts = build_pair_counts(groups, step.astype(np.int64), pairs.astype(np.float64), p, score, models)
    return replace(counts, unscored=int(values["pairs"].sum() - pairs.sum()))


def load_mismatch_models(statistics: Mapping[str, Any]) -> dict[str, MismatchModel]:
    saved_models = {kind: saved for kind, saved in statistics.items() if isinstance(saved, dict) and saved.get("curve")}
    try:
        return {kind: MismatchModel.from_dict(saved) for kind, saved in saved_models.items()}
    except (KeyError, TypeError, ValueError) as error:
        raise AuditError(f"manifest.json holds a damaged mismatch model ({error!r}): score the audit again") from None


def build_pair_counts(
    groups: Sequence[tuple[str, str | None]],
    step: npt.NDArray[np.int64],
    pairs: Doubles,
    p: Doubles,
    score: Doubles,
    models: Mapping[str, MismatchModel],
) -> PairCounts:
    """Pairs aggregated by kind and calibration group, p and score, as PairCounts."""
    rounds = min((len(models[kind].bootstrap) for kind in {kind for kind, _ in groups} if kind in models), default=0)
    resampled = np.tile(p, (rounds, 1))
    numbers = {group: number for number, group in enumerate(dict.fromkeys(groups))}
    member = np.array([numbers[group] for group in groups])
    for (kind, name), number in numbers.items():
        if kind not in models:
            continue
        model, rows = models[kind].of_group(name), np.flatnonzero((member == number) & np.isfinite(score))
        for index in range(rounds):
            resampled[index, rows] = np.interp(score[rows], model.score, model.bootstrap[index])
    return PairCounts(step, pairs, p, resampled)


def split_pairs(counts: PairCounts, p: Doubles, steps: npt.NDArray[np.int64]) -> dict[str, tuple[Doubles, Doubles]]:
    """Each estimate of a Cut as the expected number of pairs in a part and in its whole, at each cut-off; (C,) each."""
    pairs, bad = cumulate_from_top(counts.step, counts.pairs), cumulate_from_top(counts.step, counts.pairs * p)
    good = pairs - bad
    removed, bad_removed, good_removed = pairs[steps], bad[steps], good[steps]
    return {
        "precision": (bad_removed, removed),
        "caught": (bad_removed, np.full_like(removed, bad[0])),
        "lost": (good_removed, np.full_like(removed, good[0])),
        "left": (bad[0] - bad_removed, pairs[0] - removed),
    }


def compute_margin(name: str, share: Doubles, whole: Doubles, removed_variance: Doubles, variance: float) -> Doubles:
    """Half-width of the 90% interval of a share that resampling does not cover, from the sums of p (1 - p).

    Which pairs are mismatched is random with probability p, which matters in a small corpus; there half a pair is
    added as a continuity correction. The whole curve may also be off by CURVE in its log odds, which moves every
    p by CURVE p (1 - p).
    """
    kept_variance = variance - removed_variance
    a, b = {"precision": (1.0, 0.0), "left": (0.0, 1.0)}.get(name, (1 - share, -share))
    curve_error = CURVE * (a * removed_variance + b * kept_variance)
    deviation = np.sqrt(a**2 * removed_variance + b**2 * kept_variance + curve_error**2)
    return divide_or_nan(NORMAL_95 * deviation + 0.5, whole)


def compute_cuts(counts: PairCounts, cutoffs: Sequence[float] | None = None) -> list[Cut]:
    """The cuts at `cutoffs`, or at all multiples of 1/1000 and one above 1 that removes nothing."""
    steps = np.arange(STEPS + 2) if cutoffs is None else np.array([parse_cutoff(p) for p in cutoffs], np.int64)
    parts = split_pairs(counts, counts.p, steps)
    removed, total = parts["precision"][1], counts.pairs.sum()
    resampled = [split_pairs(counts, curve, steps) for curve in counts.resampled]
    variance = cumulate_from_top(counts.step, counts.pairs * counts.p * (1 - counts.p))
    is_certain = (removed == 0) | (removed == total)
    columns: dict[str, Doubles] = {}
    for name, (part, whole) in parts.items():
        share = divide_or_nan(part, whole)
        margin = compute_margin(name, share, whole, variance[steps], variance[0])
        if name in ("caught", "lost"):
            margin[is_certain] = 0
        low, high = widen_interval([divide_or_nan(*curve[name]) for curve in resampled], share, margin)
        columns |= {name: share, f"{name}_low": low, f"{name}_high": high}
    return [
        Cut(
            p=int(step) / STEPS,
            removed=int(removed[i]),
            removed_share=float(removed[i] / total) if total else 0.0,
            **{name: replace_nan(values[i], name) for name, values in columns.items()},  # type: ignore[arg-type]
        )
        for i, step in enumerate(steps)
    ]


def estimate_mismatched(counts: PairCounts) -> Noise:
    """The share of mismatched pairs: the share that is left if nothing is removed."""
    [whole] = compute_cuts(counts, [NOTHING])
    ends = whole.left or 0, whole.left_low or 0, whole.left_high or 0
    return Noise("pair", *ends, int(counts.pairs.sum()))


def parse_cutoff(p: float) -> int:
    """The number of a cut-off; NOTHING has the last."""
    try:
        value = float(p)
    except (TypeError, ValueError):
        value = -1.0
    if not 0 <= value <= NOTHING:
        raise ThresholdError(f"cut-offs in `at` must be between 0 and 1, not {p!r}")
    return round(value * STEPS)


def check_shares(**limits: float | None) -> None:
    for name, limit in limits.items():
        if limit is not None and not 0 <= limit <= 1:
            raise ThresholdError(f"{name} must be a share between 0 and 1 (2% is 0.02), not {limit:g}")


def choose_cut(
    source: PairCounts | AuditDatabase,
    *,
    lose_at_most: float | None = None,
    expect_precision: float | None = None,
    where: str | None = None,  # of a database
) -> Cut:
    """The cut-off that removes the most within the limits, or the one that removes nothing.

    keep(max_p_mismatch=float(cut)) applies it.

    `lose_at_most` holds with 95% confidence: the upper end of the interval of the share of good pairs lost stays below
    it. `expect_precision` is an expectation: the expected share of mismatched pairs among the removed.
    """
    check_shares(lose_at_most=lose_at_most, expect_precision=expect_precision)
    if lose_at_most is None and expect_precision is None:
        raise ThresholdError("set a limit for the cut: lose_at_most or expect_precision")
    chosen = None
    for cut in reversed(compute_cuts(source if isinstance(source, PairCounts) else count_pairs(source, where))):
        loses = lose_at_most is not None and cut.lost_high > lose_at_most
        imprecise = expect_precision is not None and cut.precision is not None and cut.precision < expect_precision
        if loses or imprecise:
            break
        chosen = cut
    assert chosen is not None  # the last cut removes nothing and so loses nothing
    return chosen


def cumulate_from_top(step: npt.NDArray[np.int64], weight: Doubles) -> Doubles:
    """The sum of the weights at each step and above, (STEPS + 2,)."""
    counted = np.bincount(step, weights=weight, minlength=STEPS + 2)
    return np.asarray(counted[::-1].cumsum()[::-1], np.float64)


def divide_or_nan(part: Doubles, whole: Doubles) -> Doubles:
    return np.divide(part, whole, out=np.full_like(whole, np.nan), where=whole > 0)


def widen_interval(resampled: Sequence[Doubles], point: Doubles, margin: Doubles) -> tuple[Doubles, Doubles]:
    """The 90% interval, which always includes the point estimate; combines `margin` with the resampled values."""
    low, high = np.quantile(np.stack(resampled), INTERVAL, axis=0) if resampled else (point, point)
    extra = np.nan_to_num(margin)
    below, beyond = np.hypot(np.fmin(low - point, 0), extra), np.hypot(np.fmax(high - point, 0), extra)
    return np.maximum(point - below, 0), np.minimum(point + beyond, 1)


def replace_nan(value: float, name: str) -> float | None:
    """Replace NaN, a share of nothing, by None; or by 0 for pairs caught or lost."""
    if not np.isnan(value):
        return float(value)
    return 0.0 if name.startswith(("caught", "lost")) else None


def format_cut_share(cut: Any, name: str) -> str:
    """A share of a cut with its interval, or an empty text if there is none."""
    value, low, high = (getattr(cut, f"{name}{end}") for end in ("", "_low", "_high"))
    return "" if None in (value, low, high) else f"{value:.1%} ({100 * low:.1f}-{100 * high:.1f})"
