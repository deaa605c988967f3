"""Compare two audits: of one corpus with two models, or of two versions of a corpus.

Rows are matched by uid; if the audits share no uid (another version of the shards), by shard, key and caption index.
Rank correlations of very large audits are computed on about 300,000 of the matched rows; counts include every row.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from auditor.query.database import AuditDatabase
from auditor.query.row_queries import read_rows_at
from auditor.query.sandbox import Sandbox, quote_name
from auditor.query.summary import Noise, read_noise_estimates
from auditor.schema import FLAGS, HEADLINES

SAMPLE = 300_000
# 64 bits are enough to match ten million rows, and take a fraction of the memory of the text.
IDENTITIES = {"uid": "hash(uid)", "shard, key and caption": "hash(shard, key, coalesce(caption_index, 0))"}

MOST_CHANGES = 20  # of statuses, shown
SHOWN = ["uid", "shard", "key", "caption_index", "caption"]  # columns of a row that moved
# Counts for each pair of statuses.
COUNTED = ", ".join(
    [
        "a.status AS first, b.status AS second, count(*) AS rows",
        *(f"count(*) FILTER (a.{flag} AND b.{flag}) AS {flag}_both" for flag in FLAGS),
        *(f"count(*) FILTER (NOT a.{flag} AND b.{flag}) AS {flag}_newly" for flag in FLAGS),
        *(f"count(*) FILTER (a.{flag} AND NOT b.{flag}) AS {flag}_gone" for flag in FLAGS),
        "max_by(struct_pack(file := file, file_row_number := file_row_number, p_first := a.p_mismatch, "
        "p_second := b.p_mismatch, similarity_first := a.similarity, similarity_second := b.similarity), "
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


def compare_audits(first: AuditDatabase, second: AuditDatabase, n: int = 20) -> Comparison:
    shared = [column for column in first.extra_numbers if column in second.extra_numbers]
    stores = {str(fs.protocol): fs for database in (first, second) if (fs := database.files.filesystem) is not None}
    readable = [*first.files.readable, *second.files.readable]
    with closing(Sandbox(readable, first.limits, list(stores.values()))) as sandbox:
        sandbox.define(
            f"CREATE VIEW first_rows AS {first.view(with_places=True, extended=bool(shared))}",
            f"CREATE VIEW second_rows AS {second.view(extended=bool(shared))}",
        )
        rows_first, rows_second = (sandbox.value(f"SELECT count(*) FROM {t}") for t in ("first_rows", "second_rows"))
        identity, groups = match_audit_rows(sandbox, n)
        matched = sum(group["rows"] for group in groups)
        correlation, used = correlate_columns(sandbox, IDENTITIES[identity], matched, shared)
    return Comparison(
        first=first.path,
        second=second.path,
        matched=matched,
        matched_by=identity,
        only_first=max(rows_first - matched, 0),
        only_second=max(rows_second - matched, 0),
        correlation=correlation,
        correlation_rows=used,
        flags=count_flag_changes(groups),
        status_changes=count_status_changes(groups),
        moved=list_moved_rows(first, groups),
        noise_first=read_noise_estimates(first.statistics),
        noise_second=read_noise_estimates(second.statistics),
    )


def match_audit_rows(sandbox: Sandbox, n: int) -> tuple[str, list[dict[str, Any]]]:
    """Return the identity that matches the rows, and the counts of the matched rows, from one join.

    There is one group for each pair of statuses: how many rows have each flag in both audits or in one of them, and the
    rows that moved most.
    """
    for identity, key in IDENTITIES.items():
        groups = sandbox.rows(f"SELECT {COUNTED.format(n=int(n))} FROM {build_join_clause(key, 'TRUE')} GROUP BY ALL")
        if groups:
            return identity, groups
    return identity, []


def build_join_clause(key: str, condition: str, extra_columns: Sequence[str] = ()) -> str:
    columns = ", ".join([f"{key} AS k", "status", *HEADLINES, *FLAGS, *map(quote_name, extra_columns)])
    first = f"SELECT {columns}, file, file_row_number FROM first_rows WHERE {condition}"
    return f"({first}) a JOIN (SELECT {columns} FROM second_rows WHERE {condition}) b USING (k)"


def correlate_columns(
    sandbox: Sandbox, key: str, matched: int, extra_columns: Sequence[str]
) -> tuple[dict[str, float | None], int]:
    step = max(1, round(matched / SAMPLE))
    measures = [*HEADLINES, *extra_columns]
    columns = ", ".join(f"{s}.{quote_name(c)} AS {quote_name(f'{s}_{c}')}" for c in measures for s in ("a", "b"))
    # the sample is taken before the rows are joined
    source = build_join_clause(key, f"status = 'ok' AND ({key} >> 8) % {step} = 0", extra_columns)
    table = sandbox.run(f"SELECT {columns} FROM {source}")
    correlations = {c: compute_spearman(table[f"a_{c}"].to_numpy(), table[f"b_{c}"].to_numpy()) for c in measures}
    return correlations, table.num_rows


def compute_spearman(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> float | None:
    """Return the rank correlation of pairs of numbers, with mean ranks for ties; None if one side is constant."""
    is_number = ~(np.isnan(first) | np.isnan(second))
    if is_number.sum() < 2:
        return None
    x, y = (ranks - ranks.mean() for ranks in (rank_values(first[is_number]), rank_values(second[is_number])))
    scale = float(np.sqrt((x * x).sum() * (y * y).sum()))
    return float((x * y).sum()) / scale if scale else None


def rank_values(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    middle: npt.NDArray[np.float64] = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return middle


def count_flag_changes(groups: Sequence[Mapping[str, Any]]) -> list[FlagChange]:
    return [
        FlagChange(flag, *(sum(group[f"{flag}_{change}"] for group in groups) for change in ("both", "newly", "gone")))
        for flag in FLAGS
    ]


def count_status_changes(groups: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    changes = [{name: group[name] for name in ("first", "second", "rows")} for group in groups]
    changed = [change for change in changes if change["first"] != change["second"]]
    return sorted(changed, key=lambda change: (-change["rows"], change["first"], change["second"]))[:MOST_CHANGES]


def list_moved_rows(first: AuditDatabase, groups: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """List the rows with the largest changes of p_mismatch; their captions are read afterwards, by place."""
    moves = [row for group in groups if group["first"] == group["second"] == "ok" for row in group["moved"] or ()]
    moves.sort(key=lambda row: (-abs(row["p_second"] - row["p_first"]), row["file"], row["file_row_number"]))
    rows = read_rows_at(first, moves, SHOWN).to_pylist()
    scores = [{name: row[name] for name in row if not name.startswith("file")} for row in moves]
    return [{**row, **score} for row, score in zip(rows, scores, strict=True)]
