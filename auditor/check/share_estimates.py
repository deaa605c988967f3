"""Estimates of the shares of a budget, with 90% intervals.

A count over a finished audit is exact; if shards are missing, it has Wilson's interval. The share of mismatched pairs
is estimated by the model or by labels, whichever is narrower.
"""

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, get_args

import numpy as np

from auditor.audit_folder.fault_records import read_faults
from auditor.audit_folder.side_files import overlapping_digests
from auditor.audit_folder.tag_estimates import Tag, list_tags
from auditor.check.budget import MISMATCHED, OVERLAP, BudgetError, BudgetLimit, refuse_unknown_names
from auditor.errors import AuditError
from auditor.keep.thresholds import ThresholdError, count_pairs, estimate_mismatched
from auditor.keep.uncertainty_cuts import wilson_interval
from auditor.query.compare import IDENTITIES
from auditor.query.corpus_groups import describe_group, group_rows
from auditor.query.database import AuditDatabase
from auditor.query.sandbox import quote_literal, quote_name
from auditor.report.finding_rules import FAULT_TITLES, list_rules
from auditor.report.sampled_shares import estimate_intervals
from auditor.review.certificate import certify
from auditor.review.label_sample import count_labels, fetch_sample_marks, list_label_samples
from auditor.sweep.caption_facts import Likeness

Z = NormalDist().inv_cdf(0.95)
CONDITIONS = {  # of shares by name; findings add theirs
    MISMATCHED: "mismatch",
    "unusable": "status <> 'ok'",
    "ambiguous": "ambiguous_visual OR ambiguous_text",
    **{kind.replace(" ", "_"): f"looks_like = '{kind}'" for kind in get_args(Likeness)},
    **dict.fromkeys([OVERLAP, *FAULT_TITLES, "language"], "FALSE"),  # unless the audit has such rows
}


@dataclass(frozen=True, slots=True)
class ShareEstimate:
    share: float
    low: float
    high: float
    rows: int
    group: str = ""
    basis: str = ""  # set if labels can make the estimate better


def build_share_condition(database: AuditDatabase, limit: BudgetLimit) -> str:
    """The rows that a limit counts. Raises AuditError if the audit has no measurement of them yet."""
    if limit.where:
        return limit.where
    rules = database.cached("finding rules", lambda: list_rules(database))
    tags = {tag.column: f"{quote_name(tag.column)} >= 0.5" for tag in list_tags(database.files.sources)}
    conditions = tags | CONDITIONS | {rule.name: rule.condition for rule in rules}
    refuse_unknown_names([limit.share], list(conditions), "share")
    if limit.share in FAULT_TITLES and read_faults(database.files.folder) is None:
        raise AuditError(f"run `auditor faults {database.path}` first")
    if limit.share == OVERLAP and (digests := overlapping_digests(database.files.folder, limit.other)):
        return f"media_digest IN ({', '.join(map(quote_literal, digests))})"
    return conditions[limit.share]


def estimate_shares(database: AuditDatabase, limit: BudgetLimit) -> list[ShareEstimate]:
    """The estimate of a limit's share, or one of each group; empty if no row counts."""
    if limit.share != MISMATCHED:
        tag = next((tag for tag in list_tags(database.files.sources) if tag.column == limit.share), None)
        return [estimate_tag(tag)] if tag and not (limit.per or limit.among) else list(count_shares(database, limit))
    if limit.per:
        groups = [(group.name, group.mismatched) for group in group_rows(database, limit.per).groups]
        return [ShareEstimate(m.share, m.low, m.high, m.rows, name) for name, m in groups if m]
    estimates = [*estimate_by_model(database, limit.among), *([] if limit.among else estimate_by_labels(database))]
    return sorted(estimates, key=lambda estimate: estimate.high - estimate.low)[:1]


def estimate_tag(tag: Tag) -> ShareEstimate:
    """The share of media that a prompt column estimates, over all kinds of media."""
    shares = [(s.media, s.share, s.low, s.high) for s in tag.shares.values() if s.share is not None]
    if len(shares) < len(tag.shares):
        raise AuditError(f"{tag.column}: {tag.words()}")
    media, *columns = np.array(shares, np.float64).T
    share, low, high = (float(media @ column / media.sum()) for column in columns)
    return ShareEstimate(share, low, high, int(media.sum()))


def estimate_by_model(database: AuditDatabase, among: str) -> Iterator[ShareEstimate]:
    with suppress(ThresholdError):  # no pair has p_mismatch
        noise = estimate_mismatched(count_pairs(database, among))
        basis = "corrected by labels" if database.files.correction else "not counting related captions"
        yield ShareEstimate(noise.share, noise.low, noise.high, noise.pairs, basis=basis)


def estimate_by_labels(database: AuditDatabase) -> Iterator[ShareEstimate]:
    for sample in list_label_samples(database.files.folder):
        strata = count_labels(sample, fetch_sample_marks(database, sample))
        proof, rows = certify(strata, filtered=False), sum(stratum.rows for stratum in strata)
        if (share := proof.mismatched.estimate) is not None:
            ends = proof.mismatched.low, proof.mismatched.high
            yield ShareEstimate(share, *ends, rows, basis=f"by {proof.labels:,} labels")


def count_shares(database: AuditDatabase, limit: BudgetLimit) -> Iterator[ShareEstimate]:
    hit, among = database.where(build_share_condition(database, limit)), database.where(limit.among)
    column = database.column(limit.per, "per") if limit.per else "''"
    sample = database.manifest.get("sample")
    is_complete = database.state == "complete" and not sample and not database.manifest.get("failed_shards")
    groups = database.rows(
        f"SELECT {column} AS value, count(*) AS n, count(*) FILTER ({hit}) AS hits "
        f"FROM {database.table(hit, among, column)} WHERE {among} GROUP BY value HAVING n > 0"
    )
    for group in groups:
        name = describe_group(database, limit.per, column, group["value"], None)[0] if limit.per else ""
        estimate = estimate_count(group["hits"], group["n"], name, exact=is_complete)
        if sample and not limit.per:  # keys of random shards: more alike than random keys
            sums = f"count(*) FILTER ({hit} AND {among})", f"count(*) FILTER ({among})"
            low, high = estimate_intervals(database, [sums])[0]
            estimate = replace(estimate, low=low, high=high)
        yield estimate


def estimate_count(hits: int, rows: int, group: str = "", *, exact: bool) -> ShareEstimate:
    share = hits / rows
    return ShareEstimate(share, *((share, share) if exact else wilson_interval(hits, rows, Z)), rows, group)


def estimate_change(database: AuditDatabase, baseline: AuditDatabase, limit: BudgetLimit) -> ShareEstimate:
    """How much larger a share is than in the baseline, for samples of one source; equal rows are no noise."""
    for identity in IDENTITIES.values():
        keys, hits = fetch_marked_keys(database, limit, identity)
        old_keys, old_hits = fetch_marked_keys(baseline, limit, identity)
        _, places, old_places = np.intersect1d(keys, old_keys, return_indices=True)
        if len(places):
            break
    else:
        raise BudgetError(f"the baseline {baseline.path} has no row in common with {database.path}")
    if limit.share == MISMATCHED:
        shares = [*estimate_shares(database, limit), *estimate_shares(baseline, limit)]
    else:
        shares = [estimate_count(int(marks.sum()), len(marks), exact=False) for marks in (hits, old_hits)]
    if len(shares) < 2:
        raise AuditError("no pair of one of the audits has an estimate")
    marks, old_marks = hits[places], old_hits[old_places]
    varies = marks.std() and old_marks.std()
    likeness = np.corrcoef(marks, old_marks)[0, 1] if varies else (marks == old_marks).all()
    correlation = float(likeness) * len(places) / math.sqrt(len(hits) * len(old_hits))
    new, old = ((share.high - share.low) / 2 for share in shares)
    margin = round(math.sqrt(max(0.0, new**2 + old**2 - 2 * correlation * new * old)), 6)
    change = shares[0].share - shares[1].share
    return ShareEstimate(change, change - margin, change + margin, len(hits))


def fetch_marked_keys(database: AuditDatabase, limit: BudgetLimit, identity: str) -> tuple[Any, Any]:
    rows, hit = database.where(limit.among), database.where(build_share_condition(database, limit))
    table = database.run(
        f"SELECT {identity} AS k, coalesce({hit}, FALSE) AS hit FROM {database.table(rows, hit)} WHERE {rows}"
    )
    return table["k"].to_numpy(), table["hit"].to_numpy()
