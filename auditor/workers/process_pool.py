"""A crew: some processes of this machine that do a function's work on many items, each on one core.

    python -m auditor.workers.process_pool DESCRIPTOR

Scoring and reading vectors keep one core busy, however many threads the matrix product has; of large audits the crew
takes a shard per process. A process is started by its own command, so that whatever script or notebook asked is not run
a second time, with one thread for matrix products; it ends with the process that started it.
"""

import os
import pickle
import signal
import socket
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

from auditor.errors import AuditError, AuditorError
from auditor.workers.decode_worker import die_with

T = TypeVar("T")
R = TypeVar("R")
MOST = 32  # processes
MEMORY = 3 * 2**30  # bytes of the machine's for each: it holds a shard, and what shards are compared with
AHEAD = 4  # items a process that may be done before the one that is waited for
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class Crew:
    """Processes that start when they are first needed, and end with this object."""

    def __init__(self, size: int | None = None) -> None:
        self.size = size or usual_size()
        self.members: list[Member] = []
        self.is_at_work = False
        weakref.finalize(self, end_all, self.members)

    def run(self, work: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
        """What `work` makes of each item, in the order of the items; as many wait as the crew can be ahead."""
        if self.is_at_work:
            raise RuntimeError("the crew has work whose results are still being taken")
        self.is_at_work = True
        try:
            yield from self._run(pickle.dumps(work, pickle.HIGHEST_PROTOCOL), items)  # once, whatever it carries
        finally:
            self.is_at_work = False
            if any(member.item is not None for member in self.members):
                end_all(self.members)  # or they would answer what is no longer asked

    def _run(self, packed: bytes, items: Sequence[Any]) -> Iterator[Any]:
        if not self.members:
            self.members += [Member() for _ in range(self.size)]
        members, done, given = self.members, dict[int, Any](), 0
        for member in members:
            member.learn(packed)
        for wanted in range(len(items)):
            while wanted not in done:
                for member in members:
                    if member.item is None and given < min(len(items), wanted + AHEAD * len(members)):
                        member.give(given, items[given])
                        given += 1
                done |= self._results()
            yield done.pop(wanted)

    def _results(self) -> dict[int, Any]:
        """Of the next that are done, at least one, by the numbers of their items."""
        busy = {member.pipe: member for member in self.members if member.item is not None}
        ready = wait(list(busy))
        return dict(member.result() for pipe, member in busy.items() if pipe in ready)


def usual_size() -> int:
    """A process for each core, as far as there is memory for them."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(1, min(MOST, len(os.sched_getaffinity(0)), memory // MEMORY))


class Member:
    """One process and the item it has."""

    def __init__(self) -> None:
        ours, its = socket.socketpair()
        with ours, its:
            command = [sys.executable, "-m", "auditor.workers.process_pool", str(its.fileno())]
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # what a library prints must not stand between the answers of a command
                pass_fds=[its.fileno()],
                env={**os.environ, **ONE_THREAD},
            )
            self.pipe = Connection(ours.detach())
        self.item: int | None = None
        self.pipe.send((sys.path, os.getcwd(), os.getpid()))

    def learn(self, packed: bytes) -> None:
        self._send(packed)

    def give(self, number: int, item: Any) -> None:
        self.item = number
        self._send(pickle.dumps((item,), pickle.HIGHEST_PROTOCOL))

    def _send(self, message: bytes) -> None:
        with suppress(OSError):  # it has died: said when its answer is waited for
            self.pipe.send_bytes(message)

    def result(self) -> tuple[int, Any]:
        """The number of its item, and what became of it."""
        item = self.item
        assert item is not None
        try:
            failure, found = pickle.loads(self.pipe.recv_bytes())
        except (EOFError, OSError):
            raise AuditError("a process that worked on a shard died (out of memory, or a crash)") from None
        if failure is not None:
            raise failure
        self.item = None
        return item, found

    def end(self) -> None:
        self.pipe.close()
        self.process.kill()
        self.process.wait()


def end_all(members: list[Member]) -> None:
    while members:
        members.pop().end()


def serve(pipe: Connection) -> None:
    """The life of a process: a message is work to learn or, in a tuple, an item to do it with."""
    work: Callable[[Any], Any] | None = None
    with suppress(EOFError, OSError):
        while True:
            message = pickle.loads(pipe.recv_bytes())
            if not isinstance(message, tuple):
                work = message
                continue
            assert work is not None
            pipe.send_bytes(answer(work, message[0]))


def answer(work: Callable[[Any], Any], item: Any) -> bytes:
    try:
        return pickle.dumps((None, work(item)), pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        try:
            packed = pickle.dumps((error, None))
            pickle.loads(packed)
        except Exception:
            packed = pickle.dumps((AuditorError(f"{type(error).__name__}: {error}"), None))
        return packed


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that asked says what happens
    pipe = Connection(int(sys.argv[1]))
    path, folder, parent = pipe.recv()
    sys.path[:] = path
    os.chdir(folder)
    die_with(parent)
    serve(pipe)


if __name__ == "__main__":
    main()
