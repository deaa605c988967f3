"""Label samples: the rows to judge for a certificate, drawn once for a set of rules and saved in certify/NAME.json.

The same rules, number of labels and seed give the same sample, so that judging can be resumed. The labels are the marks
of the audit's reviews, wherever they were made.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from auditor.audit_folder.folder import Folder
from auditor.audit_folder.json_validation import CompleteShape, read_valid_json
from auditor.errors import AuditorError
from auditor.keep.rule_effects import build_clauses, conjoin_clauses
from auditor.query.database import AuditDatabase
from auditor.query.row_queries import read_rows_at
from auditor.query.rules import Rules
from auditor.review.certificate import Stratum
from auditor.review.strata import draw_rows, stratify_rows
from auditor.vectors import Doubles

FOLDER = "certify"
JUDGED = 0.9  # share of the leading rows that must be judged
ROW = CompleteShape(uid=str, caption_index=int, shard=str, key=str, stratum=int)
STRATUM = CompleteShape(rows=int, flagged=bool, removed=bool)
SHAPE = CompleteShape(name=str, rules={}, labels=int, seed=int, strata=[STRATUM], rows=[ROW])


class CertifyError(AuditorError):
    """A sample that cannot be drawn or has not been judged."""


@dataclass(frozen=True, slots=True)
class LabelRow:
    uid: str
    caption_index: int
    shard: str
    key: str
    stratum: int


@dataclass(frozen=True, slots=True)
class LabelSample:
    """The rows to judge, in order, and the strata they represent."""

    name: str
    rules: dict[str, Any]  # of the filter; empty if there is none
    labels: int
    seed: int
    strata: tuple[Stratum, ...]  # without labels yet
    rows: tuple[LabelRow, ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> "LabelSample":
        strata = tuple(Stratum(**stratum) for stratum in saved["strata"])
        return cls(**{**saved, "strata": strata, "rows": tuple(LabelRow(**row) for row in saved["rows"])})


def find_label_sample(database: AuditDatabase, rules: Rules, labels: int, seed: int = 0) -> LabelSample:
    """The sample of these rules; drawn and saved if it does not exist yet."""
    folder, name = database.files.folder, name_label_sample(database, rules, labels, seed)
    if folder.exists(f"{FOLDER}/{name}.json"):
        return read_label_sample(folder, name)
    sample = draw_label_sample(database, rules, labels, seed, name)
    folder.write_json(f"{FOLDER}/{name}.json", sample.to_dict())
    return sample


def name_label_sample(database: AuditDatabase, rules: Rules, labels: int, seed: int) -> str:
    """A short hash of everything that the strata depend on."""
    shares = {kind: statistic.get("pi0") for kind, statistic in database.statistics.items()}
    parts = [rules.to_dict(), labels, seed, database.thresholds.get("mismatch"), shares, database.counts["rows"]]
    return hashlib.blake2b(json.dumps(parts, sort_keys=True, default=str).encode(), digest_size=4).hexdigest()


def read_label_sample(folder: Folder, name: str) -> LabelSample:
    file = f"{FOLDER}/{name}.json"
    try:
        return LabelSample.from_dict(read_valid_json(folder, file, SHAPE, "remove it to draw it again"))
    except (TypeError, ValueError):
        raise CertifyError(f"{folder.path(file)} is damaged; remove it to draw it again") from None


def list_label_samples(folder: Folder) -> list[LabelSample]:
    return [read_label_sample(folder, name) for name in folder.names(FOLDER, ".json")]


def draw_label_sample(database: AuditDatabase, rules: Rules, labels: int, seed: int, name: str) -> LabelSample:
    usable = fetch_usable_rows(database, rules)
    p = usable["p"].astype(np.float64)
    if not len(p):
        raise CertifyError(f"{database.path} has no usable row to judge")
    flagged, removed = usable["flagged"].astype(bool), usable["removed"].astype(bool)
    division = stratify_rows(p, rank_suspicion(p, usable["z"].astype(np.float64)), flagged, removed, labels)
    rows, strata = draw_rows(division, seed)
    places = [{name: int(usable[name][row]) for name in ("file", "file_row_number")} for row in rows]
    label_rows = read_rows_at(database, places, ["uid", "caption_index", "shard", "key"]).to_pylist()
    drawn = tuple(LabelRow(**row, stratum=stratum) for row, stratum in zip(label_rows, strata.tolist(), strict=True))
    groups = zip(division.rows.tolist(), division.flagged.tolist(), division.removed.tolist(), strict=True)
    parts = tuple(Stratum(count, 0, 0, flagged=flag, removed=gone) for count, flag, gone in groups)
    return LabelSample(name, rules.to_dict(), labels, seed, parts, drawn)


def fetch_usable_rows(database: AuditDatabase, rules: Rules) -> dict[str, Any]:
    """What stratification needs of every usable row, as arrays; z is the score standardized within its kind."""
    condition = conjoin_clauses(build_clauses(database, rules))
    table = database.run(
        "SELECT file, file_row_number, CASE WHEN p_mismatch BETWEEN 0 AND 1 THEN p_mismatch ELSE 0.5 END AS p, "
        "coalesce((mismatch_score - avg(mismatch_score) OVER (PARTITION BY kind)) "
        "/ nullif(stddev_pop(mismatch_score) OVER (PARTITION BY kind), 0), 0) AS z, "
        f"mismatch AS flagged, NOT ({condition}) AS removed FROM {database.placed_rows(condition)} "
        "WHERE status = 'ok' "
        "ORDER BY file, file_row_number"
    )
    return {name: table[name].to_numpy() for name in table.column_names}


def rank_suspicion(p: Doubles, z: Doubles) -> Doubles:
    """Ranks by p; ties are broken by the score."""
    order = np.lexsort((-z, p))
    rank = np.empty(len(p))
    rank[order] = np.arange(len(p))
    return rank


def fetch_sample_marks(database: AuditDatabase, sample: LabelSample) -> list[str | None]:
    """The verdict of reviewers on each row of the sample; None if nobody has judged it."""
    verdicts = database.rows("SELECT uid, caption_index, review FROM verdicts")
    reviews = {(row["uid"], row["caption_index"]): row["review"] for row in verdicts}
    return [reviews.get((row.uid, row.caption_index)) for row in sample.rows]


def select_fair_marks(marks: Sequence[str | None]) -> list[str | None]:
    """The marks of the longest prefix of which 90% is judged; its unjudged rows count as unsure.

    Only a prefix is a random sample: rows judged for another reason, for instance as the most suspicious ones or for
    another sample, would bias the estimate.
    """
    is_judged = np.array([mark is not None for mark in marks], bool)
    share = np.cumsum(is_judged) / np.arange(1, len(is_judged) + 1)
    ends = np.flatnonzero(is_judged & (share >= JUDGED))
    end = int(ends[-1]) + 1 if len(ends) else 0
    return [(mark or "unsure") if place < end else None for place, mark in enumerate(marks)]


def count_labels(sample: LabelSample, marks: list[str | None]) -> list[Stratum]:
    counts = Counter((row.stratum, mark) for row, mark in zip(sample.rows, select_fair_marks(marks), strict=True))
    return [
        replace(stratum, bad=counts[h, "bad"], good=counts[h, "good"], unsure=counts[h, "unsure"])
        for h, stratum in enumerate(sample.strata)
    ]
