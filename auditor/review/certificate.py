"""Intervals for what depends on the mismatched shares of several strata, from few labels in each; NumPy only.

In one stratum the interval is Clopper and Pearson's, which always covers: its ends are quantiles of two Beta
distributions, one with a bad pair more, one with a good pair more. Over several strata the quantity is drawn from the
product of such distributions. Adding a pair to every stratum would be safe and far too wide, so it is added to one
stratum only, the one where it moves the end most, while the others keep the mean that was seen (as Fay and Feuer do for
weighted sums of Poisson counts). The coverage of this is measured in tests/certify and tests/bench/certify_coverage.py.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]
CONFIDENCE = 0.9
DRAWS = 20_000
SEED = 20_231_117


@dataclass(frozen=True, slots=True)
class Stratum:
    """Rows of one kind, and what people said of those drawn from it."""

    rows: int
    bad: int
    good: int
    unsure: int = 0  # judged, but not decided: counted as bad for an upper end and as good for a lower one
    flagged: bool = False
    removed: bool = False  # by the rules of the filter

    @property
    def labels(self) -> int:
        return self.bad + self.good + self.unsure


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its two-sided interval; `estimate` is None where nothing was judged that tells."""

    estimate: float | None
    low: float
    high: float

    @property
    def width(self) -> float:
        return self.high - self.low


# What is asked: a function of the mismatched share of each stratum, (draws, strata) -> (draws,), monotone in each.
Quantity = Callable[[Doubles], Doubles]


def interval(
    strata: Sequence[Stratum], quantity: Quantity, rising: Sequence[bool], confidence: float = CONFIDENCE
) -> Interval:
    """The interval of a quantity that grows (`rising`) or falls with the mismatched share of each stratum."""
    up = np.asarray(rising, bool)
    tail = (1 - confidence) / 2
    # pairs nobody could decide are given to whichever side makes the interval wider
    high = worst_end(strata, quantity, unsure_bad=up, extra_bad=up, tail=tail, upper=True)
    low = worst_end(strata, quantity, unsure_bad=~up, extra_bad=~up, tail=tail, upper=False)
    seen = np.array([[s.bad / (s.bad + s.good) if s.bad + s.good else np.nan for s in strata]])
    estimate = float(quantity(seen)[0])
    if not np.isfinite(estimate):
        return Interval(None, low, high)
    return Interval(estimate, min(low, estimate), max(high, estimate))


def worst_end(
    strata: Sequence[Stratum],
    quantity: Quantity,
    *,
    unsure_bad: npt.NDArray[np.bool_],
    extra_bad: npt.NDArray[np.bool_],
    tail: float,
    upper: bool,
) -> float:
    """One end: the extra pair goes in turn to each stratum, and the widest answer is taken."""
    generator = np.random.default_rng(SEED)
    middle = np.empty((DRAWS, len(strata)))
    extreme = np.empty_like(middle)
    for h, stratum in enumerate(strata):
        bad = stratum.bad + (stratum.unsure if unsure_bad[h] else 0)
        good = stratum.labels - bad
        if not stratum.labels:  # nothing is known: it may be as bad, or as good, as makes the end worst
            middle[:, h] = extreme[:, h] = float(extra_bad[h])
            continue
        middle[:, h] = confined(middle_shares(generator, bad, good), stratum, bad, good)
        extreme[:, h] = confined(beta(generator, bad + extra_bad[h], good + (not extra_bad[h])), stratum, bad, good)
    ends = []
    for h in farthest(quantity, middle.mean(axis=0), extreme.mean(axis=0), upper):
        kept = middle[:, h].copy()
        middle[:, h] = extreme[:, h]
        ends.append(float(np.quantile(quantity(middle), 1 - tail if upper else tail)))
        middle[:, h] = kept
    return max(ends) if upper else min(ends)


def farthest(quantity: Quantity, middle: Doubles, extreme: Doubles, upper: bool, tried: int = 3) -> list[int]:
    """The strata where one pair more moves the quantity most, on average; the widest end is among them."""
    changed = np.where(np.eye(len(middle), dtype=bool), extreme, middle)
    value = quantity(changed)
    return [int(h) for h in np.argsort(-value if upper else value, kind="stable")[:tried]]


def middle_shares(generator: np.random.Generator, bad: int, good: int) -> Doubles:
    """Shares around the one that was seen."""
    labels = bad + good
    certainty = max(labels - 2, 1) / labels  # so that the variance is that of a share, without bias
    return beta(generator, bad * certainty, good * certainty)


def beta(generator: np.random.Generator, bad: float, good: float) -> Doubles:
    """Beta(bad, good); a point at its end where one of them is zero."""
    if bad <= 0 or good <= 0:
        return np.full(DRAWS, 1.0 if bad > 0 else 0.0)
    return np.asarray(generator.beta(bad, good, DRAWS))


def confined(shares: Doubles, stratum: Stratum, bad: int, good: int) -> Doubles:
    """What was seen is known for sure: a stratum judged to its last row has no uncertainty left."""
    return np.clip(shares, bad / stratum.rows, 1 - good / stratum.rows)


@dataclass(frozen=True, slots=True)
class Certificate:
    """Everything is a share; the last two are None without a filter."""

    labels: int
    unsure: int
    confidence: float
    mismatched: Interval  # of the usable pairs
    precision: Interval | None  # mismatched among the flagged; None where nothing is flagged
    lost: Interval | None  # of the good pairs, those the filter removes
    left: Interval | None  # mismatched among the pairs the filter keeps

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def certify(strata: Sequence[Stratum], *, filtered: bool, confidence: float = CONFIDENCE) -> Certificate:
    """The four quantities from the judged strata."""
    rows = np.array([stratum.rows for stratum in strata], np.float64)
    flagged = np.array([stratum.flagged for stratum in strata])
    removed = np.array([stratum.removed for stratum in strata])

    def share(of: "np.typing.NDArray[np.bool_]") -> Interval | None:
        if not of.any():
            return None
        inside = [stratum for stratum, member in zip(strata, of, strict=True) if member]
        return interval(inside, weighted(rows[of]), [True] * len(inside), confidence)

    everything = share(np.ones(len(rows), bool))
    assert everything is not None
    return Certificate(
        labels=sum(stratum.labels for stratum in strata),
        unsure=sum(stratum.unsure for stratum in strata),
        confidence=confidence,
        mismatched=everything,
        precision=share(flagged),
        lost=interval(strata, lost(rows, removed), (~removed).tolist(), confidence) if filtered else None,
        left=share(~removed) if filtered else None,
    )


def weighted(rows: Doubles) -> Quantity:
    """The mismatched share of all rows."""
    weight = rows / rows.sum()
    return lambda shares: np.asarray(shares @ weight, np.float64)


def lost(rows: Doubles, removed: "np.typing.NDArray[np.bool_]") -> Quantity:
    """Good pairs removed, as a share of all good pairs; falls where a removed stratum is worse, rises elsewhere."""

    def quantity(shares: Doubles) -> Doubles:
        good = (1 - shares) * rows
        total = good.sum(axis=1)
        return np.asarray(np.divide(good[:, removed].sum(axis=1), total, out=np.zeros(len(total)), where=total > 0))

    return quantity
