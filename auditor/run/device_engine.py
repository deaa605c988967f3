"""A sweep by several encoders of one machine, without Ray: a process for each device, shards handed out as they go.

`--devices all` is every GPU; `cuda:0,cuda:0` two processes that feed one. What a process runs is the Sweeper of every
other engine; scoring stays in the process that asked. Shards whose process died are tried again, each alone, and then
reported as failed, so that each shard ends in exactly one report.
"""

import multiprocessing
import os
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from typing import Any, Literal

import torch

from auditor.audit_folder.folder import Folder
from auditor.corpus.shard import Shard
from auditor.errors import AuditError, AuditorError
from auditor.run.engine import Engine, LocalEngine, Watch
from auditor.run.run_audit import DEFAULT_MODEL, AuditConfig, local_engine
from auditor.sweep.embeddings_writer import ShardReport
from auditor.sweep.sweep import Sweeper, earlier, settings
from auditor.sweep.vector_sweep import StoredModel
from auditor.workers.decode_worker import die_with
from model.backbone import Backbone
from model.checkpoint import load_model
from model.model_errors import ModelError

TOGETHER = 2  # shards that a process has at once: one is opened while the other is encoded
START = "spawn"  # of processes: CUDA does not survive a fork
TRIES = 3  # of a shard whose process died: the first with a neighbour, the others alone
Message = tuple[Literal["rows", "done", "broken", "died"], Any]


def devices_named(text: str) -> list[str]:
    """`all`, or devices with commas between them, as torch calls them."""
    count = torch.cuda.device_count()
    if text == "all":
        if not count:
            raise AuditError("--devices all: this machine has no GPU that torch can use; leave the option out")
        return [f"cuda:{number}" for number in range(count)]
    names = [name.strip() for name in text.split(",") if name.strip()]
    try:
        known = [torch.device(name) for name in names]
    except RuntimeError:
        known = []
    if not known or any(one.type == "cuda" and (one.index or 0) >= count for one in known):
        raise AuditError(f"--devices {text}: there are {count} GPUs; write all, or names such as cuda:0,cuda:1")
    return names


@dataclass(frozen=True)
class Job:
    """What a process is made with."""

    device: str
    threads: int
    config: AuditConfig
    fingerprint: str  # of the model that it must find


@dataclass(frozen=True)
class DevicesEngine(LocalEngine):
    """Sweeps in a process for each device; all else as LocalEngine does it."""

    jobs: tuple[Job, ...] = ()

    def sweep(self, shards: Sequence[Shard], watch: Watch) -> Iterator[ShardReport]:
        assert isinstance(self.backbone, Backbone)
        wanted = settings(self.backbone, self.config)
        todo: list[Shard] = []
        for shard in shards:
            done = earlier(self.folder, shard, wanted)
            if done is None:
                todo.append(shard)
            else:
                yield done
        yield from hand_out(self.jobs[: len(todo)], todo, watch)


def devices_engine(
    devices: Sequence[str], folder: Folder, backbone: Backbone | StoredModel, config: AuditConfig
) -> Engine:
    """The engine of an audit; decoders and threads are shared out among the devices."""
    if isinstance(backbone, StoredModel):  # nothing to encode
        return local_engine(folder, backbone, config)
    share = max(1, len(os.sched_getaffinity(0)) // len(devices))
    mine = replace(config, sweep=replace(config.sweep, decoders=max(1, config.sweep.decoders // len(devices))))
    jobs = tuple(Job(device, share, mine, backbone.fingerprint) for device in devices)
    return DevicesEngine(folder, backbone, config.sweep, jobs=jobs)


class Worker:
    """One process, the pipe to it, and the shards it has."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.has: dict[str, Shard] = {}
        processes: Any = multiprocessing.get_context(START)
        self.pipe, its = processes.Pipe()
        self.process = processes.Process(target=work, args=(its, job, os.getpid()))
        self.process.start()
        its.close()

    def give(self, shard: Shard) -> None:
        self.has[shard.name] = shard
        with suppress(OSError):  # it has died: the next that is heard of it
            self.pipe.send(shard)

    def hear(self) -> Message:
        try:
            message: Message = self.pipe.recv()
            return message
        except (EOFError, OSError):
            return "died", None

    def end(self) -> None:
        self.pipe.close()
        self.process.kill()
        self.process.join()


def hand_out(jobs: Sequence[Job], shards: Sequence[Shard], watch: Watch) -> Iterator[ShardReport]:
    """Every shard swept by some process and reported once."""
    waiting, deaths = deque(shards), Counter[str]()
    workers = [Worker(job) for job in jobs]
    try:
        while True:
            feed(workers, waiting, deaths)
            busy = [worker for worker in workers if worker.has]
            if not busy:
                return
            ready = wait([worker.pipe for worker in busy])
            for worker in (one for one in busy if one.pipe in ready):
                kind, content = worker.hear()
                if kind == "rows":
                    watch(*content)
                elif kind == "done":
                    del worker.has[content.shard]
                    yield content
                elif kind == "broken":
                    raise AuditError(f"{worker.job.device}: {content}")
                else:
                    worker.end()
                    workers[workers.index(worker)] = Worker(worker.job)
                    deaths.update(worker.has.keys())
                    waiting.extend(shard for shard in worker.has.values() if deaths[shard.name] < TRIES)
                    yield from (died(name) for name in worker.has if deaths[name] >= TRIES)
    finally:
        for worker in workers:
            worker.end()


def feed(workers: Sequence[Worker], waiting: "deque[Shard]", deaths: "Counter[str]") -> None:
    """Give each process what it has room for; a shard that a process died with gets one to itself."""
    for worker in workers:
        while waiting and len(worker.has) < TOGETHER:
            alone = deaths[waiting[0].name] > 0
            if worker.has and (alone or any(deaths[name] for name in worker.has)):
                break
            worker.give(waiting.popleft())


def died(shard: str) -> ShardReport:
    return ShardReport(shard, failure=f"the process that swept it died {TRIES} times (out of memory, or a crash)")


def work(pipe: Any, job: Job, parent: int) -> None:
    """The life of a process: sweep the shards that come until nobody sends any more."""
    die_with(parent)
    torch.set_num_threads(job.threads)
    lock = threading.Lock()

    def say(message: Message) -> None:
        with lock, suppress(OSError):  # nobody listens any more
            pipe.send(message)

    try:
        backbone = load_model(job.config.model or DEFAULT_MODEL, job.device).backbone
        if backbone.fingerprint != job.fingerprint:
            raise AuditError(f"{job.config.model} is another model than when the audit began")
        with (
            Sweeper(backbone, Folder(job.config.out), job.config.sweep) as sweeper,
            ThreadPoolExecutor(TOGETHER) as threads,
        ):
            for shard in received(pipe):
                threads.submit(sweep_one, sweeper, shard, say)
    except (AuditorError, ModelError) as error:
        say(("broken", str(error)))


def sweep_one(sweeper: Sweeper, shard: Shard, say: Callable[[Message], None]) -> None:
    try:
        for report in sweeper.sweep([shard], lambda rows, errors: say(("rows", (rows, errors)))):
            say(("done", report))
    except ModelError as error:  # the same for every shard
        say(("broken", str(error)))
    except Exception as error:  # whatever it is, it must cost this shard alone and be told
        say(("done", ShardReport(shard.name, failure=f"{type(error).__name__}: {error}")))


def received(pipe: Any) -> Iterator[Shard]:
    with suppress(EOFError, OSError):
        while True:
            yield pipe.recv()
