"""Measure the scoring time of this checkout and of an older one, in turns.

    git worktree add --detach ../before bdf3134
    python -m tests.bench.scoring_speed --before ../before

Both checkouts score the same pairs (five captions per medium, a reference of 4,096) in their own processes, in three
rounds. Prints the processor time of scoring alone, the best of the rounds. Writes bench-results/scoring_speed.json.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from auditor.console import print_table

RESULTS = Path(__file__).resolve().parents[2] / "bench-results"
HERE = Path(__file__).resolve().parents[2]
PAIRS, REFERENCE, DIM, WORDS = 10_000, 4096, 512, 5000


def unit(generator: np.random.Generator, rows: int) -> np.ndarray:
    found = generator.normal(size=(rows, DIM))
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


def seconds() -> float:
    """Processor time of scoring the pairs in this checkout, including words if it scores them."""
    import time

    from auditor.score.statistics import mismatch, rivals
    from auditor.vectors import MediaVectors

    generator = np.random.default_rng(0)
    group = np.repeat(np.arange(PAIRS // 5), 5)
    visual = unit(generator, PAIRS // 5)[group]
    text = visual + 1.5 * unit(generator, PAIRS)
    text /= np.linalg.norm(text, axis=1, keepdims=True)
    chosen = np.sort(generator.choice(PAIRS, REFERENCE, replace=False))
    if not hasattr(rivals, "Hubs"):  # the older checkout
        reference = rivals.ReferenceSample(MediaVectors(visual[chosen]), text[chosen], group[chosen], 20.0)  # type: ignore
        model = mismatch.fit_mismatch(reference, captions=PAIRS, draws=10_000)
        started = time.process_time()
        measured = rivals.measure_pairs(MediaVectors(visual), text, group, reference, media=PAIRS // 5, captions=PAIRS)  # type: ignore
        model.p(measured.mismatch_score)  # type: ignore[union-attr, attr-defined]
        return time.process_time() - started
    from auditor.score.statistics.mismatch_statistic import compute_statistic
    from auditor.score.statistics.siblings import collect_siblings
    from auditor.score.statistics.word_evidence import Vocabulary

    names = [f"{chr(97 + i % 26)}{chr(97 + i // 26 % 26)}{chr(97 + i // 676)}word" for i in range(WORDS)]
    captions = [" ".join(names[i] for i in generator.integers(0, WORDS, 6)) for _ in range(PAIRS)]
    media = MediaVectors(visual)
    pairs = rivals.ReferenceSample(media, text, group, captions, collect_siblings(group, media, text), scale=20.0)
    reference = pairs.take(chosen)
    vocabulary = Vocabulary(tuple(names), unit(generator, WORDS))
    model = mismatch.fit_mismatch(reference, captions=PAIRS, draws=10_000, words=vocabulary)
    assert model is not None and model.statistic is not None
    started = time.process_time()
    measured = rivals.measure_pairs(pairs, reference, media=PAIRS // 5, captions=PAIRS, hubs=model.statistic.hubs)
    model.p(compute_statistic(model.statistic, pairs, measured))
    return time.process_time() - started


def in_checkout(folder: Path) -> float:
    """`seconds` with the packages of a checkout."""
    code = "import runpy; print(runpy.run_path(__import__('sys').argv[1])['seconds']())"
    environment = {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code, __file__], cwd=folder, env=environment, check=True, capture_output=True, text=True
    )
    return float(done.stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="an older checkout")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if options.before is None:
        print("name an older checkout with --before to compare with it")
        return
    rounds = [(in_checkout(options.before), in_checkout(HERE)) for _ in range(options.rounds)]
    before, now = (min(each) for each in zip(*rounds, strict=True))
    found = {"before": PAIRS / before, "now": PAIRS / now, "ratio": before / now}
    print_table([{name: round(value, 2) for name, value in found.items()}], "pairs per second on one core")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "scoring_speed.json").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
