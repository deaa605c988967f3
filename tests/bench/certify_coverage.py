"""Measure the coverage and width of the intervals of `auditor certify` on 1,000 simulated corpora of each kind.

    python -m tests.bench.certify_coverage [CORPORA]

p_mismatch is right (good), has odds that are wrong by a factor of 20 in either direction (shifted), is random
(useless), or is reversed (inverted). There are 100 labels; the flag is p >= 0.5, the filter keeps p < 0.2. For
comparison: the width of Clopper and Pearson's interval from 100 random rows. Writes
bench-results/certify_coverage.json.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from auditor.console import print_table
from auditor.review import certificate
from auditor.review.certificate import Certificate, Stratum, certify
from auditor.review.strata import draw_rows, stratify_rows

KINDS, SHARES = ("good", "shifted", "useless", "inverted"), (0.05, 0.1, 0.2, 0.4)
ROWS, LABELS, SEPARATION = 10_000, 100, 4.0
QUANTITIES = ("mismatched", "precision", "lost", "left")
RESULTS = Path(__file__).resolve().parents[2] / "bench-results"
Doubles = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


def corpus(generator: np.random.Generator, kind: str, share: float) -> tuple[Bools, Doubles]:
    """Which pairs are mismatched, and their p_mismatch."""
    bad = generator.random(ROWS) < share
    score = generator.normal(size=ROWS) - SEPARATION * bad
    logit = np.log(share / (1 - share)) - SEPARATION * score - SEPARATION**2 / 2
    logit += generator.choice([-3, 3]) if kind == "shifted" else 0
    p = 1 / (1 + np.exp(np.clip(logit if kind == "inverted" else -logit, -30, 30)))
    return bad, generator.permutation(p) if kind == "useless" else p


def judged(bad: Bools, p: Doubles, seed: int) -> Certificate:
    found = stratify_rows(p, p, p >= 0.5, p >= 0.2, LABELS)
    rows, strata = draw_rows(found, seed)
    said = [bad[rows[strata == h]] for h in range(len(found.labels))]
    counted = [
        Stratum(int(found.rows[h]), int(y.sum()), int((~y).sum()), 0, bool(found.flagged[h]), bool(found.removed[h]))
        for h, y in enumerate(said)
    ]
    return certify(counted, filtered=True)


def truths(bad: Bools, p: Doubles) -> tuple[float, ...]:
    flagged, removed = p >= 0.5, p >= 0.2
    lost = (~bad & removed).sum() / (~bad).sum()
    return float(bad.mean()), float(bad[flagged].mean()), float(lost), float(bad[~removed].mean())


def run(kind: str, share: float, corpora: int) -> dict[str, Any]:
    covered, width, plain = np.zeros((corpora, 4)), np.zeros((corpora, 4)), np.zeros(corpora)
    for seed in range(corpora):
        generator = np.random.default_rng([seed, KINDS.index(kind), round(share * 100)])
        bad, p = corpus(generator, kind, share)
        found = judged(bad, p, seed)
        for i, (name, truth) in enumerate(zip(QUANTITIES, truths(bad, p), strict=True)):
            interval = getattr(found, name)
            covered[seed, i] = interval.low <= truth <= interval.high
            width[seed, i] = interval.high - interval.low
        seen = int(bad[generator.choice(ROWS, LABELS, replace=False)].sum())
        whole = certify([Stratum(ROWS, seen, LABELS - seen)], filtered=False).mismatched
        plain[seed] = whole.high - whole.low
    return {
        "p_mismatch": kind,
        "mismatched": share,
        **{f"covers {name}": float(covered[:, i].mean()) for i, name in enumerate(QUANTITIES)},
        **{f"width {name}": float(width[:, i].mean()) for i, name in enumerate(QUANTITIES)},
        "plain": float(plain.mean()),
        "ratio": float(width[:, 0].mean() / plain.mean()),
    }


def main() -> None:
    corpora = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    certificate.DRAWS = 2000  # a quantile of 2,000 draws is accurate enough
    rows = [run(kind, share, corpora) for share in SHARES for kind in KINDS]
    print_table(rows)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "certify_coverage.json").write_text(json.dumps({"corpora": corpora, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
