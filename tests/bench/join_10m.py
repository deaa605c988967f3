"""Join ten million scores to an audit of ten million rows by uid, and query one of the new columns.

    python -m tests.bench.join_10m [ROWS]

The audit is that of query_10m, made once and kept in bench-results/cache. The scores come in another order and lack one
percent of the rows. Compare processor seconds if the machine is busy.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from auditor.audit_folder.extra_columns import remove_source
from auditor.python_api import Audit
from tests.support.synthetic import write_audit

CACHE = Path("bench-results/cache")
T = TypeVar("T")


def timed(what: str, work: Callable[[], T]) -> T:
    wall, busy = time.perf_counter(), time.process_time()
    found = work()
    print(f"{what}: {time.perf_counter() - wall:.1f} s, {time.process_time() - busy:.1f} s of processor time")
    return found


def write_scores(audit: Audit, path: str) -> int:
    """Two columns for 99% of the uids, shuffled."""
    uids = audit.database.run("SELECT uid FROM measured").column("uid").combine_chunks()
    random = np.random.default_rng(0)
    chosen = pa.array(random.permutation(len(uids))[: len(uids) * 99 // 100])
    table = {"uid": uids.take(chosen), "aesthetics": pa.array(random.random(len(chosen), dtype=np.float32))}
    pq.write_table(pa.table({**table, "nsfw": pa.array(random.random(len(chosen)) < 0.02)}), path)
    return len(chosen)


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000
    place = CACHE / f"audit-{rows}"
    if not (place / "manifest.json").is_file():
        write_audit(place, rows)
    with Audit(place) as audit, tempfile.TemporaryDirectory() as folder:
        remove_source(audit.database.files.folder, "scores")
        scores = f"{folder}/scores.parquet"
        print(f"{write_scores(audit, scores):,} scores for {rows:,} rows")
        done = timed("join", lambda: audit.join(scores, on="uid"))
        assert done.missing == rows - rows * 99 // 100
        timed("filter by it", lambda: audit.keep(min={"aesthetics": 0.5}, where="NOT nsfw").count)
        remove_source(audit.database.files.folder, "scores")


if __name__ == "__main__":
    main()
