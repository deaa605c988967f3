"""Compare the audit of a generated corpus with the planted defects: which were found, and which were not.

`python -m auditor.demo.check_truth OUT` prints the comparison for a finished demo.
"""

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from auditor.console import print_table
from auditor.demo.demo_corpus import read_truth
from auditor.demo.planted_defects import DEFECTS
from auditor.errors import AuditorError
from auditor.python_api import Audit
from auditor.research.retrieval.analyses import compute_auroc
from auditor.schema import HIGH_IS_SUSPICIOUS

Row = dict[str, Any]
SIGNS = tuple(dict.fromkeys(defect.sign for defect in DEFECTS.values()))

# Measurements that should detect each defect; the sign is a threshold on the first.
MEASURES = {
    "swapped": ("p_mismatch",),
    "vague": ("ambiguity_text", "uncertainty_text"),
    "blurred": ("ambiguity_visual", "sharpness"),
    "occluded": ("ambiguity_visual", "entropy"),
    "near_blank": ("ambiguity_visual", "contrast"),
    "multi_scene": ("ambiguity_visual", "cuts", "uncertainty_visual"),
}


@dataclass(frozen=True)
class DefectCounts:
    defect: str
    meaning: str
    planted: int
    found: int
    sign: str

    @property
    def recall(self) -> float:
        return self.found / self.planted if self.planted else float("nan")


@dataclass(frozen=True)
class SignCounts:
    """Rows with one sign (a flag or status): those planted for it, and those with other planted defects."""

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
class NoiseComparison:
    """The share of mismatched pairs of one kind: planted, and estimated without the truth.

    `unfit` adds vague captions and damaged media, whose pairs are neither right nor wrong.
    """

    kind: str
    planted: float
    unfit: float
    estimated: float
    low: float
    high: float


@dataclass(frozen=True)
class DemoFindings:
    defects: list[DefectCounts]
    signs: list[SignCounts]
    noise: list[NoiseComparison]
    auroc: dict[str, dict[str, float]]  # defect -> measurement -> AUROC against sound pairs

    def to_dict(self) -> dict[str, Any]:
        return {
            "defects": [{**asdict(d), "recall": d.recall} for d in self.defects],
            "signs": [{**asdict(s), "precision": s.precision} for s in self.signs],
            "noise": [asdict(n) for n in self.noise],
            "auroc": self.auroc,
        }


def join_truth(audit: Audit, truth: Sequence[Row]) -> list[Row]:
    """The rows of the audit with their signs and planted defects. Audit and truth must have the same rows."""
    columns = [f'coalesce({sign}, FALSE) AS "{sign}"' for sign in SIGNS]
    columns += sorted({measure for measures in MEASURES.values() for measure in measures})
    query = f"SELECT key, coalesce(caption_index, 0) AS caption_index, kind, status, {', '.join(columns)} FROM samples"
    # A key occurs at most twice, and the audit marks the second.
    audited = {
        (row["key"], int(row["status"] == "duplicate_key"), row["caption_index"]): row
        for row in audit.sql(query).to_pylist()
    }
    planted = {(row["key"], row["occurrence"], row["caption_index"]): row["defect"] for row in truth}
    if odd := sorted(set(audited) ^ set(planted)):
        raise AuditorError(
            f"the audit and the truth differ in {len(odd)} rows, for example {odd[0]}: is it this corpus?"
        )
    return [{**audited[row], "defect": defect} for row, defect in planted.items()]


def compare_with_truth(audit: Audit, truth: Sequence[Row]) -> DemoFindings:
    rows = join_truth(audit, truth)
    defects = []
    for name, defect in DEFECTS.items():
        planted = [row[defect.sign] for row in rows if row["defect"] == name]
        defects.append(DefectCounts(name, defect.meaning, len(planted), sum(planted), defect.sign))
    counts = [count_sign(sign, [row["defect"] for row in rows if row[sign]]) for sign in SIGNS]
    return DemoFindings(defects, counts, compare_noise(audit, rows), compute_aurocs(rows))


def count_sign(sign: str, defects: Sequence[str | None]) -> SignCounts:
    flaws = [defect for defect in defects if defect]
    planted = sum(DEFECTS[flaw].sign == sign for flaw in flaws)
    return SignCounts(sign, len(defects), planted, len(flaws) - planted)


def compare_noise(audit: Audit, rows: Sequence[Row]) -> list[NoiseComparison]:
    result = []
    for noise in audit.summary().noise:
        usable = [row["defect"] for row in rows if row["status"] == "ok" and row["kind"] == noise.kind]
        planted = usable.count("swapped") / max(1, len(usable))
        unfit = sum(defect in MEASURES for defect in usable) / max(1, len(usable))
        result.append(NoiseComparison(noise.kind, planted, unfit, noise.share, noise.low, noise.high))
    return result


def compute_aurocs(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    usable = [row for row in rows if row["status"] == "ok"]
    result: dict[str, dict[str, float]] = {}
    for defect, measures in MEASURES.items():
        kinds = DEFECTS[defect].applies
        candidates = [row for row in usable if row["kind"] in kinds and row["defect"] in (None, defect)]
        labels = np.array([row["defect"] == defect for row in candidates])
        for measure in measures:
            values = np.array([row[measure] for row in candidates], dtype=np.float64)
            values *= 1 if measure in HIGH_IS_SUSPICIOUS else -1
            result.setdefault(defect, {})[measure] = compute_auroc(values, labels)
    return result


def print_demo_findings(findings: DemoFindings) -> None:
    defects = [
        {
            "defect": d.defect.replace("_", " "),
            "meaning": d.meaning,
            "planted": d.planted,
            "found": d.found,
            "recall": f"{d.recall:.0%}",
            "measured by (AUROC)": ", ".join(
                f"{m} {auroc:.3f}" for m, auroc in findings.auroc.get(d.defect, {}).items()
            ),
        }
        for d in findings.defects
    ]
    signs = [
        {
            "sign": s.sign,
            "rows": s.rows,
            "planted for it": s.planted,
            "other planted defects": s.otherwise_flawed,
            "sound": s.sound,
            "precision": f"{s.precision:.0%}" if s.rows else "",
        }
        for s in findings.signs
    ]
    noise = [
        {
            "kind": n.kind,
            "captions swapped": f"{n.planted:.1%}",
            "with vague and damaged": f"{n.unfit:.1%}",
            "estimated": f"{n.estimated:.1%}",
            "90% interval": f"{n.low:.1%} - {n.high:.1%}",
        }
        for n in findings.noise
    ]
    print_table(defects, "planted defects, and how many the audit found")
    print_table(signs, "signs in the audit, and how often they are right")
    print_table(noise, "share of mismatched pairs, estimated without the truth")


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    print_demo_findings(compare_with_truth(Audit(folder / "audit"), read_truth(folder)))
