"""An audit on a Ray cluster: Ray Data hands shards to a pool of workers, which run the very functions that run locally.

Ray places the workers, restarts the dead ones, gives their shards to others and grows the pool with the cluster. What
is ours: a worker never sweeps twice what is swept, every shard ends in exactly one report, and the process that asked
looks at each of them. A shard whose worker died again and again gets a worker to itself, so that it cannot take its
neighbours with it, and is then reported as failed.
"""

import gc
import json
import logging
import pickle
import warnings
from collections import Counter as Tally
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import ray
import ray.data
from ray.util.annotations import RayDeprecationWarning
from ray.util.metrics import Counter

from auditor.audit_folder.embeddings import file_name
from auditor.audit_folder.folder import Folder
from auditor.corpus.open_corpus import Shard
from auditor.errors import AuditorError
from auditor.run.engine import Watch, make_sweeper
from auditor.run.run_audit import DEFAULT_MODEL, AuditConfig
from auditor.score.corpus_statistics import Context
from auditor.score.score import is_scored, score_shard
from auditor.sweep.embeddings_writer import ShardReport, errors_in
from auditor.sweep.sweep import SweepConfig, earlier
from auditor.sweep.vector_sweep import StoredModel
from model.backbone import Backbone
from model.checkpoint import load_model
from model.model_errors import ModelError

RETRIES = 1  # of a block of shards whose worker died; Ray spends it at once where a whole node is gone
PASSES = (False, False, True, True)  # then what is missing is handed out again, in the end each shard alone
TOGETHER = 2  # shards a worker has open at once: one is fetched while the other is encoded
BLOCK = 16  # shards handed out together, at most
WORTH = 64  # shards that pay for a process of their own where a shard takes milliseconds
ROUNDS = 20  # blocks per worker, where there are enough shards: so that all workers end at about the same time

T = TypeVar("T")
R = TypeVar("R")
Batch = Mapping[str, Any]


class WorkerError(AuditorError):
    """Workers cannot work at all, or did not finish."""


@dataclass(frozen=True)
class Placement:
    """What a worker gets, and how many there may be: as many as the cluster has room for where None."""

    workers: int | None = None
    cpus: float = 1.0
    gpus: float = 0.0

    @property
    def threads(self) -> int:
        return max(1, int(self.cpus))

    def room(self) -> int:
        """Workers that the cluster as it is now could hold; another job may be using part of it."""
        return sum(self._fit(node["Resources"]) for node in ray.nodes() if node["Alive"])

    def _fit(self, node: Mapping[str, float]) -> int:
        shares = [(self.cpus, node.get("CPU", 0.0)), (self.gpus, node.get("GPU", 0.0))]
        return int(min(has / wants for wants, has in shares if wants > 0))


class SweepWorker:
    """An encoder with its decoder processes; sweeps the shards of a block one by one."""

    def __init__(
        self, folder: Folder, model: str | StoredModel, fingerprint: str, device: str, config: SweepConfig, threads: int
    ):
        import torch

        torch.set_num_threads(threads)
        backbone = model if isinstance(model, StoredModel) else load_model(model, device).backbone
        if backbone.fingerprint != fingerprint:
            raise WorkerError(f"{model} is another model here ({backbone.fingerprint:.8}, not {fingerprint:.8})")
        self.folder = folder
        self.sweeper = make_sweeper(backbone, folder, config).__enter__()

    def __call__(self, batch: Batch) -> dict[str, list[Any]]:
        node = ray.get_runtime_context().get_node_id() if ray.is_initialized() else ""
        done = [self.sweep(pickle.loads(shard)) for shard in batch["item"]]
        return {
            "report": [json.dumps(asdict(report)) for report, _ in done],
            "fresh": [fresh for _, fresh in done],
            "node": [node] * len(done),
        }

    def sweep(self, shard: Shard) -> tuple[ShardReport, bool]:
        """The report of a shard, and whether it was swept now; a shard of a block that is tried again may be done."""
        try:
            done = earlier(self.folder, shard, self.sweeper.settings)
            if done is not None:
                return done, False
            return next(iter(self.sweeper.sweep([shard]))), True
        except Exception as error:  # whatever it is, it must cost this shard alone and be told
            return ShardReport(shard.name, failure=one_line(error)), True

    def close(self) -> None:
        self.sweeper.__exit__()


class ScoreWorker:
    """The corpus-wide numbers, fetched once; scores the shards of a block."""

    def __init__(self, folder: Folder, context: "ray.ObjectRef[Context]", threads: int):
        import torch

        torch.set_num_threads(threads)
        self.folder = folder
        self.context: Context = ray.get(context)

    def __call__(self, batch: Batch) -> dict[str, list[Any]]:
        shards = [pickle.loads(shard) for shard in batch["item"]]
        done = [self.score(shard) for shard in shards]
        return {"shard": shards, "rows": [rows for rows, _ in done], "failure": [failure for _, failure in done]}

    def score(self, shard: str) -> tuple[int, str]:
        """New rows, and why there are none where scoring failed."""
        try:
            if is_scored(self.folder, shard, self.context):
                return 0, ""
            return score_shard(self.folder, shard, self.context), ""
        except Exception as error:
            return 0, one_line(error)


def apply(batch: Batch, work: "ray.ObjectRef[Callable[[Any], Any]]") -> dict[str, list[Any]]:
    """Any function of the numbered items of a block, for `RayEngine.each`."""
    function = ray.get(work)
    numbered = [pickle.loads(item) for item in batch["item"]]
    return {
        "number": [number for number, _ in numbered],
        "result": [pickle.dumps(function(item)) for _, item in numbered],
    }


@dataclass(frozen=True)
class RayEngine:
    """Places the work of an audit on the cluster that this process is connected to."""

    folder: Folder
    sweeper: Mapping[str, Any]  # what a SweepWorker is made with
    placement: Placement
    worker: type = SweepWorker

    def sweep(self, shards: Sequence[Shard], watch: Watch) -> Iterator[ShardReport]:
        """Sweep shards and report each once; what failed is tried again, shard by shard."""
        count = Counts()
        seen: set[str] = set()  # nodes whose files were found here
        missing = {shard.name: shard for shard in shards}
        failures: dict[str, str] = {}
        tries: Tally[str] = Tally()  # answers that were a failure: the second is the last
        for alone in PASSES:
            todo = [pickle.dumps(shard) for name, shard in missing.items() if tries[name] < 2]
            for row in self._sweeping(todo, alone):
                report = ShardReport(**json.loads(row["report"]))
                if report.failure is not None:
                    failures[report.shard] = report.failure
                    tries[report.shard] += 1
                elif missing.pop(report.shard, None) is not None:  # an answer that was lost is given twice
                    self._see(report, row["node"], seen)
                    count.add(report)
                    if row["fresh"]:
                        watch(report.rows, errors_in(report.status))
                    yield report
        died = f"its worker died {len(PASSES)} times and more (killed, out of memory, or the encoder crashed)"
        for name in missing:
            report = ShardReport(name, failure=failures.get(name, died))
            count.add(report)
            yield report

    def _sweeping(self, items: Sequence[bytes], alone: bool) -> Iterator[dict[str, Any]]:
        return stream(self.worker, items, self.sweeper, self.placement, alone=alone)

    def _see(self, report: ShardReport, node: str, seen: set[str]) -> None:
        """A node that writes where nobody else looks is found out with its first shard, not with its last."""
        if node not in seen:
            if not self.folder.exists(file_name(report.shard)):
                raise WorkerError(
                    f"a worker wrote {file_name(report.shard)} into {self.folder.url}, but it is not there for the "
                    "others: --out must be storage that all nodes share, such as s3://bucket/audit"
                )
            seen.add(node)

    def each(self, work: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
        """What `work` makes of each item, in the order of the items; a few are not worth a worker."""
        if len(items) < WORTH:
            yield from map(work, items)
            return
        waiting: dict[int, bytes] = {}
        given = 0
        ray.data.DataContext.get_current().max_errored_blocks = 0
        blocks = put_blocks([pickle.dumps(numbered) for numbered in enumerate(items)], BLOCK)
        made = blocks.map_batches(
            apply,
            batch_size=None,
            fn_kwargs={"work": ray.put(work)},
            num_cpus=self.light.cpus,
            max_retries=3,
            retry_exceptions=True,  # of object stores, most of which pass
        )
        for row in rows_of(made):
            waiting[row["number"]] = row["result"]
            while given in waiting:
                yield pickle.loads(waiting.pop(given))
                given += 1
        if given < len(items):
            raise WorkerError(f"workers lost {len(items) - given} of {len(items)} parts; run the same command again")

    def score(self, shards: Sequence[str], context: Context) -> Iterator[tuple[str, int, str]]:
        """Score shards: the name, new rows, and in the end of each that could not be scored why."""
        missing = dict.fromkeys(shards, "its worker died")
        arguments = {"folder": self.folder, "context": ray.put(context), "threads": self.light.threads}
        for alone in PASSES:
            todo = [pickle.dumps(shard) for shard in missing]
            for row in stream(ScoreWorker, todo, arguments, self.light, alone=alone, worth=WORTH):
                if row["failure"]:
                    missing[row["shard"]] = row["failure"]
                elif missing.pop(row["shard"], None) is not None:
                    yield row["shard"], row["rows"], ""
        for shard, failure in missing.items():
            yield shard, 0, failure

    @property
    def light(self) -> Placement:
        """Scoring needs no GPU and little else: a worker for each CPU that the sweep had."""
        workers = self.placement.workers
        most = None if workers is None else workers * self.placement.threads
        return Placement(most, min(1.0, self.placement.cpus))


def stream(
    worker: type,
    items: Sequence[bytes],
    arguments: Mapping[str, Any],
    placement: Placement,
    *,
    alone: bool,
    worth: int = 1,
) -> Iterator[dict[str, Any]]:
    """The rows that a pool of workers makes of the items, as they come; those of a block that failed are left out.

    A worker has one item at a time where it should be `alone` with it; it is started for no fewer than `worth` items.
    """
    if not items:
        return
    room = max(1, min(placement.workers or len(items), placement.room(), len(items) // worth))
    size = 1 if alone else max(1, min(BLOCK, len(items) // (room * ROUNDS)))
    context = ray.data.DataContext.get_current()
    context.max_errored_blocks = -1  # they are missed and tried again
    context.max_consecutive_actor_init_deaths = len(PASSES)
    blocks = put_blocks(items, size)
    pool = ray.data.ActorPoolStrategy(
        min_size=room if alone else 1,
        initial_size=room,
        max_size=room if alone else placement.workers,
        max_tasks_in_flight_per_actor=1 if alone else 2 * TOGETHER,  # what waits at a worker dies with it
        max_concurrent_calls_per_actor=1 if alone else TOGETHER,
        enable_true_multi_threading=True,
    )
    with warnings.catch_warnings():
        # Without a limit Ray Data tries for ever, and it has no other way to set one.
        warnings.simplefilter("ignore", RayDeprecationWarning)
        made = blocks.map_batches(
            worker,
            batch_size=None,
            fn_constructor_kwargs=dict(arguments),
            compute=pool,
            num_cpus=placement.cpus,
            num_gpus=placement.gpus,
            max_task_retries=RETRIES,
        )
    try:
        yield from rows_of(made)
    finally:
        del made, blocks
        gc.collect()  # Ray ends workers when nobody refers to them any more, and tracebacks do


def without_traceback(record: logging.LogRecord) -> bool:
    """A dead worker in one line of the log; its traceback would also keep the other workers alive for ever."""
    if record.exc_info and record.exc_info[1]:
        record.msg, record.args = f"{record.getMessage()} {one_line(record.exc_info[1])}", ()
        record.exc_info = None
    return True


# Ray Data's own report of a block that failed.
logging.getLogger("ray.data._internal.execution.streaming_executor_state").addFilter(without_traceback)


def put_blocks(items: Sequence[bytes], size: int) -> "ray.data.Dataset":
    """Items in blocks of `size`; a block is what Ray hands out, and tries again."""
    ray.data.DataContext.get_current().enable_progress_bars = False  # ours are in pairs
    return ray.data.from_items([{"item": item} for item in items], override_num_blocks=-(-len(items) // size))


def rows_of(made: "ray.data.Dataset") -> Iterator[dict[str, Any]]:
    try:
        yield from made.iter_rows()
    except ray.exceptions.RayError as error:
        raise WorkerError(f"the workers failed: {one_line(error)}") from error


class Counts:
    """Shards, rows and errors for Ray's dashboard and whoever scrapes its metrics."""

    def __init__(self) -> None:
        self.shards = Counter("auditor_shards", "shards that are done")
        self.failed = Counter("auditor_failed_shards", "shards that could not be read")
        self.rows = Counter("auditor_rows", "rows of shards that are done")
        self.errors = Counter("auditor_error_rows", "rows whose status is not ok")

    def add(self, report: ShardReport) -> None:
        errors = report.rows - report.status.get("ok", 0)
        for counter, by in ((self.shards, 1), (self.rows, report.rows), (self.errors, errors)):
            if by:
                counter.inc(by)
        if report.failure is not None:
            self.failed.inc(1)


def ray_engine(
    placement: Placement, folder: Folder, backbone: Backbone | StoredModel, config: AuditConfig
) -> RayEngine:
    """The engine of an audit; workers load the model themselves and must find the same one."""
    shared = Folder(folder.root) if folder.local else folder  # a relative path means something else to a worker
    arguments = {
        "folder": shared,
        "model": backbone if isinstance(backbone, StoredModel) else config.model or DEFAULT_MODEL,
        "fingerprint": backbone.fingerprint,
        "device": config.device,
        "config": config.sweep,
        "threads": placement.threads,
    }
    return RayEngine(shared, arguments, placement)


def one_line(error: BaseException) -> str:
    """What was wrong, in one line: the last of a traceback that came from a worker."""
    if isinstance(error, AuditorError | ModelError):
        return str(error)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = isinstance(error, ray.exceptions.RayError)
    return lines[-1] if named and lines else f"{type(error).__name__}: {lines[0] if lines else 'no message'}"
