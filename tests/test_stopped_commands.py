"""SIGTERM and SIGHUP stop a long command as Ctrl-C does: one line, nothing temporary is left, and it can be resumed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from auditor.cli import run_command_line
from auditor.python_api import Audit
from tests.support.corpora import write_corpus
from tests.support.stored import write_datacomp
from tests.support.synthetic import write_corpus_audit

TIMEOUT = 120.0  # seconds
STOPS = [signal.SIGTERM, signal.SIGHUP, signal.SIGTERM, signal.SIGHUP]
FILES, COUNT = 20, 30


def start(*words: str | Path, prefix: tuple[str, ...] = ()) -> "subprocess.Popen[str]":
    command = [*prefix, sys.executable, "-m", "auditor.cli", *map(str, words)]
    return subprocess.Popen(
        command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def wait_for(child: "subprocess.Popen[str]", is_ready: Callable[[], object]) -> None:
    end = time.monotonic() + TIMEOUT
    while not is_ready():
        assert child.poll() is None, child.communicate()
        assert time.monotonic() < end, "nothing happens"
        time.sleep(0.002)


def read_line(child: "subprocess.Popen[str]") -> str:
    """The only line that a stopped command prints, besides its notes and its progress."""
    _, stderr = child.communicate(timeout=TIMEOUT)
    assert child.returncode == 130 and "Traceback" not in stderr, stderr
    *_, line = lines = stderr.splitlines()
    assert line.startswith("auditor: stopped") and sum(text.startswith("auditor: ") for text in lines) == 1, stderr
    return line


def list_temporary(*folders: Path) -> list[Path]:
    return [path for folder in folders for path in folder.rglob("*") if path.name.startswith((".part-", ".lock"))]


def list_finished(folder: Path) -> list[Path]:
    return list(folder.glob("[!.]*.parquet"))


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_datacomp(tmp_path_factory.mktemp("stored"), files=FILES, count=COUNT)


def test_audit_and_score(stored: Path, tmp_path: Path) -> None:
    out = tmp_path / "audit"
    words = ["audit", f"datacomp:{stored}", "--out", str(out), "--quiet"]
    child = start(*words)
    wait_for(child, lambda: list_finished(out / "embeddings"))
    os.killpg(child.pid, signal.SIGHUP)  # a terminal that closes sends it to all processes
    assert f"of {FILES} shards are swept" in read_line(child)
    assert not list_temporary(out)
    kept = {path: path.stat().st_mtime_ns for path in list_finished(out / "embeddings")}
    child = start(*words)
    wait_for(child, lambda: list_finished(out / "samples"))
    os.kill(child.pid, signal.SIGTERM)
    assert "the same command again" in read_line(child)
    assert not list_temporary(out)
    assert run_command_line(words) == 0  # resumes
    assert all(path.stat().st_mtime_ns == changed for path, changed in kept.items())
    before = (out / "manifest.json").stat().st_mtime_ns
    child = start("score", out, "--quiet", "--seed", "3")
    wait_for(child, lambda: (out / "manifest.json").stat().st_mtime_ns != before)
    for number in STOPS:  # later ones do not disturb the cleanup
        os.kill(child.pid, number)
    read_line(child)
    assert not list_temporary(out)
    assert run_command_line(["score", str(out), "--quiet", "--seed", "3"]) == 0
    with Audit(out) as audit:
        assert audit.sql("SELECT count(*) AS n FROM samples").to_pylist() == [{"n": FILES * COUNT}]


def test_filter(tmp_path: Path) -> None:
    audit, _ = write_corpus_audit(tmp_path / "made", shards=6, per_shard=50)
    out = tmp_path / "kept"
    words = ["filter", str(audit), "--where", "true", "--out", str(out), "--shard-size", "2"]
    child = start(*words)
    wait_for(child, lambda: list(out.glob("*.tar")))
    os.kill(child.pid, signal.SIGTERM)
    read_line(child)
    assert not list_temporary(tmp_path)
    assert run_command_line(words) == 0
    assert not list_temporary(tmp_path) and len(list(out.glob("*.tar"))) >= 140


def test_media(random_model: str, tmp_path: Path) -> None:
    """The decoders end with their parent, and nothing is left of the shard in work."""
    corpus, out = write_corpus(tmp_path / "corpus", shards=30, size=4), tmp_path / "audit"
    child = start("audit", corpus, "--out", out, "--model", random_model, "--quiet")
    wait_for(child, lambda: list_finished(out / "embeddings"))
    os.kill(child.pid, signal.SIGTERM)
    assert "of 30 shards are swept" in read_line(child)
    assert not list_temporary(out)


def test_nohup_still_ignores_a_closed_terminal(stored: Path, tmp_path: Path) -> None:
    out = tmp_path / "audit"
    child = start("audit", f"datacomp:{stored}", "--out", out, "--quiet", prefix=("nohup",))
    wait_for(child, lambda: list_finished(out / "embeddings"))
    os.killpg(child.pid, signal.SIGHUP)
    time.sleep(0.5)
    assert child.poll() is None, child.communicate()
    os.kill(child.pid, signal.SIGTERM)
    child.communicate(timeout=TIMEOUT)
    assert child.returncode == 130
