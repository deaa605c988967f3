"""Compare the speed of auditing stored embeddings with the matrix product that scoring cannot avoid.

    python -m tests.bench.stored_embeddings [ROWS] [--flat]

Writes ROWS (1,000,000) pairs of 2 x 512 float16 as DataComp metadata in files of 25,000, audits them from disk, and
multiplies the same shapes with NumPy in the same run: every medium with the captions of the reference and every caption
with its media. Prints pairs/s of both, their ratio, and the peak memory of the largest process. The audit is a command,
from its start to its exit. Compare processor seconds, which include those of the workers, if the machine is busy.

The variance falls with the dimension as in the embeddings of Flickr8k's photos and captions by the small model of the
development data: 57% of it in 20 dimensions and 83% in 64 (photos 62% and 90%, captions 54% and 91%). `--flat` gives
all dimensions the same variance, as no encoder does: cells and sketches then hardly narrow the search for duplicates.
"""

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from auditor.score.score_config import ScoreConfig
from tests.support.stored import Floats, make_datacomp_table, make_pairs

DIM, FILE = 512, 25_000
DEVIATIONS = ((np.arange(DIM) + 20.0) ** -1.1).astype(np.float32)


def write(folder: Path, rows: int, deviations: Floats | None = DEVIATIONS) -> None:
    for number in range(-(-rows // FILE)):
        count = min(FILE, rows - number * FILE)
        pq.write_table(make_datacomp_table(count, number), folder / f"{number:04d}.parquet")
        visual, text = make_pairs(count, DIM, seed=number, deviations=deviations)
        np.savez(folder / f"{number:04d}.npz", l14_img=visual.astype(np.float16), l14_txt=text.astype(np.float16))


def product_seconds(rows: int, reference: int) -> tuple[float, float]:
    """Wall and processor seconds."""
    random = np.random.default_rng(0)
    other = random.normal(size=(reference, DIM)).astype(np.float32)
    block = random.normal(size=(512, DIM)).astype(np.float32)
    began, busy = time.perf_counter(), time.process_time()
    for _ in range(0, 2 * rows, len(block)):
        np.matmul(block, other.T)
    return time.perf_counter() - began, time.process_time() - busy


def main() -> None:
    numbers = [int(argument) for argument in sys.argv[1:] if argument.isdecimal()]
    rows, deviations = numbers[0] if numbers else 1_000_000, None if "--flat" in sys.argv else DEVIATIONS
    with tempfile.TemporaryDirectory(prefix="bench-stored-") as place:
        corpus = Path(place) / "corpus"
        corpus.mkdir()
        write(corpus, rows, deviations)
        bare, bare_busy = product_seconds(rows, ScoreConfig().reference)
        began = time.perf_counter()
        command = ["audit", f"datacomp:{corpus}", "--out", f"{place}/audit", "--quiet"]
        subprocess.run([sys.executable, "-m", "auditor.cli", *command], check=True, stdout=subprocess.DEVNULL)
        took, used = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = used.ru_utime + used.ru_stime
    print(f"{rows:,} pairs: {rows / took:,.0f} pairs/s audited, {rows / bare:,.0f} pairs/s bare product")
    print(f"ratio {bare / took:.2f}; peak memory {used.ru_maxrss / 1024:,.0f} MB")
    print(f"processor time {busy:.0f} s and {bare_busy:.0f} s: ratio {bare_busy / busy:.2f}")


if __name__ == "__main__":
    main()
