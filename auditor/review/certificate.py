"""What labels prove of a corpus, a flag and a filter: four quantities, each with its interval."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from auditor.review.label_bounds import CONFIDENCE, Doubles, Interval, Quantity, Stratum, interval

NOTHING = Interval(None, 0.0, 1.0)


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
