"""Estimates of the shares of a budget, each with a 90% interval.

A count over a finished audit is exact. It is an estimate if shards are missing: then the interval is Wilson's, for as
many independent rows as the differences between shards allow. The share of mismatched pairs is always an estimate, by
the model (auditor/keep/thresholds.py) or by labels (auditor/review/certificate.py), whichever is narrower. A change
since a baseline has Newcombe's interval: he combines the intervals of the two shares by their correlation, which is
1 if all rows are the same.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from auditor.check.budget import MISMATCHED, BudgetError, BudgetLimit
from auditor.check.named_shares import UnmeasuredError, build_share_condition
from auditor.keep.thresholds import NOTHING, ThresholdError, compute_cuts, count_pairs
from auditor.keep.uncertainty_cuts import wilson_interval
from auditor.query.compare import IDENTITIES
from auditor.query.corpus_groups import describe_group, group_rows
from auditor.query.database import AuditDatabase
from auditor.query.summary import read_noise_estimates
from auditor.review.certificate import certify
from auditor.review.label_sample import count_labels, fetch_sample_marks, list_label_samples
from auditor.review.strata import DOUBT

Z = NormalDist().inv_cdf(0.95)  # of a 90% interval


@dataclass(frozen=True, slots=True)
class ShareEstimate:
    """A share with its interval. `error_of_one` is the half width that one label, or row, would have."""

    share: float
    low: float
    high: float
    rows: int
    where: str  # SQL of the rows that count
    group: str = ""
    unit: str = "rows"
    error_of_one: float = 0.0
    basis: str = ""  # what the estimate rests on

    def count_to_settle(self, bound: float) -> int | None:
        """About how many labels, or rows, make the interval end before the bound; None if no number does."""
        gap = abs(self.share - bound)
        return math.ceil((self.error_of_one / gap) ** 2) if gap > 1e-6 else None


def join_conditions(*conditions: str) -> str:
    return " AND ".join(f"({condition})" for condition in conditions if condition)


def estimate_shares(database: AuditDatabase, limit: BudgetLimit) -> list[ShareEstimate]:
    """The estimate of a limit's share, or one of each group."""
    condition = build_share_condition(database, limit)
    if limit.share != MISMATCHED:
        return count_shares(database, limit, condition)
    where = join_conditions(limit.among, condition)
    if limit.per:
        return list_mismatched_groups(database, limit.per, condition)
    estimates = [estimate_by_model(database, limit.among, where), estimate_by_labels(database, where, limit.among)]
    known = [estimate for estimate in estimates if estimate]
    if not known:
        raise UnmeasuredError("no pair has an estimate of p_mismatch")
    return [min(known, key=lambda estimate: estimate.high - estimate.low)]


# -- mismatched pairs ----------------------------------------------------------------------------------------------


def estimate_by_model(database: AuditDatabase, among: str, where: str) -> ShareEstimate | None:
    try:
        pairs = count_pairs(database, among or None)
    except ThresholdError:
        return None
    [whole] = compute_cuts(pairs, [NOTHING])
    share, low, high = whole.left or 0.0, whole.left_low or 0.0, whole.left_high or 0.0
    doubtful = (pairs.p + DOUBT) / (1 + 2 * DOUBT)  # as labels are allocated to strata
    spread = float(np.average(np.sqrt(doubtful * (1 - doubtful)), weights=pairs.pairs))
    labeled = any(noise.labeled for noise in read_noise_estimates(database.manifest.get("statistics", {})))
    basis = "corrected by labels" if labeled else "not counting related captions"
    return ShareEstimate(share, low, high, int(pairs.pairs.sum()), where, "", "labels", Z * spread, basis)


def estimate_by_labels(database: AuditDatabase, where: str, among: str) -> ShareEstimate | None:
    """The certificate of the label sample with the most marks; labels of the corpus say little about a part of it."""
    samples = [] if among else list_label_samples(database.files.folder)
    certificates = [
        certify(count_labels(sample, fetch_sample_marks(database, sample)), filtered=False) for sample in samples
    ]
    best = max(certificates, key=lambda certificate: certificate.labels, default=None)
    if best is None or best.mismatched.estimate is None:
        return None
    interval = best.mismatched
    error, basis = interval.width / 2 * math.sqrt(best.labels), f"by {best.labels:,} labels"
    ends = best.mismatched.estimate, interval.low, interval.high
    return ShareEstimate(*ends, best.labels, where, "", "labels", error, basis)


def list_mismatched_groups(database: AuditDatabase, column: str, condition: str) -> list[ShareEstimate]:
    noise = {estimate.kind: estimate for estimate in read_noise_estimates(database.manifest.get("statistics", {}))}
    estimates = []
    for group in group_rows(database, column).groups:
        share: Any = noise.get(group.name) if column == "kind" else group.mismatched
        if share is not None and group.mismatched is not None:
            rows, where = group.mismatched.rows, join_conditions(group.where, condition)
            error = (share.high - share.low) / 2 * math.sqrt(rows)
            estimates.append(
                ShareEstimate(share.share, share.low, share.high, rows, where, group.name, error_of_one=error)
            )
    return estimates


# -- counted shares ------------------------------------------------------------------------------------------------


def is_partial(database: AuditDatabase) -> bool:
    """Whether rows of the corpus are missing, so that counts are estimates."""
    files, manifest = database.files, database.manifest
    return bool(database.state != "complete" or files.missing or files.swept or manifest.get("failed_shards"))


def count_shares(database: AuditDatabase, limit: BudgetLimit, condition: str) -> list[ShareEstimate]:
    hit, among = database.where(condition), database.where(limit.among)
    column = database.column(limit.per, "per") if limit.per else ""
    cells = database.rows(
        f"SELECT {column or 'NULL'} AS value, {'shard' if is_partial(database) else 'NULL'} AS part, count(*) AS n, "
        f"count(*) FILTER ({hit}) AS hits FROM {database.table(hit, among, column)} WHERE {among} "
        "GROUP BY ALL HAVING n > 0"
    )
    groups: dict[Any, list[dict[str, Any]]] = {}
    for cell in cells:
        groups.setdefault(cell["value"], []).append(cell)
    estimates = []
    for value, parts in groups.items():
        name, group_where = describe_group(database, limit.per, column, value, None) if column else ("", "")
        where = join_conditions(limit.among, group_where, condition)
        counts = np.array([[part["n"], part["hits"]] for part in parts], np.float64)
        estimates.append(replace(estimate_count(counts, is_partial(database)), where=where, group=name))
    return estimates


def estimate_count(counts: npt.NDArray[np.float64], partial: bool) -> ShareEstimate:
    """The estimate from rows and hits of each shard, (shards, 2)."""
    rows, hits = counts.sum(axis=0)
    share = float(hits / rows)
    if not partial:
        return ShareEstimate(share, share, share, int(rows), "")
    low, high = wilson_interval(share * rows / (effect := measure_design_effect(counts)), rows / effect, Z)
    return ShareEstimate(share, low, high, int(rows), "", error_of_one=(high - low) / 2 * math.sqrt(rows))


def measure_design_effect(counts: npt.NDArray[np.float64]) -> float:
    """How many times the variance of a share is that of independent rows, from the differences between shards."""
    (rows, hits), shards = counts.sum(axis=0), len(counts)
    share = hits / rows
    expected = share * (1 - share) * rows
    if shards < 2 or not expected:
        return 1.0
    observed = shards / (shards - 1) * float(((counts[:, 1] - share * counts[:, 0]) ** 2).sum())
    return float(min(max(1.0, observed / expected), rows))


# -- changes since a baseline --------------------------------------------------------------------------------------


def estimate_change(database: AuditDatabase, baseline: AuditDatabase, limit: BudgetLimit) -> ShareEstimate:
    """How much larger the share is than in the baseline."""
    identity = database.cached(f"identity in {baseline.path}", lambda: find_common_identity(database, baseline))
    if limit.share != MISMATCHED:
        return combine_change(*compare_counts(database, baseline, limit, identity))
    [new], [old] = estimate_shares(database, limit), estimate_shares(baseline, limit)
    models = {d.manifest.get("model", {}).get("fingerprint") for d in (database, baseline)}
    keys, old_keys = (fetch_marked_keys(d, limit.among, "FALSE", identity)[0] for d in (database, baseline))
    common = len(np.intersect1d(keys, old_keys)) / math.sqrt(len(keys) * len(old_keys))
    return combine_change(new, old, common if len(models) == 1 else 0.0)


def find_common_identity(database: AuditDatabase, baseline: AuditDatabase) -> str:
    """The columns that identify rows in both audits."""
    for identity in IDENTITIES.values():
        keys, old_keys = (fetch_marked_keys(d, "", "FALSE", identity)[0] for d in (database, baseline))
        if np.isin(keys, old_keys).any():
            return identity
    raise BudgetError(f"the baseline {baseline.path} has no row in common with {database.path}")


def fetch_marked_keys(database: AuditDatabase, among: str, condition: str, identity: str) -> Sequence[npt.NDArray[Any]]:
    """The identities of the rows `among` others, and which of them meet a condition."""
    rows, hit = database.where(among), database.where(condition)
    table = database.run(f"SELECT {identity} AS k, {hit} AS hit FROM {database.table(rows, hit)} WHERE {rows}")
    return table["k"].to_numpy(), table["hit"].to_numpy()


def compare_counts(
    database: AuditDatabase, baseline: AuditDatabase, limit: BudgetLimit, identity: str
) -> tuple[ShareEstimate, ShareEstimate, float]:
    """Both shares as samples of what made the corpora, and their correlation by the rows in common."""
    conditions = [build_share_condition(d, limit) for d in (database, baseline)]
    keys, hits = fetch_marked_keys(database, limit.among, conditions[0], identity)
    old_keys, old_hits = fetch_marked_keys(baseline, limit.among, conditions[1], identity)
    if not len(keys) or not len(old_keys):
        raise UnmeasuredError("there is no row to compare")
    new, old = (estimate_count(np.array([[len(h), h.sum()]], np.float64), True) for h in (hits, old_hits))
    new = replace(new, where=join_conditions(limit.among, conditions[0]))
    _, places, old_places = np.intersect1d(keys, old_keys, return_indices=True)
    common = len(places) / math.sqrt(len(keys) * len(old_keys))
    spread = math.sqrt(new.share * (1 - new.share) * old.share * (1 - old.share))
    if not spread or not len(places):
        return new, old, common if new.share == old.share else 0.0
    x, y = hits[places].astype(np.float64), old_hits[old_places].astype(np.float64)
    return new, old, common * float((x * y).mean() - x.mean() * y.mean()) / spread


def combine_change(new: ShareEstimate, old: ShareEstimate, correlation: float) -> ShareEstimate:
    """Newcombe's interval of a difference (Statistics in Medicine 17, 1998, methods 10)."""

    def margin(first: float, second: float) -> float:
        return math.sqrt(max(0.0, first**2 + second**2 - 2 * correlation * first * second))

    change = new.share - old.share
    if correlation > 1 - 1e-9:  # the same rows
        return replace(new, share=change, low=change, high=change, unit="rows", error_of_one=0.0)
    low = change - margin(new.share - new.low, old.high - old.share)
    high = change + margin(new.high - new.share, old.share - old.low)
    rows = min(new.rows, old.rows)
    return replace(new, share=change, low=low, high=high, unit="rows", error_of_one=(high - low) / 2 * math.sqrt(rows))
