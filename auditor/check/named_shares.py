"""The shares that a budget can name, each as the SQL condition of its rows: findings, statuses, flags, overlap."""

from typing import get_args

from auditor.audit_folder.fault_records import read_faults
from auditor.audit_folder.side_files import overlapping_digests
from auditor.check.budget import MISMATCHED, OVERLAP, BudgetLimit, refuse_unknown_names
from auditor.errors import AuditError
from auditor.query.database import AuditDatabase
from auditor.query.sandbox import quote_literal
from auditor.report.finding_rules import FAULT_TITLES, list_rules
from auditor.sweep.caption_facts import Likeness

GENERAL = {"unusable": "status <> 'ok'", "ambiguous": "ambiguous_visual OR ambiguous_text"}
LIKENESSES = {kind.replace(" ", "_"): f"looks_like = {quote_literal(kind)}" for kind in get_args(Likeness)}


class UnmeasuredError(AuditError):
    """A share that this audit has no measurement of yet; the message says how to get it."""


def list_named_conditions(database: AuditDatabase) -> dict[str, str]:
    """Every counted share with its condition. A rule that found no pattern in the audit selects no row."""
    absent = dict.fromkeys([*FAULT_TITLES, "language"], "FALSE")
    rules = database.cached("finding rules", lambda: list_rules(database))
    return {**GENERAL, **LIKENESSES, **absent, **{rule.name: rule.condition for rule in rules}}


def build_share_condition(database: AuditDatabase, limit: BudgetLimit) -> str:
    """The condition of the rows that a limit counts; for `mismatched`, of the pairs that are flagged."""
    if limit.where:
        return limit.where
    if limit.share == OVERLAP:
        return build_overlap_condition(database, limit.other)
    conditions = {**list_named_conditions(database), MISMATCHED: "mismatch"}
    refuse_unknown_names([limit.share], [*conditions, OVERLAP], "share")
    if limit.share in FAULT_TITLES and read_faults(database.files.folder) is None:
        raise UnmeasuredError(f"run `auditor faults {database.path}` first")
    return conditions[limit.share]


def build_overlap_condition(database: AuditDatabase, other: str) -> str:
    try:
        digests = overlapping_digests(database.files.folder, other)
    except AuditError as error:
        raise UnmeasuredError(str(error)) from None
    return f"media_digest IN ({', '.join(map(quote_literal, digests))})" if digests else "FALSE"
