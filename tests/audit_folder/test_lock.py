"""Folder locks on disk and on S3: concurrent writers, dead owners, wrong clocks."""

import errno
import json
import os
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

import fsspec
import pytest

from auditor.audit_folder import lock
from auditor.audit_folder.folder import Folder
from auditor.audit_folder.lock import LockedError, hold_folder_lock
from tests.support.s3 import Bucket, bucket, s3_endpoint  # noqa: F401


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "RENEW", 0.05)
    monkeypatch.setattr(lock, "SETTLE", 0.05)


@pytest.fixture
def memory() -> Folder:
    fsspec.filesystem("memory").store.clear()
    return Folder("memory://bucket/audit")


def left_behind(folder: Folder, **fields: Any) -> None:
    owner = {"host": "elsewhere", "pid": 7, "token": "theirs", "time": time.time()}
    folder.write_json("lock.json", {**owner, **fields})


def test_one_of_many_concurrent_writers_gets_the_lock_on_s3(bucket: Bucket) -> None:  # noqa: F811
    together, outcomes = threading.Barrier(5), []

    def begin() -> None:
        folder = Folder(f"{bucket.url}/audit")
        together.wait()
        try:
            with hold_folder_lock(folder):
                time.sleep(0.5)
            outcomes.append("wrote")
        except LockedError as error:
            outcomes.append(str(error))

    threads = [threading.Thread(target=begin) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted("wrote" if outcome == "wrote" else "refused" for outcome in outcomes) == ["refused"] * 4 + ["wrote"]
    assert not Folder(f"{bucket.url}/audit").exists("lock.json")


def test_the_lock_file_of_a_dead_process_does_not_lock(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("pid 4711 on another-machine\n")
    with hold_folder_lock(Folder(tmp_path)):
        assert f"pid {os.getpid()} on {socket.gethostname()}" in (tmp_path / ".lock").read_text()
    assert not (tmp_path / ".lock").exists()


def test_a_full_disk_does_not_prevent_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with (
        hold_folder_lock(Folder(tmp_path)),
        pytest.raises(LockedError, match="owner unknown"),
        hold_folder_lock(Folder(tmp_path)),
    ):
        pass


@pytest.mark.parametrize("age", [120.0, -3600.0, 1e6])
def test_a_remote_lock_that_is_not_renewed_is_taken_over_for_any_clock(memory: Folder, quick: None, age: float) -> None:
    left_behind(memory, time=time.time() - age)
    with hold_folder_lock(memory):
        assert memory.read_json("lock.json")["pid"] == os.getpid()


def test_a_remote_lock_of_a_slow_clock_is_respected_while_it_is_renewed(memory: Folder, quick: None) -> None:
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(0.02):
            left_behind(memory, time=time.time() - 300)

    left_behind(memory, time=time.time() - 300)
    owner = threading.Thread(target=renew)
    owner.start()
    try:
        with pytest.raises(LockedError, match="pid 7 on elsewhere"), hold_folder_lock(memory):
            pass
    finally:
        ended.set()
        owner.join()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"time": "soon"}'])
def test_a_damaged_lock_is_watched_then_taken_over(memory: Folder, quick: None, content: bytes) -> None:
    memory.fs.pipe_file(memory.path("lock.json"), content)
    with hold_folder_lock(memory):
        assert memory.read_json("lock.json")["pid"] == os.getpid()


@pytest.mark.parametrize("before", [signal.default_int_handler, signal.SIG_IGN], ids=["heard", "ignored"])
def test_a_run_that_lost_its_lock_stops_and_leaves_the_new_lock(memory: Folder, quick: None, before: Any) -> None:
    """Also if nohup, or a script that started the run in its background, ignores SIGINT."""
    usual = signal.signal(signal.SIGINT, before)
    try:
        lose_the_lock(memory)
        assert signal.getsignal(signal.SIGINT) is before
    finally:
        signal.signal(signal.SIGINT, usual)


def lose_the_lock(memory: Folder) -> None:
    def work() -> None:
        with hold_folder_lock(memory):
            left_behind(memory)
            time.sleep(60)

    began = time.monotonic()
    with pytest.raises(LockedError, match="taken over"):
        work()
    assert time.monotonic() - began < 50 and json.loads(memory.read_bytes("lock.json"))["token"] == "theirs"
