"""The precision of the flag `mismatch`: as reviewers judged it, and as its probabilities predict it."""

from dataclasses import dataclass

from auditor.keep.uncertainty_cuts import wilson_interval
from auditor.query.database import AuditDatabase
from auditor.query.sample_tables import UID_ORDER


@dataclass(frozen=True, slots=True)
class FlagPrecision:
    """The share of judged flagged rows that reviewers called bad, with its 95% interval."""

    judged: int
    bad: int
    measured: float | None
    low: float | None
    high: float | None
    expected: float | None  # the mean p_mismatch of all flagged rows


def measure_flag_precision(database: AuditDatabase) -> FlagPrecision:
    """Measure how often reviewers agreed with the flag `mismatch`, and how often its probabilities expect it.

    Only rows that are flagged now count; 'unsure' marks do not.
    """
    sql = f"SELECT avg(p_mismatch) FROM {database.table()} WHERE mismatch"
    expected: float | None = database.cached("expected precision", lambda: database.value(sql))
    judged = bad = 0
    if database.rows("SELECT 1 FROM verdicts LIMIT 1"):  # a join is slow
        counts = database.rows(
            "SELECT count(*) FILTER (review = 'bad') AS bad, count(*) FILTER (review = 'good') AS good "
            f"FROM {database.table()} JOIN (SELECT *, {UID_ORDER} AS uid_order FROM verdicts) "
            "USING (uid_order, caption_index) WHERE mismatch"
        )[0]
        bad, judged = counts["bad"], counts["bad"] + counts["good"]
    if not judged:
        return FlagPrecision(0, 0, None, None, None, expected)
    return FlagPrecision(judged, bad, bad / judged, *wilson_interval(bad, judged), expected)
