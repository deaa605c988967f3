"""Ten heavy queries at once: a bounded number of processes, each within its memory, and the next query works."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from auditor.python_api import Audit
from auditor.query.sandbox import Limits, QueryError
from auditor.query.sql_process import MOST_PROCESSES
from tests.support.synthetic import write_audit

HEAVY = "SELECT list(repeat(a.caption || range, 1000)) FROM samples a, range(100000000)"


def measure_children(own: int) -> dict[int, int]:
    """Resident megabytes of the descendants of this process that have more than 20 MB.

    Between fork and exec, a child has the memory and the command line of this process: it does not count.
    """
    command = Path("/proc/self/cmdline").read_bytes()
    parents, sizes = {}, {}
    for entry in Path("/proc").iterdir():
        try:
            is_copy = int(entry.name) != own and (entry / "cmdline").read_bytes() == command
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if is_copy:
                continue
            parents[int(entry.name)] = int(fields[1])
            sizes[int(entry.name)] = int(fields[21]) * os.sysconf("SC_PAGE_SIZE") // 2**20
        except (OSError, ValueError):
            continue
    family = {own}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return {pid: sizes[pid] for pid in family - {own} if sizes[pid] > 20}


def test_ten_heavy_queries_at_once(tmp_path: Path) -> None:
    write_audit(tmp_path / "audit", 300, 100)
    peaks: list[dict[int, int]] = []
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            sizes = measure_children(os.getpid())
            peaks.append({pid: sizes[pid] for pid in sizes.keys() - before})

    def run_heavy_query(_: int) -> str:
        try:
            audit.sql(HEAVY)
        except QueryError as error:
            return str(error)
        return ""

    with Audit(tmp_path / "audit", limits=Limits("100MB", 2.0)) as audit:
        before = measure_children(os.getpid()).keys()  # of earlier tests
        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        with ThreadPoolExecutor(10) as pool:
            errors = list(pool.map(run_heavy_query, range(10), timeout=300))
        done.set()
        watcher.join(10)
        assert all("memory" in error or "second" in error for error in errors), errors
        assert 0 < max(len(sizes) for sizes in peaks) <= MOST_PROCESSES + 1  # and the fork server
        assert max(max(sizes.values(), default=0) for sizes in peaks) < 1000
        start = time.monotonic()
        assert audit.sql("SELECT 1 AS one")["one"].to_pylist() == [1]
        assert time.monotonic() - start < 60
