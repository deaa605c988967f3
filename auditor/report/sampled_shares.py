"""Intervals for shares of a whole corpus from a sample: a ratio in a two-stage sample (Cochran 1977, chapter 11)."""

from collections.abc import Sequence

import numpy as np

from auditor.keep.uncertainty_cuts import wilson_interval
from auditor.query.database import AuditDatabase
from auditor.vectors import Doubles, Ints

Interval = tuple[float, float]


def estimate_intervals(database: AuditDatabase, sums: Sequence[tuple[str, str]]) -> list[Interval]:
    """The 95% interval of each ratio of two SQL sums over the rows of a sample, such as mismatched rows and all."""
    manifest, columns = database.manifest, ", ".join(f"coalesce({part}, 0)" for pair in sums for part in pair)
    keys = database.rows(f"SELECT shard, [{columns}]::DOUBLE[] AS sums FROM measured GROUP BY shard, key ORDER BY ALL")
    shards = np.unique([key["shard"] for key in keys], return_inverse=True)[1]
    values = np.array([key["sums"] for key in keys]).reshape(len(keys), len(sums), 2)
    fractions = manifest["corpus"]["shards"] / manifest["sample"]["of_shards"], manifest["sample"]["fraction"]
    return [estimate_interval(shards, part[:, 0], part[:, 1], *fractions) for part in values.swapaxes(0, 1)]


def estimate_interval(
    shards: Ints, events: Doubles, rows: Doubles, shard_fraction: float, key_fraction: float
) -> Interval:
    """Wilson's interval of events per row, with Student's t, from the shard, events and rows of each key (K,)."""
    total, count = float(rows.sum()) or 1.0, int(shards.max()) + 1
    share, freedom = float(events.sum()) / total, count - 1 if shard_fraction < 1 else len(rows)
    if shard_fraction == key_fraction == 1:
        return share, share
    if not freedom:  # one shard says nothing about the others
        return 0.0, 1.0
    residuals = events - share * rows
    between = (1 - shard_fraction) * count / max(1, count - 1) * (np.bincount(shards, residuals) ** 2).sum()
    variance = float(between + shard_fraction * (1 - key_fraction) * (residuals**2).sum())
    size = share * (1 - share) * total**2 / variance if variance else len(rows)
    from scipy.special import stdtrit  # every command imports this module

    return wilson_interval(share * size, size, float(stdtrit(freedom, 0.975)))
