"""Compare two audits of ten million rows: seconds, processor seconds and peak memory of `auditor compare`.

The second audit has the rows of the first with other scores, like those of another model, and lacks one percent of
them. It is made once, next to that of tests/bench/query_10m.py. The comparison runs in its own process.

    python -m tests.bench.compare_10m [ROWS]
"""

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from auditor import console
from auditor.audit_folder.arrow_schema import STORAGE
from tests.bench.query_10m import RESULTS, ROWS, made_audit

MOVED = ("similarity", "p_mismatch", "ambiguity_text", "ambiguity_visual", "uncertainty_text", "uncertainty_visual")


def second_audit(first: Path) -> Path:
    """The rows of the first audit with slightly different scores."""
    second = first.with_name(f"{first.name}-other")
    if (second / "manifest.json").exists():
        return second
    (second / "samples").mkdir(parents=True, exist_ok=True)
    for number, file in enumerate(sorted((first / "samples").glob("*.parquet"))):
        chance = np.random.default_rng([3, number])
        table = pq.read_table(file)
        for name in MOVED:
            values = table[name].to_numpy() * chance.normal(1, 0.05, len(table)).astype(np.float32)
            column = pa.array(np.clip(values, 0, 1) if name == "p_mismatch" else values, from_pandas=True)
            table = table.set_column(table.schema.get_field_index(name), table.schema.field(name), column)
        pq.write_table(table.slice(len(table) // 100), second / "samples" / file.name, **STORAGE)
    (second / "manifest.json").write_text((first / "manifest.json").read_text())
    return second


def child(first: str, second: str) -> None:
    from auditor.query.compare import compare_audits
    from auditor.query.database import AuditDatabase

    started = time.monotonic()
    with AuditDatabase(first) as one, AuditDatabase(second) as other:
        found = compare_audits(one, other)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    measured = {
        "matched": found.matched,
        "only first": found.only_first,
        "seconds": time.monotonic() - started,
        "processor s": usage.ru_utime + usage.ru_stime,
        "peak MiB": usage.ru_maxrss / 1024,
    }
    print(json.dumps(measured))


def main(rows: int) -> None:
    first = made_audit(rows)
    second = second_audit(first)
    command = [sys.executable, "-m", "tests.bench.compare_10m", "--child", str(first), str(second)]
    load = os.getloadavg()[0]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    console.print_table([found], f"{rows:,} rows each, {os.cpu_count()} cores, load {load:.1f} before the run")
    (RESULTS / "compare_10m.json").write_text(json.dumps({"rows": rows, "load": load, **found}, indent=1))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:4])
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else ROWS)
