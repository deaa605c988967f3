"""A pool of child processes that run a function on many items, and the engine interface that callers see.

Scoring and reading vectors keep one core busy, however many threads the matrix product has. For large audits the pool
gives each process a shard at a time. Sweeping on several devices uses the same pool, with a process for each device.
"""

import os
import pickle
import threading
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, Protocol, TypeVar

from auditor.cores import count_cores
from auditor.errors import AuditError, AuditorError
from auditor.workers.blas_threads import choose_kernels
from auditor.workers.child_process import ChildProcess, DeadChildError, wait_for_messages

T = TypeVar("T")
R = TypeVar("R")
MAX_PROCESSES = 32
MEMORY = 3 * 2**30  # bytes of the machine's memory for each process: a shard and what shards are compared with
LARGE = 64 * 2**20  # bytes to read; with fewer, starting a pool takes longer than the work
AHEAD = 4  # items for each process that may be finished before the oldest unfinished item
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
# Work on shards allocates and frees the same large arrays again and again. Memory that stays with the process and is
# mapped in huge pages saves up to a third of the processor time, which the system takes to clear small pages.
KEPT_MEMORY = {
    "GLIBC_TUNABLES": ":".join(
        f"glibc.malloc.{name}" for name in ("hugetlb=1", "mmap_threshold=33554432", "trim_threshold=268435456")
    ),
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}
Notify = Callable[..., None]


class Engine(Protocol):
    """Runs a function on many items: in this process, in several, or on a cluster."""

    def each(self, work: Callable[[T], R], items: Sequence[T], /) -> Iterator[R]:
        """Yield the result of `work` for each item, in the order of the items."""


class SerialEngine:
    """Runs everything in this process."""

    def each(self, work: Callable[[T], R], items: Sequence[T], /) -> Iterator[R]:
        return map(work, items)


SERIAL = SerialEngine()


def refuse_death(item: object) -> Any:
    raise AuditError("a process that worked on a shard died (out of memory, or a crash)")


@dataclass
class PoolWorker:
    """A process of a pool, its pickled work and the numbers of the items it has. It starts with its first item."""

    concurrency: int
    environment: dict[str, str]
    work: bytes = b""
    child: ChildProcess | None = None
    numbers: set[int] = field(default_factory=set)

    def give(self, number: int, item: object) -> None:
        if self.child is None:
            self.child = ChildProcess(serve_work, self.concurrency, environment=self.environment)
            self.child.send(self.work)
        self.numbers.add(number)
        self.child.send(pickle.dumps((number, item), pickle.HIGHEST_PROTOCOL))

    def set_work(self, work: bytes) -> None:
        self.work = work
        if self.child is not None:
            self.child.send(work)

    def kill(self) -> None:
        if self.child is not None:
            self.child.kill()
            self.child = None
        self.numbers.clear()


@dataclass
class Tasks:
    """The items of one call: which wait for a process, and how often the process of each died."""

    items: Sequence[Any]
    waiting: deque[int]
    deaths: Counter[int] = field(default_factory=Counter)


def build_environment() -> dict[str, str]:
    """The variables of a process that works on shards; how memory is kept can be set by the user."""
    return ONE_THREAD | choose_kernels() | {name: os.environ.get(name, value) for name, value in KEPT_MEMORY.items()}


class ProcessPool:
    """Processes that start when they are first needed and end with this object.

    A process works on `concurrency` items at once. If it dies, its items are tried again, each alone, up to `tries`
    times in all.
    """

    def __init__(
        self,
        size: int | None = None,
        *,
        concurrency: int = 1,
        tries: int = 1,
        environment: dict[str, str] | None = None,  # extra variables; the default is for work of one thread on shards
    ) -> None:
        self.size = size or default_size()
        self.concurrency, self.tries = concurrency, tries
        self.environment = build_environment() if environment is None else environment
        self.workers: list[PoolWorker] = []
        self.is_busy = False
        weakref.finalize(self, kill_workers, self.workers)

    def each(self, work: Callable[[T], R], items: Sequence[T], /) -> Iterator[R]:
        return sort_results(self.run([work] * self.size, items))

    def choose_engine(self, items: int, count_bytes: Callable[[], int]) -> Engine:
        """Return this pool if it is worth starting for the items and the bytes that they read, else this process."""
        return self if self.size > 1 and items >= 2 * self.size and count_bytes() >= LARGE else SERIAL

    def run(
        self,
        works: Sequence[Callable[..., R]],
        items: Sequence[T],
        notify: Notify = lambda *_: None,
        on_death: Callable[[T], R] = refuse_death,
    ) -> Iterator[tuple[int, R]]:
        """Yield (number of the item, result) as items finish. Each process runs its own of the `works`.

        Raises what a work raises. `on_death` makes the result of an item whose processes died `tries` times. With
        `concurrency` above 1, a work also gets a keyword `notify`, which calls `notify` in this process.
        """
        if self.is_busy:
            raise RuntimeError("the results of the pool's last call are still being read")
        self.is_busy = True
        try:
            pickles = {work: pickle.dumps(work, pickle.HIGHEST_PROTOCOL) for work in set(works)}  # it may carry much
            new = range(len(self.workers), len(works))
            self.workers += [PoolWorker(self.concurrency, self.environment) for _ in new]
            for worker, work in zip(self.workers, works, strict=False):
                worker.set_work(pickles[work])
            yield from self._run(Tasks(items, deque(range(len(items)))), notify, on_death)
        finally:
            self.is_busy = False
            if any(worker.numbers for worker in self.workers):
                kill_workers(self.workers)  # or they would send results that nobody reads

    def _run(self, tasks: Tasks, notify: Notify, on_death: Callable[[Any], R]) -> Iterator[tuple[int, R]]:
        while True:
            self._assign(tasks)
            busy = {worker.child: worker for worker in self.workers if worker.child is not None and worker.numbers}
            if not busy:
                return
            for child in wait_for_messages(list(busy)):
                worker = busy[child]
                try:
                    number, failure, content = pickle.loads(child.receive())
                except DeadChildError:
                    yield from self._bury(worker, tasks, on_death)
                    continue
                if failure is not None:
                    worker.numbers.discard(number)
                    raise failure
                if number is None:
                    notify(*content)
                else:
                    worker.numbers.remove(number)
                    yield number, content

    def _assign(self, tasks: Tasks) -> None:
        """Give each process the items it has room for; an item whose process died gets a process to itself."""
        for worker in self.workers:
            while tasks.waiting and len(worker.numbers) < self.concurrency:
                number = tasks.waiting[0]
                oldest = min((n for other in self.workers for n in other.numbers), default=number)
                if number >= oldest + AHEAD * self.size * self.concurrency:
                    return
                if worker.numbers and any(tasks.deaths[n] for n in (number, *worker.numbers)):
                    break
                worker.give(tasks.waiting.popleft(), tasks.items[number])

    def _bury(self, worker: PoolWorker, tasks: Tasks, on_death: Callable[[Any], R]) -> Iterator[tuple[int, R]]:
        """Put the items of a dead process back, or settle those that were tried often enough."""
        numbers = sorted(worker.numbers)
        worker.kill()
        tasks.deaths.update(numbers)
        tasks.waiting.extend(number for number in numbers if tasks.deaths[number] < self.tries)
        yield from ((n, on_death(tasks.items[n])) for n in numbers if tasks.deaths[n] >= self.tries)


def sort_results(results: Iterable[tuple[int, R]]) -> Iterator[R]:
    """Yield numbered results in the order of their numbers, each as soon as those before it are there."""
    waiting: dict[int, R] = {}
    position = 0
    for number, result in results:
        waiting[number] = result
        while position in waiting:
            yield waiting.pop(position)
            position += 1


def default_size() -> int:
    """Return a process for each core, as far as the memory suffices."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(1, min(MAX_PROCESSES, count_cores(), memory // MEMORY))


def kill_workers(workers: list[PoolWorker]) -> None:
    while workers:
        workers.pop().kill()


def serve_work(channel: Connection, concurrency: int) -> None:
    """Run in the child: a message is a function or, in a tuple, the number and the item to call it with."""
    lock = threading.Lock()

    def send(message: bytes) -> None:
        with lock:
            channel.send_bytes(message)

    def notify(*content: object) -> None:
        send(pickle.dumps((None, None, content)))

    def answer(number: int, item: object) -> None:
        assert work is not None
        send(run_item(work if concurrency == 1 else partial(work, notify=notify), number, item))

    work: Callable[..., Any] | None = None
    with ThreadPoolExecutor(concurrency) as threads:
        while True:
            message = pickle.loads(channel.recv_bytes())
            if isinstance(message, tuple):
                threads.submit(answer, *message)
            else:
                work = message


def run_item(work: Callable[[Any], Any], number: int, item: Any) -> bytes:
    """Return the pickled (number, error, result)."""
    try:
        return pickle.dumps((number, None, work(item)), pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        with suppress(Exception):  # an error that cannot be pickled
            message = pickle.dumps((number, error, None))
            pickle.loads(message)
            return message
        return pickle.dumps((number, AuditorError(f"{type(error).__name__}: {error}"), None))
