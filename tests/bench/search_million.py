"""Time an exact search for the nearest 20 of one million stored vectors of width 512, with a warm cache.

    python -m tests.bench.search_million [VECTORS]

Writes the vectors as an audit stores them (float16, a flat memory-mapped file), times queries one after another, and
checks each answer against brute force in float32. Writes bench-results/search_million.json.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from auditor.console import print_table
from auditor.query.search_index import THREADS, find_nearest

WIDTH, QUERIES, BLOCK = 512, 7, 50_000
RESULTS = Path(__file__).resolve().parents[2] / "bench-results"


def write(path: Path, count: int) -> np.memmap:  # type: ignore[type-arg]
    generator = np.random.default_rng(0)
    vectors = np.memmap(path, np.float16, "w+", shape=(count, WIDTH))
    for start in range(0, count, BLOCK):
        drawn = generator.standard_normal((min(BLOCK, count - start), WIDTH), dtype=np.float32)
        vectors[start : start + len(drawn)] = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    return vectors


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        vectors = write(Path(folder) / "visual.f16", count)
        queries = np.random.default_rng(1).standard_normal((QUERIES, WIDTH), dtype=np.float32)
        queries /= np.linalg.norm(queries, axis=1, keepdims=True)
        seconds, processor = [], []
        for query in queries:
            start, used = time.perf_counter(), time.process_time()
            found = find_nearest(vectors, query, 20)
            seconds.append(time.perf_counter() - start)
            processor.append(time.process_time() - used)
            whole = np.concatenate(
                [vectors[at : at + BLOCK].astype(np.float32) @ query for at in range(0, count, BLOCK)]
            )
            assert np.allclose(found.similarity, np.sort(whole)[::-1][:20], atol=1e-6)
    row = {"vectors": count, "threads": THREADS, "median s": float(np.median(seconds[1:])), "worst s": max(seconds[1:])}
    row |= {"median processor s": float(np.median(processor[1:]))}  # the relevant figure on a shared machine
    print_table([row])
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "search_million.json").write_text(json.dumps(row, indent=1))


if __name__ == "__main__":
    main()
