"""A process pool returns the same results in the same order, raises the same errors and leaves no process behind."""

import math
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from auditor.audit_folder.folder import Folder
from auditor.errors import AuditError
from auditor.run.audit_config import AuditConfig
from auditor.run.engine import LocalEngine
from auditor.run.run_audit import run_audit
from auditor.workers import process_pool
from auditor.workers.process_pool import ProcessPool
from tests.support.chores import raise_unpicklable_error, report_threads_and_pid
from tests.support.stored import write_datacomp

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def pool() -> ProcessPool:
    return ProcessPool(2)


def test_results_come_in_the_order_of_the_items(pool: ProcessPool) -> None:
    assert list(pool.each(math.sqrt, list(range(50)))) == [math.sqrt(number) for number in range(50)]
    assert list(pool.each(math.sqrt, [])) == []


def test_every_process_works_with_one_thread(pool: ProcessPool) -> None:
    found = list(pool.each(report_threads_and_pid, list(range(20))))
    assert {threads for threads, _ in found} == {"1"}
    assert {process for _, process in found} == {worker.child.pid for worker in pool.workers if worker.child}


def test_an_error_is_what_it_was_and_the_pool_goes_on(pool: ProcessPool) -> None:
    with pytest.raises(ValueError, match="math domain error"):
        list(pool.each(math.sqrt, [1, -1, 2]))
    with pytest.raises(Exception, match="UnpicklableError"):
        list(pool.each(raise_unpicklable_error, [1]))
    assert list(pool.each(math.sqrt, [4, 9])) == [2, 3]


def test_a_process_that_dies_is_an_error_in_words(pool: ProcessPool) -> None:
    with pytest.raises(AuditError, match="died"):
        list(pool.each(os._exit, [3, 3, 3]))
    assert list(pool.each(math.sqrt, [4, 9])) == [2, 3]


def test_one_work_at_a_time(pool: ProcessPool) -> None:
    some = pool.each(math.sqrt, list(range(100)))
    next(some)
    with pytest.raises(RuntimeError, match="still being read"):
        next(pool.each(math.cos, [0.0]))
    assert list(some) == [math.sqrt(number) for number in range(1, 100)]


def test_what_is_no_longer_asked_for_is_never_answered(pool: ProcessPool) -> None:
    some = pool.each(math.sqrt, list(range(100)))
    next(some)
    some.close()  # type: ignore[attr-defined]
    assert list(pool.each(math.cos, [0.0, 0.0])) == [1, 1]


def test_processes_end_with_their_pool_and_with_whoever_asked() -> None:
    """The script has no `if __name__ == "__main__"`, and its processes do not run it again."""
    script = (
        "import math, os, sys; from auditor.workers.process_pool import ProcessPool\n"
        "pool = ProcessPool(2)\n"
        "print(*pool.each(math.sqrt, [4, 9]), *(w.child.pid for w in pool.workers), flush=True)\n"
        "first = pool.workers[0].child; del pool; print(not first.is_alive, flush=True)\n"
        "pool = ProcessPool(1); list(pool.each(math.sqrt, [1])); print(pool.workers[0].child.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, timeout=120)
    first, ended, last = done.stdout.splitlines()
    assert first.split()[:2] == ["2.0", "3.0"]
    assert ended == "True"
    wait_for_end(int(last))


def wait_for_end(process: int) -> None:
    for _ in range(100):
        if not Path(f"/proc/{process}").exists() or "\nState:\tZ" in Path(f"/proc/{process}/status").read_text():
            return
        time.sleep(0.1)
    raise AssertionError(f"process {process} is still there")


def tables(place: Path) -> dict[str, pa.Table]:
    folder = Folder(place)
    names = [f"{part}/{name}.parquet" for part in ("embeddings", "samples") for name in folder.names(part, ".parquet")]
    return {name: folder.read_table(name) for name in [*names, "faults.parquet", "reference.parquet"]}


def test_a_large_audit_by_a_pool_has_the_rows_of_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = write_datacomp(tmp_path / "corpus", files=5, count=60)
    run_audit(AuditConfig(f"datacomp:{corpus}", str(tmp_path / "one"), quiet=True))
    monkeypatch.setattr(process_pool, "LARGE", 0)
    made: list[LocalEngine] = []

    def by_pool(folder: Folder, backbone: object, config: AuditConfig) -> LocalEngine:
        made.append(LocalEngine(folder, backbone, config.sweep, ProcessPool(2)))  # type: ignore[arg-type]
        return made[-1]

    run_audit(AuditConfig(f"datacomp:{corpus}", str(tmp_path / "two"), quiet=True), by_pool)
    assert len(made[0].pool.workers) == 2  # it was asked
    one, two = tables(tmp_path / "one"), tables(tmp_path / "two")
    assert list(one) == list(two)
    for name, table in one.items():
        close(table, two[name])


def close(one: pa.Table, two: pa.Table) -> None:
    assert one.schema == two.schema
    for name in one.column_names:
        if pa.types.is_floating(one[name].type):
            values = (each[name].to_numpy().astype(np.float64) for each in (one, two))
            np.testing.assert_allclose(*values, rtol=1e-4, atol=1e-5, err_msg=name)
        else:
            assert one[name] == two[name], name
