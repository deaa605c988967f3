"""Query ten million rows: summary, histogram, worst 100 and a filter of three rules, compared with pandas.

Run as `python -m tests.bench.query_10m [ROWS]`. The synthetic audit (a thousand Parquet files) is made once and kept in
bench-results/cache. Each task runs in its own process, which gives its peak memory. Compare processor seconds if the
machine is busy.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RESULTS = Path("bench-results")
ROWS = 10_000_000
RULES: dict[str, Any] = {"max_p_mismatch": 0.1, "max_uncertainty_text": 0.6, "min_similarity": 0.3}
ENOUGH = 12 * 2**30  # bytes that must be free before pandas may read everything
LIMIT = "read the kept rows"  # their exported columns and nothing else: the lower limit of an export to .parquet
BARE = "read and write bytes"  # as many as an export to .parquet; its "rows" are bytes
WRITTEN = 0.22  # bytes of that export per byte of samples/
AGAIN = "summary, again"  # the rows of its costly query are stored by then
TASKS = ("summary", AGAIN, "histogram", "worst 100", "filter to .npy", "filter to .parquet", LIMIT, BARE)


def ours(task: str, path: str, out: str) -> int:
    """Run one task as a user would, including opening the audit, and return the rows kept or counted."""
    from auditor.python_api import Audit

    audit = Audit(path)
    if task in ("summary", AGAIN):
        return audit.summary().rows
    if task == "histogram":
        return audit.histogram("similarity").total
    if task == "worst 100":
        return int(audit.worst("p_mismatch", 100).num_rows)
    if task == LIMIT:
        return read_kept(path)
    if task == BARE:
        return copy_bytes(path, out)
    return audit.keep(**RULES).write(f"{out}/kept.{task.rpartition('.')[2]}").rows


def read_kept(path: str) -> int:
    """Decode the exported columns of the rows that the filter keeps with the same engine; returns their number."""
    from auditor.keep.export import find_empty_columns
    from auditor.keep.kept_rows import KeptRows
    from auditor.query.database import AuditDatabase
    from auditor.query.rules import Rules
    from auditor.query.sandbox import quote_name

    with AuditDatabase(path) as database:
        kept = KeptRows(database, Rules.of(**RULES))
        empty = find_empty_columns(database)
        columns = ", ".join(f"count({quote_name(column)})" for column in database.columns if column not in empty)
        query = f"SELECT count(*) AS n, {columns} FROM reviewed AS samples WHERE {kept.condition}"
        found: int = database.rows(query)[0]["n"]
        return found


def copy_bytes(path: str, out: str) -> int:
    """Read the bytes of all rows and write as many as the export does, without decoding; returns those written."""
    with open(f"{out}/bytes", "wb") as file:
        for source in sorted(Path(path, "samples").glob("*.parquet")):
            data = source.read_bytes()
            file.write(data[: round(len(data) * WRITTEN)])
        return file.tell()


def pandas_way(path: str, out: str) -> dict[str, Any]:
    """Read everything once, then run each task on the frame in memory."""
    import numpy as np
    import pandas as pd

    started = time.monotonic()
    frame = pd.read_parquet(f"{path}/samples")
    read = time.monotonic() - started
    mask = (
        (frame["status"] == "ok")
        & (frame["p_mismatch"] <= RULES["max_p_mismatch"])
        & (frame["uncertainty_text"] <= RULES["max_uncertainty_text"])
        & (frame["similarity"] >= RULES["min_similarity"])
    )

    def write_npy() -> int:
        pairs = [(int(uid[:16], 16), int(uid[16:], 16)) for uid in frame.loc[mask, "uid"]]
        np.save(f"{out}/pandas.npy", np.sort(np.array(pairs, np.dtype("u8,u8"))))
        return len(pairs)

    def write_parquet() -> int:
        kept = frame[mask]
        kept.to_parquet(f"{out}/pandas.parquet")
        return len(kept)

    tasks: dict[str, Callable[[], int]] = {
        "summary": lambda: int(frame.groupby(["status", "kind"])["p_mismatch"].describe()["count"].sum()),
        "histogram": lambda: int(np.histogram(frame["similarity"].dropna(), 50)[0].sum()),
        "worst 100": lambda: len(frame.nlargest(100, "p_mismatch")),
        "filter to .npy": write_npy,
        "filter to .parquet": write_parquet,
    }
    seconds: dict[str, dict[str, float]] = {}
    for task, run in tasks.items():
        started = time.monotonic()
        rows = run()
        seconds[task] = {"seconds": time.monotonic() - started, "rows": rows}
    return {"read": read, "tasks": seconds}


def child(mode: str, path: str, out: str) -> None:
    """In the measured process: run the task and print its cost."""
    started = time.monotonic()
    found: dict[str, Any] = pandas_way(path, out) if mode == "pandas" else {"rows": ours(mode, path, out)}
    found["seconds"] = time.monotonic() - started
    usage = resource.getrusage(resource.RUSAGE_SELF)
    found["processor_seconds"] = usage.ru_utime + usage.ru_stime
    found["peak_mib"] = usage.ru_maxrss / 1024
    print(json.dumps(found))


def measure(mode: str, path: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, "-m", "tests.bench.query_10m", "--child", mode, str(path), out]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"failed": done.stderr.strip().splitlines()[-1] if done.stderr else f"exit code {done.returncode}"}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def free_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable"):
            return int(line.split()[1]) * 1024
    return 0


def made_audit(rows: int) -> Path:
    """The synthetic audit, made on first use."""
    from tests.support.synthetic import write_audit

    path = RESULTS / "cache" / f"audit-{rows}"
    if not (path / "manifest.json").exists():
        print(f"making an audit of {rows:,} rows in {path}", flush=True)
        write_audit(path, rows)
    return path


def main(rows: int) -> None:
    from auditor import console

    path = made_audit(rows)
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as state:
        os.environ["XDG_STATE_HOME"] = state  # nothing is stored yet
        found = {task: measure(task, path) for task in TASKS}
    wait = free_bytes() < ENOUGH * rows / ROWS
    pandas = {"failed": "not run: too little free memory"} if wait else measure("pandas", path)
    table = [row(task, found[task], pandas) for task in TASKS]
    console.print_table(table, f"{rows:,} rows, {os.cpu_count()} cores, load {load:.1f} before the run")
    result = {"rows": rows, "cores": os.cpu_count(), "load": load, "rules": RULES, "auditor": found, "pandas": pandas}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "query_10m.json").write_text(json.dumps(result, indent=1))


def row(task: str, found: dict[str, Any], pandas: dict[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = {"task": task}
    if "failed" in found:
        return {**shown, "rows": found["failed"]}
    shown |= {
        "rows": found["rows"],
        "seconds": round(found["seconds"], 2),
        "processor s": round(found["processor_seconds"], 2),
        "peak MiB": round(found["peak_mib"]),
    }
    if "failed" in pandas or task not in pandas["tasks"]:
        return {**shown, "pandas": pandas.get("failed", "")}
    done = pandas["tasks"][task]
    return {
        **shown,
        "pandas seconds": round(pandas["read"] + done["seconds"], 2),
        "pandas MiB": round(pandas["peak_mib"]),
    }


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:5])
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else ROWS)
