"""Two audits side by side: of one corpus with two models, or of two versions of a corpus.

Rows are matched by uid; where the two share none (another version of the shards), by shard, key and caption. Rank
correlations of very large audits are computed on some 300,000 of the matched rows, all counts on every row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from auditor.query.database import AuditDatabase
from auditor.query.row_queries import at_places
from auditor.query.sandbox import Sandbox, name
from auditor.query.summary import Noise, noise_estimates
from auditor.schema import FLAGS, HEADLINES

SAMPLE = 300_000
# 64 bits of the identity are enough to match ten million rows, and a fraction of the memory of the text
IDENTITIES = {"uid": "hash(uid)", "shard, key and caption": "hash(shard, key, coalesce(caption_index, 0))"}

MOST_CHANGES = 20  # of a status, shown
SHOWN = ["uid", "shard", "key", "caption_index", "caption"]  # of a row that moved
# Of the rows of a pair of statuses.
COUNTED = ", ".join(
    [
        "a.status AS first, b.status AS second, count(*) AS rows",
        *(f"count(*) FILTER (a.{flag} AND b.{flag}) AS {flag}_both" for flag in FLAGS),
        *(f"count(*) FILTER (NOT a.{flag} AND b.{flag}) AS {flag}_newly" for flag in FLAGS),
        *(f"count(*) FILTER (a.{flag} AND NOT b.{flag}) AS {flag}_gone" for flag in FLAGS),
        "max_by(struct_pack(file := file, number := number, p_first := a.p_mismatch, p_second := b.p_mismatch, "
        "similarity_first := a.similarity, similarity_second := b.similarity), "
        "abs(b.p_mismatch - a.p_mismatch), {n}) AS moved",
    ]
)


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
        identity, groups = matched_rows(sandbox, n)
        key = IDENTITIES[identity]
        matched = sum(group["rows"] for group in groups)
        correlation, used = correlations(sandbox, key, matched, shared_columns(first, second))
        return Comparison(
            first=first.path,
            second=second.path,
            matched=matched,
            matched_by=identity,
            only_first=max(rows_first - matched, 0),
            only_second=max(rows_second - matched, 0),
            correlation=correlation,
            correlation_rows=used,
            flags=flag_changes(groups),
            status_changes=status_changes(groups),
            moved=moved_most(first, groups),
            noise_first=noise_estimates(first.manifest.get("statistics", {})),
            noise_second=noise_estimates(second.manifest.get("statistics", {})),
        )
    finally:
        sandbox.close()


def shared_columns(first: AuditDatabase, second: AuditDatabase) -> list[str]:
    """Columns of numbers that others brought to both audits."""
    return [column for column in first.extra_numbers if column in second.extra_numbers]


def open_both(first: AuditDatabase, second: AuditDatabase) -> Sandbox:
    extended = bool(shared_columns(first, second))
    stores = {str(fs.protocol): fs for one in (first, second) if (fs := one.files.filesystem) is not None}
    sandbox = Sandbox([*first.files.readable, *second.files.readable], first.limits, list(stores.values()))
    sandbox.define(f"CREATE VIEW first_rows AS {first.view(located=True, extended=extended)}")
    sandbox.define(f"CREATE VIEW second_rows AS {second.view(extended=extended)}")
    return sandbox


def count(sandbox: Sandbox, source: str) -> int:
    found: int = sandbox.rows(f"SELECT count(*) AS n FROM {source}")[0]["n"]
    return found


def matched_rows(sandbox: Sandbox, n: int) -> tuple[str, list[dict[str, Any]]]:
    """What the rows are matched by, uid if the audits share any, and all that is counted of them: in one join.

    A group for each pair of statuses, with how many carry each flag in both or in one, and the rows that moved most.
    """
    groups: list[dict[str, Any]] = []
    for identity, key in IDENTITIES.items():
        groups = sandbox.rows(f"SELECT {COUNTED.format(n=int(n))} FROM {joined(key, 'TRUE')} GROUP BY ALL")
        if groups:
            return identity, groups
    return identity, groups


def joined(key: str, condition: str, more: Sequence[str] = ()) -> str:
    columns = ", ".join([f"{key} AS k", "status", *HEADLINES, *FLAGS, *map(name, more)])
    first = f"SELECT {columns}, file, file_row_number AS number FROM first_rows WHERE {condition}"
    return f"({first}) a JOIN (SELECT {columns} FROM second_rows WHERE {condition}) b USING (k)"


def correlations(sandbox: Sandbox, key: str, matched: int, more: Sequence[str]) -> tuple[dict[str, float | None], int]:
    """Of the headlines, and of columns that others brought to both."""
    step = max(1, round(matched / SAMPLE))
    measures = [*HEADLINES, *more]
    columns = ", ".join(f"{s}.{name(column)} AS {name(f'{s}_{column}')}" for column in measures for s in ("a", "b"))
    some = joined(key, f"status = 'ok' AND ({key} >> 8) % {step} = 0", more)  # before they are joined
    table = sandbox.run(f"SELECT {columns} FROM {some}")
    return {column: spearman(*both(table, column)) for column in measures}, table.num_rows


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


def flag_changes(groups: Sequence[Mapping[str, Any]]) -> list[FlagChange]:
    return [
        FlagChange(flag, *(sum(group[f"{flag}_{change}"] for group in groups) for change in ("both", "newly", "gone")))
        for flag in FLAGS
    ]


def status_changes(groups: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    found = [{name: group[name] for name in ("first", "second", "rows")} for group in groups]
    changed = [one for one in found if one["first"] != one["second"]]
    return sorted(changed, key=lambda one: (-one["rows"], one["first"], one["second"]))[:MOST_CHANGES]


def moved_most(first: AuditDatabase, groups: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The largest changes of p_mismatch; captions are read afterwards, by the places of these rows."""
    found = [row for group in groups if group["first"] == group["second"] == "ok" for row in group["moved"] or ()]
    found.sort(key=lambda row: (-abs(row["p_second"] - row["p_first"]), row["file"], row["number"]))
    rows = at_places(first, found).select(SHOWN).to_pylist()
    scores = [{name: value for name, value in row.items() if name not in ("file", "number")} for row in found]
    return [{**row, **score} for row, score in zip(rows, scores, strict=True)]
