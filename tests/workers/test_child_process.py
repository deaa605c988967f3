"""A child can start before it is needed, import a module meanwhile, and end if nobody takes it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

import pytest

from auditor.workers import child_process
from auditor.workers.child_process import ChildProcess, start_early

MODULE = __name__  # the child imports this file


def serve_modules(channel: Connection, name: str) -> None:
    channel.send_bytes(str(name in sys.modules).encode())
    channel.recv_bytes()


@contextmanager
def serve(name: str) -> Iterator[ChildProcess]:
    child = ChildProcess(serve_modules, name)
    try:
        yield child
    finally:
        child.kill()


def test_the_child_that_started_early_serves_its_module() -> None:
    with start_early(MODULE):
        early, _ = child_process.EARLY[MODULE]
        with serve("auditor.workers.child_process") as child:
            assert child.pid == early.pid and child.receive(60) == b"True"
        with serve("json") as other:
            assert other.pid != early.pid


def test_a_child_that_nobody_takes_is_killed() -> None:
    with start_early(MODULE):
        early, _ = child_process.EARLY[MODULE]
    assert early.returncode is not None and not child_process.EARLY


def test_an_early_start_that_fails_is_left_to_the_child_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with start_early(MODULE), pytest.raises(OSError, match="nowhere"):
        ChildProcess(serve_modules, "json")
