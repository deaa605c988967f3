"""The rows of an audit to judge for a certificate: drawn once for a set of rules, kept in certify/NAME.json.

The same rules, number of labels and seed find the same sample again, so that judging may stop and go on. Marks are
those of the audit's reviews, wherever they were made.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from auditor.audit_folder.folder import Folder
from auditor.audit_folder.json_validation import Whole, read_shaped
from auditor.errors import AuditorError
from auditor.keep.rule_effects import all_of, clauses
from auditor.query.database import AuditDatabase
from auditor.query.rules import Rules
from auditor.query.sandbox import literal
from auditor.review.certificate import Stratum
from auditor.review.strata import Doubles, divide, draw

FOLDER = "certify"
JUDGED = 0.9  # share of a beginning that must be judged
ROW = Whole(uid=str, caption_index=int, shard=str, key=str, stratum=int)
STRATUM = Whole(rows=int, flagged=bool, removed=bool)
SHAPE = Whole(name=str, rules={}, labels=int, seed=int, strata=[STRATUM], rows=[ROW])


class CertifyError(AuditorError):
    """A sample that cannot be drawn, or one that nobody has judged."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A row to judge."""

    uid: str
    caption_index: int
    shard: str
    key: str
    stratum: int


@dataclass(frozen=True, slots=True)
class Sample:
    """Rows to judge in the order to judge them, and the strata they stand for."""

    name: str
    rules: dict[str, Any]  # of the filter; empty where there is none
    labels: int
    seed: int
    strata: tuple[Stratum, ...]  # without labels yet
    rows: tuple[Drawn, ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> "Sample":
        strata = tuple(Stratum(**stratum) for stratum in saved["strata"])
        return cls(**{**saved, "strata": strata, "rows": tuple(Drawn(**row) for row in saved["rows"])})


def find_sample(database: AuditDatabase, rules: Rules, labels: int, seed: int = 0) -> Sample:
    """The sample of these rules, drawn and kept where there is none yet."""
    folder, name = database.files.folder, name_of(database, rules, labels, seed)
    if folder.exists(f"{FOLDER}/{name}.json"):
        return read_sample(folder, name)
    sample = draw_sample(database, rules, labels, seed, name)
    folder.write_json(f"{FOLDER}/{name}.json", sample.to_dict())
    return sample


def name_of(database: AuditDatabase, rules: Rules, labels: int, seed: int) -> str:
    """Short, and another one as soon as anything changes that the division into strata reads."""
    shares = {kind: found.get("pi0") for kind, found in (database.manifest.get("statistics") or {}).items()}
    parts = [rules.to_dict(), labels, seed, database.thresholds.get("mismatch"), shares, database.counts["rows"]]
    return hashlib.blake2b(json.dumps(parts, sort_keys=True, default=str).encode(), digest_size=4).hexdigest()


def read_sample(folder: Folder, name: str) -> Sample:
    file = f"{FOLDER}/{name}.json"
    try:
        return Sample.from_dict(read_shaped(folder, file, SHAPE, "remove it, and it is drawn again"))
    except (TypeError, ValueError):
        raise CertifyError(f"{folder.path(file)} is damaged; remove it, and it is drawn again") from None


def list_samples(folder: Folder) -> list[Sample]:
    """All that were drawn, the newest name last."""
    return [read_sample(folder, name) for name in folder.names(FOLDER, ".json")]


def draw_sample(database: AuditDatabase, rules: Rules, labels: int, seed: int, name: str) -> Sample:
    found = usable_rows(database, rules)
    p = found["p"].astype(np.float64)
    if not len(p):
        raise CertifyError(f"{database.path} has no usable row to judge")
    flagged, removed = found["flagged"].astype(bool), found["removed"].astype(bool)
    division = divide(p, suspicion(p, found["z"].astype(np.float64)), flagged, removed, labels)
    rows, strata = draw(division, seed)
    drawn = name_rows(database, found["file"][rows], found["number"][rows], strata.tolist())
    described = zip(division.rows.tolist(), division.flagged.tolist(), division.removed.tolist(), strict=True)
    parts = tuple(Stratum(count, 0, 0, flagged=flag, removed=gone) for count, flag, gone in described)
    return Sample(name, rules.to_dict(), labels, seed, parts, drawn)


def usable_rows(database: AuditDatabase, rules: Rules) -> dict[str, Any]:
    """What the division reads of every usable row, as arrays; z is the score against others of its kind."""
    kept = all_of(clauses(database, rules))
    source = f"({database.view(located=True, extended=database.extends(kept))})"
    if "review" in kept.lower():
        source = f"(SELECT * FROM {source} LEFT JOIN verdicts USING (uid, caption_index))"
    table = database.run(
        "SELECT file, file_row_number AS number, coalesce(p_mismatch, 0.5) AS p, "
        "coalesce((mismatch_score - avg(mismatch_score) OVER (PARTITION BY kind)) "
        "/ nullif(stddev_pop(mismatch_score) OVER (PARTITION BY kind), 0), 0) AS z, "
        f"mismatch AS flagged, NOT ({kept}) AS removed FROM {source} AS samples WHERE status = 'ok' "
        "ORDER BY file, file_row_number"
    )
    return {name: table[name].to_numpy() for name in table.column_names}


def suspicion(p: Doubles, z: Doubles) -> Doubles:
    """Ranks: by p, and where p cannot tell rows apart by their score."""
    order = np.lexsort((-z, p))
    rank = np.empty(len(p))
    rank[order] = np.arange(len(p))
    return rank


def name_rows(database: AuditDatabase, file: Any, number: Any, strata: list[int]) -> tuple[Drawn, ...]:
    """Rows by their places, in the order given."""
    places = list(zip(file.tolist(), number.tolist(), strict=True))
    numbers = sorted({place[0] for place in places})
    listed = ", ".join(f"({numbers.index(f)}, {n}, {i})" for i, (f, n) in enumerate(places))
    found = database.rows(
        f"SELECT uid, caption_index, shard, key FROM ({database.view(database.files.only(numbers), located=True)}) "
        f"JOIN (VALUES {listed}) place(file, file_row_number, position) USING (file, file_row_number) ORDER BY position"
    )
    return tuple(Drawn(**row, stratum=stratum) for row, stratum in zip(found, strata, strict=True))


def marks_of_sample(database: AuditDatabase, sample: Sample) -> list[str | None]:
    """What reviewers say of each row of the sample; None where nobody has judged it."""
    uids = ", ".join(sorted({literal(row.uid) for row in sample.rows}))
    found = database.rows(f"SELECT uid, caption_index, review FROM verdicts WHERE uid IN ({uids})")
    known = {(row["uid"], row["caption_index"]): row["review"] for row in found}
    return [known.get((row.uid, row.caption_index)) for row in sample.rows]


def fair_marks(marks: Sequence[str | None]) -> list[str | None]:
    """The marks of the longest beginning of which nine rows in ten are judged; in it the others count as unsure.

    Only a beginning was drawn at random: rows that somebody judged for another reason, as the most suspicious ones or
    for another sample, would say more of suspicious rows than of the corpus.
    """
    judged = np.array([mark is not None for mark in marks], bool)
    share = np.cumsum(judged) / np.arange(1, len(judged) + 1)
    ends = np.flatnonzero(judged & (share >= JUDGED))
    end = int(ends[-1]) + 1 if len(ends) else 0
    return [(mark or "unsure") if place < end else None for place, mark in enumerate(marks)]


def judged_strata(sample: Sample, marks: list[str | None]) -> list[Stratum]:
    """The strata with what was said of the rows of the fair beginning."""
    seen: dict[int, list[str]] = {}
    for row, mark in zip(sample.rows, fair_marks(marks), strict=True):
        if mark is not None:
            seen.setdefault(row.stratum, []).append(mark)
    counted = []
    for number, stratum in enumerate(sample.strata):
        said = seen.get(number, [])
        counts = (said.count("bad"), said.count("good"), said.count("unsure"))
        counted.append(Stratum(stratum.rows, *counts, stratum.flagged, stratum.removed))
    return counted
