"""Certificates: what labels prove about a corpus, a flag and a filter, with intervals from few labels per stratum.

In one stratum the interval is Clopper and Pearson's, which always covers: its ends are quantiles of two Beta
distributions, one with an extra bad pair and one with an extra good pair. Over several strata the quantity is drawn
from the product of such distributions. An extra pair in every stratum would be safe but far too wide, so only one
stratum gets it, the one where it moves the end most, while the others keep their observed mean (as Fay and Feuer do for
weighted sums of Poisson counts). tests/review/test_certificate.py and tests/bench/certify_coverage.py measure the
coverage. NumPy only.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from auditor.vectors import Bools, Doubles

CONFIDENCE = 0.9
DRAWS = 20_000
SEED = 20_231_117
TRIED = 3  # strata that may get the extra pair


@dataclass(frozen=True, slots=True)
class Stratum:
    """Rows that are treated alike, and the labels of those drawn from it."""

    rows: int
    bad: int
    good: int
    unsure: int = 0  # judged but undecided: counted as bad for an upper end and as good for a lower one
    flagged: bool = False
    removed: bool = False  # by the rules of the filter

    @property
    def labels(self) -> int:
        return self.bad + self.good + self.unsure


@dataclass(frozen=True, slots=True)
class LabelInterval:
    """An estimate with its two-sided interval; `estimate` is None if no label informs it."""

    estimate: float | None
    low: float
    high: float


# A function of the mismatched share of each stratum, (draws, strata) -> (draws,), monotone in each.
Quantity = Callable[[Doubles], Doubles]


def compute_interval(
    strata: Sequence[Stratum], quantity: Quantity, rising: Sequence[bool] | Bools, confidence: float = CONFIDENCE
) -> LabelInterval:
    """The interval of a quantity that grows (`rising`) or falls with the mismatched share of each stratum."""
    up = np.asarray(rising, bool)
    tail = (1 - confidence) / 2
    # undecided pairs count for whichever side makes the interval wider
    high = compute_end(strata, quantity, up, tail, upper=True)
    low = compute_end(strata, quantity, ~up, tail, upper=False)
    observed = np.array([[s.bad / (s.bad + s.good) if s.bad + s.good else np.nan for s in strata]])
    estimate = float(quantity(observed)[0])
    if not np.isfinite(estimate):
        return LabelInterval(None, low, high)
    return LabelInterval(estimate, min(low, estimate), max(high, estimate))


def compute_end(strata: Sequence[Stratum], quantity: Quantity, worse: Bools, tail: float, *, upper: bool) -> float:
    """One end of the interval: the widest over the strata that may get the extra pair.

    Undecided and extra pairs are bad in the strata where `worse` is true, good in the others.
    """
    generator = np.random.default_rng(SEED)
    middle = np.empty((DRAWS, len(strata)))
    extreme = np.empty_like(middle)
    for h, stratum in enumerate(strata):
        bad = stratum.bad + (stratum.unsure if worse[h] else 0)
        good = stratum.labels - bad
        if not stratum.labels:  # without labels, assume the share that makes the end worst
            middle[:, h] = extreme[:, h] = float(worse[h])
            continue
        certainty = max(stratum.labels - 2, 1) / stratum.labels  # makes the variance that of an observed share
        middle[:, h] = draw_beta(generator, bad * certainty, good * certainty)
        extreme[:, h] = draw_beta(generator, bad + worse[h], good + (not worse[h]))
        # what the labeled rows allow: a fully judged stratum has no uncertainty left
        for draws in (middle, extreme):
            np.clip(draws[:, h], bad / stratum.rows, 1 - good / stratum.rows, out=draws[:, h])
    ends = []
    for h in rank_strata(quantity, middle.mean(axis=0), extreme.mean(axis=0), upper):
        saved_draws = middle[:, h].copy()
        middle[:, h] = extreme[:, h]
        ends.append(float(np.quantile(quantity(middle), 1 - tail if upper else tail)))
        middle[:, h] = saved_draws
    return max(ends) if upper else min(ends)


def rank_strata(quantity: Quantity, middle: Doubles, extreme: Doubles, upper: bool) -> list[int]:
    """The strata in which an extra pair moves the quantity most on average; the widest end is among them."""
    value = quantity(np.where(np.eye(len(middle), dtype=bool), extreme, middle))
    return [int(h) for h in np.argsort(-value if upper else value, kind="stable")[:TRIED]]


def draw_beta(generator: np.random.Generator, bad: float, good: float) -> Doubles:
    """Draw from Beta(bad, good), which is a point at 0 or 1 if one of them is zero."""
    if bad <= 0 or good <= 0:
        return np.full(DRAWS, 1.0 if bad > 0 else 0.0)
    return np.asarray(generator.beta(bad, good, DRAWS))


@dataclass(frozen=True, slots=True)
class Certificate:
    """Intervals of shares; the last two are None without a filter."""

    labels: int
    unsure: int
    confidence: float
    mismatched: LabelInterval  # of the usable pairs
    precision: LabelInterval | None  # mismatched among the flagged; None if nothing is flagged
    lost: LabelInterval | None  # good pairs that the filter removes, among all good pairs
    left: LabelInterval | None  # mismatched among the pairs the filter keeps

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def certify(strata: Sequence[Stratum], *, filtered: bool, confidence: float = CONFIDENCE) -> Certificate:
    rows = np.array([stratum.rows for stratum in strata], np.float64)
    flagged = np.array([stratum.flagged for stratum in strata])
    removed = np.array([stratum.removed for stratum in strata])

    def share(is_member: Bools) -> LabelInterval | None:
        if not is_member.any():
            return None
        inside = [stratum for stratum, member in zip(strata, is_member, strict=True) if member]
        return compute_interval(inside, build_mean_share(rows[is_member]), [True] * len(inside), confidence)

    everything = share(np.ones(len(rows), bool))
    assert everything is not None
    return Certificate(
        labels=sum(stratum.labels for stratum in strata),
        unsure=sum(stratum.unsure for stratum in strata),
        confidence=confidence,
        mismatched=everything,
        precision=share(flagged),
        lost=compute_interval(strata, build_lost_share(rows, removed), ~removed, confidence) if filtered else None,
        left=share(~removed) if filtered else None,
    )


def build_mean_share(rows: Doubles) -> Quantity:
    weight = rows / rows.sum()
    return lambda shares: np.asarray(shares @ weight, np.float64)


def build_lost_share(rows: Doubles, removed: Bools) -> Quantity:
    """The share of good pairs that is removed: smaller if removed strata are more mismatched, larger if others are."""

    def quantity(shares: Doubles) -> Doubles:
        good = (1 - shares) * rows
        total = good.sum(axis=1)
        return np.asarray(np.divide(good[:, removed].sum(axis=1), total, out=np.zeros(len(total)), where=total > 0))

    return quantity
