"""Two audits side by side: of one corpus with two models, or of two versions of a corpus.

Rows are matched by uid; where the two share none (another version of the shards), by shard, key and caption. Rank
correlations of very large audits are computed on about a million of the matched rows, all counts on every row.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from auditor.query.database import AuditDatabase
from auditor.query.sandbox import Sandbox
from auditor.query.summary import Noise, noise_estimates
from auditor.schema import FLAGS, HEADLINES

SAMPLE = 1_000_000
# 64 bits of the identity are enough to match ten million rows, and a fraction of the memory of the text
IDENTITIES = {"uid": "hash(uid)", "shard, key and caption": "hash(shard, key, coalesce(caption_index, 0))"}


@dataclass(frozen=True, slots=True)
class FlagChange:
    flag: str
    both: int
    newly: int  # flagged in the second only
    gone: int  # flagged in the first only


@dataclass(frozen=True, slots=True)
class Comparison:
    first: str
    second: str
    matched: int
    matched_by: str
    only_first: int
    only_second: int
    correlation: dict[str, float | None]  # Spearman's, over rows usable in both
    correlation_rows: int
    flags: list[FlagChange]
    status_changes: list[dict[str, Any]]
    moved: list[dict[str, Any]]  # the rows whose p_mismatch changed most
    noise_first: list[Noise]
    noise_second: list[Noise]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def compare(first: AuditDatabase, second: AuditDatabase, n: int = 20) -> Comparison:
    sandbox = open_both(first, second)
    try:
        rows_first, rows_second = (count(sandbox, table) for table in ("first_rows", "second_rows"))
        identity = find_identity(sandbox)
        key = IDENTITIES[identity]
        columns = ", ".join(["status", *HEADLINES, *FLAGS])
        joined = (
            f"(SELECT {key} AS k, {columns} FROM first_rows) a "
            f"JOIN (SELECT {key} AS k, {columns} FROM second_rows) b USING (k)"
        )
        matched = count(sandbox, joined)
        correlation, used = correlations(sandbox, joined, matched)
        return Comparison(
            first=first.path,
            second=second.path,
            matched=matched,
            matched_by=identity,
            only_first=max(rows_first - matched, 0),
            only_second=max(rows_second - matched, 0),
            correlation=correlation,
            correlation_rows=used,
            flags=flag_changes(sandbox, joined),
            status_changes=status_changes(sandbox, joined),
            moved=moved_most(sandbox, joined, key, n),
            noise_first=noise_estimates(first.manifest.get("statistics", {})),
            noise_second=noise_estimates(second.manifest.get("statistics", {})),
        )
    finally:
        sandbox.close()


def open_both(first: AuditDatabase, second: AuditDatabase) -> Sandbox:
    stores = {str(fs.protocol): fs for one in (first, second) if (fs := one.files.filesystem) is not None}
    sandbox = Sandbox([*first.files.readable, *second.files.readable], first.limits, list(stores.values()))
    sandbox.define(f"CREATE VIEW first_rows AS {first.view()}")
    sandbox.define(f"CREATE VIEW second_rows AS {second.view()}")
    return sandbox


def count(sandbox: Sandbox, source: str) -> int:
    found: int = sandbox.rows(f"SELECT count(*) AS n FROM {source}")[0]["n"]
    return found


def find_identity(sandbox: Sandbox) -> str:
    """By uid if the audits share any."""
    shared = "SELECT 1 AS one FROM first_rows WHERE hash(uid) IN (SELECT hash(uid) FROM second_rows) LIMIT 1"
    return "uid" if sandbox.rows(shared) else "shard, key and caption"


def correlations(sandbox: Sandbox, joined: str, matched: int) -> tuple[dict[str, float | None], int]:
    step = max(1, round(matched / SAMPLE))
    columns = ", ".join(f"a.{column} AS a_{column}, b.{column} AS b_{column}" for column in HEADLINES)
    table = sandbox.run(
        f"SELECT {columns} FROM {joined} WHERE a.status = 'ok' AND b.status = 'ok' AND (k >> 8) % {step} = 0"
    )
    return {column: spearman(*both(table, column)) for column in HEADLINES}, table.num_rows


def both(table: pa.Table, column: str) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    first, second = table[f"a_{column}"].to_numpy(), table[f"b_{column}"].to_numpy()
    known = ~(np.isnan(first) | np.isnan(second))
    return first[known], second[known]


def spearman(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> float | None:
    """Correlation of ranks, ties sharing the mean of theirs; None where one side does not vary."""
    if len(first) < 2:
        return None
    x, y = ranks(first), ranks(second)
    x, y = x - x.mean(), y - y.mean()
    scale = float(np.sqrt((x * x).sum() * (y * y).sum()))
    return float((x * y).sum()) / scale if scale else None


def ranks(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    middle: npt.NDArray[np.float64] = (last - (counts - 1) / 2)[inverse]
    return middle


def flag_changes(sandbox: Sandbox, joined: str) -> list[FlagChange]:
    parts = ", ".join(
        f"count(*) FILTER (a.{flag} AND b.{flag}) AS {flag}_both, "
        f"count(*) FILTER (NOT a.{flag} AND b.{flag}) AS {flag}_newly, "
        f"count(*) FILTER (a.{flag} AND NOT b.{flag}) AS {flag}_gone"
        for flag in FLAGS
    )
    found = sandbox.rows(f"SELECT {parts} FROM {joined}")[0]
    return [FlagChange(flag, found[f"{flag}_both"], found[f"{flag}_newly"], found[f"{flag}_gone"]) for flag in FLAGS]


def status_changes(sandbox: Sandbox, joined: str) -> list[dict[str, Any]]:
    return sandbox.rows(
        f"SELECT a.status AS first, b.status AS second, count(*) AS rows FROM {joined} WHERE a.status <> b.status "
        "GROUP BY ALL ORDER BY rows DESC, first, second LIMIT 20"
    )


def moved_most(sandbox: Sandbox, joined: str, key: str, n: int) -> list[dict[str, Any]]:
    """The largest changes of p_mismatch; captions are read afterwards, for these rows only."""
    found = sandbox.rows(
        "SELECT k, a.p_mismatch AS p_first, b.p_mismatch AS p_second, a.similarity AS similarity_first, "
        f"b.similarity AS similarity_second FROM {joined} WHERE a.status = 'ok' AND b.status = 'ok' "
        f"ORDER BY abs(b.p_mismatch - a.p_mismatch) DESC NULLS LAST, k LIMIT {int(n)}"
    )
    names = identities(sandbox, key, [row["k"] for row in found])
    return [{**names.get(row.pop("k"), {}), **row} for row in found]


def identities(sandbox: Sandbox, key: str, wanted: Sequence[int]) -> dict[int, dict[str, Any]]:
    if not wanted:
        return {}
    listed = ", ".join(str(k) for k in wanted)
    rows = sandbox.rows(
        f"SELECT {key} AS k, uid, shard, key, caption_index, caption FROM first_rows WHERE {key} IN ({listed})"
    )
    return {row.pop("k"): row for row in rows}
