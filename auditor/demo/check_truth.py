"""Compare an audit of the generated corpus with the truth about it: what was planted, what was found, what was not.

`python -m auditor.demo.check_truth OUT` prints it again for a finished demo.
"""

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from auditor.audit import Audit
from auditor.console import table
from auditor.demo.demo_corpus import DemoError, read_truth
from auditor.demo.planted_defects import DEFECTS
from auditor.research.retrieval.analyses import auroc
from auditor.schema import HIGH_IS_SUSPICIOUS

Row = dict[str, Any]

# Which measurement should tell which defects; the first of each is what the sign is cut from.
MEASURES = {
    "swapped": ("p_mismatch",),
    "vague": ("matches_text", "uncertainty_text"),
    "blurred": ("sharpness", "matches_visual"),
    "occluded": ("entropy", "matches_visual"),
    "near_blank": ("contrast", "matches_visual"),
    "multi_scene": ("cuts", "frame_spread", "matches_visual", "uncertainty_visual"),
}


@dataclass(frozen=True)
class DefectFound:
    """One kind of defect: how many were planted, and for how many the audit says what it should."""

    defect: str
    meaning: str
    planted: int
    found: int
    sign: str

    @property
    def recall(self) -> float:
        return self.found / self.planted if self.planted else float("nan")


@dataclass(frozen=True)
class SignRaised:
    """One sign (a flag, a status): on how many rows, how many of them were planted for it or have other faults."""

    sign: str
    rows: int
    planted: int
    otherwise_flawed: int

    @property
    def sound(self) -> int:
        return self.rows - self.planted - self.otherwise_flawed

    @property
    def precision(self) -> float:
        return self.planted / self.rows if self.rows else float("nan")


@dataclass(frozen=True)
class NoiseFound:
    """The share of mismatched pairs of one kind, planted and as estimated without the truth.

    `unfit` adds what fits nothing in particular: vague captions, damaged media. Its pairs are neither right nor wrong.
    """

    kind: str
    planted: float
    unfit: float
    estimated: float
    low: float
    high: float


@dataclass(frozen=True)
class Findings:
    defects: list[DefectFound]
    signs: list[SignRaised]
    noise: list[NoiseFound]
    auroc: dict[str, dict[str, float]]  # defect -> measurement -> how well it tells the defect from sound pairs

    def to_dict(self) -> dict[str, Any]:
        return {
            "defects": [{**asdict(d), "recall": d.recall} for d in self.defects],
            "signs": [{**asdict(s), "precision": s.precision} for s in self.signs],
            "noise": [asdict(n) for n in self.noise],
            "auroc": self.auroc,
        }


def joined_rows(audit: Audit, truth: Sequence[Row]) -> list[Row]:
    """The rows of the audit, each with the truth about it and whether each sign is raised; none may be missing."""
    signs = ", ".join(f"coalesce({sign}, FALSE) AS sign_{i}" for i, sign in enumerate(all_signs()))
    measures = ", ".join(sorted({m for names in MEASURES.values() for m in names}))
    query = f"SELECT key, coalesce(caption_index, 0) AS caption_index, kind, status, {signs}, {measures} FROM samples"
    found = {identity(row): row for row in audit.sql(query).to_pylist()}
    known = {(row["key"], row["occurrence"], row["caption_index"]): row for row in truth}
    if set(found) != set(known):
        odd = sorted(set(found) ^ set(known))
        raise DemoError(f"the audit and the truth differ in {len(odd)} rows, for example {odd[0]}: is it this corpus?")
    return [{**found[name], "defect": known[name]["defect"], "planted_kind": known[name]["kind"]} for name in known]


def identity(row: Row) -> tuple[str, int, int]:
    """Key, occurrence of the key, caption: the corpus repeats a key once at most, and an audit says which is which."""
    return row["key"], int(row["status"] == "duplicate_key"), row["caption_index"]


def all_signs() -> list[str]:
    return list(dict.fromkeys(defect.found for defect in DEFECTS.values()))


def compare(audit: Audit, truth: Sequence[Row]) -> Findings:
    """What the audit found against what is true."""
    rows = joined_rows(audit, truth)
    signs = {sign: f"sign_{i}" for i, sign in enumerate(all_signs())}
    defects = []
    for name, meaning in DEFECTS.items():
        planted = [row for row in rows if row["defect"] == name]
        found = sum(row[signs[meaning.found]] for row in planted)
        defects.append(DefectFound(name, meaning.words, len(planted), found, meaning.found))
    raised = [sign_raised(sign, [row for row in rows if row[column]]) for sign, column in signs.items()]
    return Findings(defects, raised, noise_found(audit, rows), measured_aurocs(rows))


def sign_raised(sign: str, rows: Sequence[Row]) -> SignRaised:
    planted = sum(row["defect"] is not None and DEFECTS[row["defect"]].found == sign for row in rows)
    flawed = sum(row["defect"] is not None for row in rows)
    return SignRaised(sign, len(rows), planted, flawed - planted)


def noise_found(audit: Audit, rows: Sequence[Row]) -> list[NoiseFound]:
    result = []
    for noise in audit.summary().noise:
        usable = [row for row in rows if row["status"] == "ok" and row["kind"] == noise.kind]
        planted = sum(row["defect"] == "swapped" for row in usable) / max(1, len(usable))
        unfit = sum(row["defect"] in MEASURES for row in usable) / max(1, len(usable))
        result.append(NoiseFound(noise.kind, planted, unfit, noise.share, noise.low, noise.high))
    return result


def measured_aurocs(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    usable = [row for row in rows if row["status"] == "ok"]
    result: dict[str, dict[str, float]] = {}
    for defect, measures in MEASURES.items():
        kinds = DEFECTS[defect].applies
        compared = [row for row in usable if row["kind"] in kinds and row["defect"] in (None, defect)]
        labels = np.array([row["defect"] == defect for row in compared])
        for measure in measures:
            values = np.array([row[measure] for row in compared], dtype=np.float64)
            values *= 1 if measure in HIGH_IS_SUSPICIOUS else -1
            result.setdefault(defect, {})[measure] = auroc(values, labels)
    return result


def show(findings: Findings) -> None:
    """Print the findings as tables."""
    table([defect_row(d, findings) for d in findings.defects], "planted defects, and how many the audit found")
    table([sign_row(s) for s in findings.signs], "what the audit says, and how often it is right")
    table(
        [
            {
                "kind": n.kind,
                "captions swapped": f"{n.planted:.1%}",
                "with vague and damaged": f"{n.unfit:.1%}",
                "estimated": f"{n.estimated:.1%}",
                "90% interval": f"{n.low:.1%} - {n.high:.1%}",
            }
            for n in findings.noise
        ],
        "share of mismatched pairs, estimated without the truth",
    )


def defect_row(found: DefectFound, findings: Findings) -> Row:
    measures = findings.auroc.get(found.defect, {})
    return {
        "defect": found.defect.replace("_", " "),
        "what it is": found.meaning,
        "planted": found.planted,
        "found": found.found,
        "recall": f"{found.recall:.0%}",
        "told apart by (AUROC)": ", ".join(f"{name} {value:.3f}" for name, value in measures.items()),
    }


def sign_row(raised: SignRaised) -> Row:
    return {
        "the audit says": raised.sign,
        "rows": raised.rows,
        "planted for it": raised.planted,
        "other planted defects": raised.otherwise_flawed,
        "sound": raised.sound,
        "precision": f"{raised.precision:.0%}" if raised.rows else "",
    }


if __name__ == "__main__":
    place = Path(sys.argv[1])
    show(compare(Audit(place / "audit"), read_truth(place)))
