"""What each cut-off of p_mismatch removes and what that costs, and the cut-off that keeps a limit on either.

p_mismatch is a probability, so sums of it are expectations: the mean of p over the removed pairs is the precision, and
the sum of 1 - p over them the good pairs lost. Intervals come from the resampled curves that the mismatch model keeps
in the manifest, and from chance; how often they hold is measured by tests/bench/threshold_coverage.py. One aggregation
of the audit is enough, so ten million rows take about a second.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from auditor.errors import AuditorError
from auditor.query.database import AuditDatabase
from auditor.score.statistics.mismatch import INTERVAL, MismatchModel

Doubles = npt.NDArray[np.float64]

NORMAL_95 = 1.645
CURVE = 0.3  # deviation of the log odds of the whole curve: from simulated corpora, tests/bench/threshold_coverage.py
STEPS = 1000  # cut-offs are multiples of 1/1000
SHOWN = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
NOTHING = (STEPS + 1) / STEPS  # the cut-off beyond 1, which removes nothing
SCORE_STEPS = 200  # within a step of p pairs are told apart by their score, or 0 and 1 would lump too many together


class ThresholdError(AuditorError):
    """A limit that makes no sense, or an audit without p_mismatch."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Pairs with p_mismatch of at least `p` are removed; `low` and `high` are the 90% interval of an estimate.

    `precision` is None where nothing is removed, `left` where nothing is kept.
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
    lost: float  # expected share of the good pairs that go with them
    lost_low: float
    lost_high: float
    left: float | None  # expected share of mismatched pairs among the kept
    left_low: float | None
    left_high: float | None

    @property
    def max_p_mismatch(self) -> float:
        """The same cut as the largest p that is kept, which is how filters say it."""
        return float(np.nextafter(np.float32(self.p), np.float32(0)))

    def __float__(self) -> float:
        return self.max_p_mismatch

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class PairCounts:
    """Pairs aggregated by p and score: all that cut-offs need to know of an audit."""

    step: npt.NDArray[np.int64]  # (T,) floor(p * STEPS)
    pairs: Doubles  # (T,)
    p: Doubles  # (T,) mean p of these pairs
    resampled: Doubles  # (B, T) the same by the resampled curves; B may be 0
    unscored: int = 0  # usable pairs without p_mismatch, which no cut-off removes


def count_pairs(database: AuditDatabase, where: str | None = None) -> PairCounts:
    """Aggregate an audit's usable pairs."""
    models = models_of(database.manifest.get("statistics") or {})
    width = min((float(np.ptp(model.score)) for model in models.values()), default=1.0) / SCORE_STEPS or 1.0
    condition = database.where(where)
    rows = database.rows(
        f"SELECT kind, CAST(floor(p_mismatch * {STEPS}) AS BIGINT) AS step, "
        f"CAST(floor(mismatch_score / {width!r}) AS BIGINT) AS place, count(*) AS pairs, "
        f"avg(p_mismatch) AS p, avg(mismatch_score) AS score FROM {database.table(condition)} "
        f"WHERE status = 'ok' AND {condition} GROUP BY ALL ORDER BY ALL"
    )
    unscored = sum(row["pairs"] for row in rows if row["p"] is None)
    rows = [row for row in rows if row["p"] is not None]
    if not rows:
        raise ThresholdError("no row of this audit has p_mismatch: too few pairs to tell, or not scored yet")
    counted = pair_counts(
        [row["kind"] for row in rows],
        np.array([row["step"] for row in rows], np.int64),
        np.array([row["pairs"] for row in rows], np.float64),
        np.array([row["p"] for row in rows], np.float64),
        np.array([row["score"] if row["score"] is not None else np.nan for row in rows], np.float64),
        models,
    )
    return replace(counted, unscored=unscored)


def count_scores(score: npt.ArrayLike, model: MismatchModel) -> PairCounts:
    """The same from the scores of pairs of one kind, without an audit."""
    given = np.asarray(score, np.float64)
    p = model.p(given).astype(np.float64)
    step = np.floor(p * STEPS).astype(np.int64)
    return pair_counts(["image"] * len(given), step, np.ones(len(given)), p, given, {"image": model})


def models_of(statistics: Mapping[str, Any]) -> dict[str, MismatchModel]:
    """The mismatch models of a manifest, by kind."""
    return {
        kind: MismatchModel.from_dict(saved)
        for kind, saved in statistics.items()
        if isinstance(saved, dict) and saved.get("curve")
    }


def pair_counts(
    kinds: Sequence[str],
    step: npt.NDArray[np.int64],
    pairs: Doubles,
    p: Doubles,
    score: Doubles,
    models: Mapping[str, MismatchModel],
) -> PairCounts:
    rounds = min((len(models[kind].bootstrap) for kind in set(kinds) if kind in models), default=0)
    resampled = np.tile(p, (rounds, 1))
    of = np.asarray(kinds)
    for kind, model in models.items():
        at = np.flatnonzero((of == kind) & np.isfinite(score))
        for index in range(rounds):
            resampled[index, at] = np.interp(score[at], model.score, model.bootstrap[index])
    return PairCounts(step, pairs, p, resampled)


@dataclass(frozen=True)
class Sums:
    """Expected pairs at each cut-off, (C,) each: mismatched and good ones, removed and kept."""

    bad_removed: Doubles
    good_removed: Doubles
    bad_kept: Doubles
    good_kept: Doubles

    @staticmethod
    def of(found: PairCounts, p: Doubles, steps: npt.NDArray[np.int64]) -> "Sums":
        bad, pairs = above(found.step, found.pairs * p), above(found.step, found.pairs)
        return Sums(bad[steps], (pairs - bad)[steps], bad[0] - bad[steps], (pairs[0] - bad[0]) - (pairs - bad)[steps])

    def shares(self) -> dict[str, Doubles]:
        """Every estimate by its name: a part of the pairs over that part and its counterpart."""
        return {
            "precision": share(self.bad_removed, self.bad_removed + self.good_removed),
            "caught": share(self.bad_removed, self.bad_removed + self.bad_kept),
            "lost": share(self.good_removed, self.good_removed + self.good_kept),
            "left": share(self.bad_kept, self.bad_kept + self.good_kept),
        }

    def margins(self, removed: Doubles, kept: Doubles) -> dict[str, Doubles]:
        """Half a 90% interval of each share, from what resampling does not show; given are the sums of p (1 - p).

        Which of the pairs are mismatched is chance, as p says: little in a large corpus, not in a small one, where
        half a pair counts as well, for there are no parts of pairs. And the curve may be off as a whole, by CURVE in
        its log odds, which moves every p by CURVE p (1 - p).
        """
        wholes = {
            "precision": self.bad_removed + self.good_removed,
            "caught": self.bad_removed + self.bad_kept,
            "lost": self.good_removed + self.good_kept,
            "left": self.bad_kept + self.good_kept,
        }
        parts: dict[str, tuple[Doubles | float, Doubles | float]] = {"precision": (1.0, 0.0), "left": (0.0, 1.0)}
        parts |= {name: (1 - value, -value) for name, value in self.shares().items() if name in ("caught", "lost")}
        found = {}
        for name, (a, b) in parts.items():
            deviation = np.sqrt(a**2 * removed + b**2 * kept + (CURVE * (a * removed + b * kept)) ** 2)
            found[name] = share(NORMAL_95 * deviation + 0.5, wholes[name])
        certain = (wholes["precision"] == 0) | (wholes["left"] == 0)  # nothing is removed, or everything
        return {name: np.where(certain & (name in ("caught", "lost")), 0, margin) for name, margin in found.items()}


def cuts(found: PairCounts, at: Sequence[float] | None = None) -> list[Cut]:
    """Every cut-off asked for, or all multiples of 1/1000 and one beyond 1 that removes nothing."""
    steps = np.arange(STEPS + 2) if at is None else np.array([step_of(p) for p in at], np.int64)
    removed, total = above(found.step, found.pairs)[steps], found.pairs.sum()
    sums = Sums.of(found, found.p, steps)
    resampled = [Sums.of(found, curve, steps).shares() for curve in found.resampled]
    variance = above(found.step, found.pairs * found.p * (1 - found.p))
    margins = sums.margins(variance[steps], variance[0] - variance[steps])
    columns: dict[str, Doubles] = {}
    for name, point in sums.shares().items():
        low, high = interval([shares[name] for shares in resampled], point, margins[name])
        columns |= {name: point, f"{name}_low": low, f"{name}_high": high}
    return [
        Cut(
            p=int(step) / STEPS,
            removed=int(removed[i]),
            removed_share=float(removed[i] / total) if total else 0.0,
            **{name: known(values[i], name) for name, values in columns.items()},  # type: ignore[arg-type]
        )
        for i, step in enumerate(steps)
    ]


def step_of(p: float) -> int:
    """The number of a cut-off; NOTHING is the last."""
    try:
        given = float(p)
    except (TypeError, ValueError):
        given = -1.0
    if not 0 <= given <= NOTHING:
        raise ThresholdError(f"at lists cut-offs between 0 and 1, not {p!r}")
    return round(given * STEPS)


def choose_cut(
    found: PairCounts | AuditDatabase, *, lose_at_most: float | None = None, expect_precision: float | None = None
) -> Cut:
    """The cut-off that removes the most within the limits; where none does, the one that removes nothing.

    `lose_at_most` is kept with 95% confidence: the upper end of the interval of the share of good pairs lost stays
    below it. `expect_precision` is an expectation, as it says: among the removed pairs that share is mismatched.
    """
    for name, limit in (("lose_at_most", lose_at_most), ("expect_precision", expect_precision)):
        if limit is not None and not 0 <= limit <= 1:
            raise ThresholdError(f"{name} is a share between 0 and 1 (2% is 0.02), not {limit:g}")
    if lose_at_most is None and expect_precision is None:
        raise ThresholdError("say what the cut must keep: lose_at_most or expect_precision")
    chosen = None
    for cut in reversed(cuts(found if isinstance(found, PairCounts) else count_pairs(found))):
        loses = lose_at_most is not None and cut.lost_high > lose_at_most
        imprecise = expect_precision is not None and cut.precision is not None and cut.precision < expect_precision
        if loses or imprecise:
            break
        chosen = cut
    assert chosen is not None  # the last cut removes nothing and so loses nothing
    return chosen


def above(step: npt.NDArray[np.int64], weight: Doubles) -> Doubles:
    """Sum of the weights at each step and all above, (STEPS + 2,)."""
    counted = np.bincount(step, weights=weight, minlength=STEPS + 2)
    return np.asarray(counted[::-1].cumsum()[::-1], np.float64)


def share(part: Doubles, whole: Doubles | float) -> Doubles:
    of = np.broadcast_to(np.asarray(whole, np.float64), part.shape)
    found: Doubles = np.divide(part, of, out=np.full(part.shape, np.nan), where=of > 0)
    return found


def interval(resampled: Sequence[Doubles], point: Doubles, margin: Doubles) -> tuple[Doubles, Doubles]:
    """Ends of the 90% interval, which always holds the point itself; `margin` comes on top of what was resampled."""
    low, high = np.quantile(np.stack(resampled), INTERVAL, axis=0) if resampled else (point, point)
    more = np.nan_to_num(margin)
    below, beyond = np.hypot(np.fmin(low - point, 0), more), np.hypot(np.fmax(high - point, 0), more)
    return np.maximum(point - below, 0), np.minimum(point + beyond, 1)


def known(value: float, name: str) -> float | None:
    """None where there is nothing to take a share of; of no bad or good pairs at all, none is caught or lost."""
    if not np.isnan(value):
        return float(value)
    return 0.0 if name.startswith(("caught", "lost")) else None
