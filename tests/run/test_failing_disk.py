"""A disk that fails in the middle of a rename or a write, and a quota: one line, and the next run is exact."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from auditor.audit_folder.folder import Folder
from auditor.audit_folder.lock import LockedError, hold_folder_lock
from tests.support.stored import write_datacomp

SOURCE = Path(__file__).parents[1] / "support" / "failing_disk.c"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not (compiler := shutil.which("gcc") or shutil.which("cc")):
        pytest.skip("no C compiler")
    path = tmp_path_factory.mktemp("library") / "failing_disk.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", path, SOURCE, "-ldl"], check=True, timeout=60)
    return path


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_datacomp(tmp_path_factory.mktemp("corpus") / "corpus", files=2, count=100)


@pytest.fixture(scope="module")
def undisturbed(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    audit = tmp_path_factory.mktemp("undisturbed") / "audit"
    assert run_audit(corpus, audit).returncode == 0
    return read_rows(audit)


def run_audit(corpus: Path, audit: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "auditor.cli", "audit", f"datacomp:{corpus}", "--out", str(audit), "--quiet"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **environment})


def read_rows(audit: Path) -> pa.Table:
    return pa.concat_tables(pq.read_table(path) for path in sorted((audit / "samples").glob("*.parquet")))


@pytest.mark.parametrize(
    ("call", "number", "error"),
    [("rename", 4, errno.EIO), ("write", 3, errno.EDQUOT)],
)
def test_the_next_run_is_exact(
    library: Path, corpus: Path, undisturbed: pa.Table, tmp_path: Path, call: str, number: int, error: int
) -> None:
    audit = tmp_path / "audit"
    failure = {"FAIL_CALL": call, "FAIL_NUMBER": str(number), "FAIL_ERRNO": str(error), "FAIL_BELOW": str(audit)}
    first = run_audit(corpus, audit, LD_PRELOAD=str(library), **failure)
    assert first.returncode == 1, first.stderr
    (line,) = [line for line in first.stderr.splitlines() if line.startswith("auditor:")]
    assert os.strerror(error) in line and "Traceback" not in first.stderr
    assert not [path.name for path in audit.rglob("*") if ".part" in path.name]
    again = run_audit(corpus, audit)
    assert again.returncode == 0, again.stderr
    assert read_rows(audit).equals(undisturbed)


def test_a_lock_file_with_the_pid_of_a_living_process_does_not_lock(tmp_path: Path) -> None:
    """The kernel holds the lock, so neither a reused pid nor a clock that jumps matters."""
    lock = tmp_path / ".lock"
    lock.write_text(f"pid {os.getppid()} on this machine\n")
    os.utime(lock, (2**33, 2**33))  # the year 2242
    with hold_folder_lock(Folder(tmp_path)), pytest.raises(LockedError), hold_folder_lock(Folder(tmp_path)):
        pass
