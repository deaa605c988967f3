"""Runs an audit on a Ray cluster: Ray Data gives shards to a pool of workers, which call the same functions as locally.

Ray places the workers, restarts dead ones, gives their shards to others and grows the pool with the cluster. This
module ensures that no shard is swept twice, that every shard ends in exactly one report, and that the calling process
checks each report. A shard whose worker died several times gets a worker to itself, so that it cannot take other shards
with it, and is then reported as failed.
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

from auditor.audit_folder.embeddings import name_embeddings_file
from auditor.audit_folder.folder import Folder
from auditor.corpus.open_corpus import Shard
from auditor.errors import AuditorError
from auditor.run.audit_config import AuditConfig
from auditor.run.engine import make_sweeper
from auditor.run.run_audit import DEFAULT_MODEL
from auditor.score.corpus_statistics import ScoreContext
from auditor.score.score import is_scored, score_shard
from auditor.sweep.corpus_model import CorpusModel
from auditor.sweep.sweep import find_finished_report
from auditor.sweep.sweep_config import SweepConfig
from auditor.sweep.sweep_events import ShardReport, Watch, count_errors
from model.checkpoint import load_model
from model.model_errors import ModelError

RETRIES = 1  # of a block of shards whose worker died; Ray uses it up at once if a whole node is gone
PASSES = (False, False, True, True)  # missing shards are tried again, in the last passes each shard alone
TOGETHER = 2  # shards a worker has open at once: one is fetched while the other is encoded
BLOCK = 16  # most shards assigned together
WORTH = 64  # shards that justify a process of their own if a shard takes milliseconds
ROUNDS = 20  # blocks per worker, if there are enough shards, so that all workers end at about the same time

T = TypeVar("T")
R = TypeVar("R")
Batch = Mapping[str, Any]


class WorkerError(AuditorError):
    """Workers cannot run at all, or did not finish."""


@dataclass(frozen=True)
class Placement:
    """The resources of a worker, and the number of workers: None for as many as the cluster has room for."""

    workers: int | None = None
    cpus: float = 1.0
    gpus: float = 0.0

    @property
    def threads(self) -> int:
        return max(1, int(self.cpus))

    def room(self) -> int:
        """Return how many workers the cluster can hold now; another job may be using part of it."""
        return sum(self._fit(node["Resources"]) for node in ray.nodes() if node["Alive"])

    def _fit(self, node: Mapping[str, float]) -> int:
        shares = [(self.cpus, node.get("CPU", 0.0)), (self.gpus, node.get("GPU", 0.0))]
        return int(min(available / needed for needed, available in shares if needed > 0))


class SweepWorker:
    """An encoder with its decoder processes; sweeps the shards of a block one by one."""

    def __init__(
        self, folder: Folder, model: str | CorpusModel, fingerprint: str, device: str, config: SweepConfig, threads: int
    ):
        import torch

        torch.set_num_threads(threads)
        loaded: CorpusModel = load_model(model, device).backbone if isinstance(model, str) else model
        if loaded.fingerprint != fingerprint:
            raise WorkerError(f"{model} is another model here ({loaded.fingerprint:.8}, not {fingerprint:.8})")
        self.folder = folder
        self.sweeper = make_sweeper(loaded, folder, config).__enter__()

    def __call__(self, batch: Batch) -> dict[str, list[Any]]:
        node = ray.get_runtime_context().get_node_id() if ray.is_initialized() else ""
        results = [self.sweep(pickle.loads(shard)) for shard in batch["item"]]
        return {
            "report": [json.dumps(asdict(report)) for report, _ in results],
            "fresh": [fresh for _, fresh in results],
            "node": [node] * len(results),
        }

    def sweep(self, shard: Shard) -> tuple[ShardReport, bool]:
        """Return the report of a shard, and whether it was swept now: in a block tried again, it may be finished."""
        try:
            report = find_finished_report(self.folder, shard, self.sweeper.settings)
            if report is not None:
                return report, False
            return next(iter(self.sweeper.sweep([shard]))), True
        except Exception as error:  # any failure costs this shard only, and is reported
            return ShardReport(shard.name, failure=summarize_error(error)), True

    def close(self) -> None:
        self.sweeper.__exit__()


class ScoreWorker:
    """Fetches the corpus-wide numbers once and scores the shards of a block."""

    def __init__(self, folder: Folder, context: "ray.ObjectRef[ScoreContext]", threads: int):
        import torch

        torch.set_num_threads(threads)
        self.folder = folder
        self.context: ScoreContext = ray.get(context)

    def __call__(self, batch: Batch) -> dict[str, list[Any]]:
        shards = [pickle.loads(shard) for shard in batch["item"]]
        results = [self.score(shard) for shard in shards]
        return {"shard": shards, "rows": [rows for rows, _ in results], "failure": [failure for _, failure in results]}

    def score(self, shard: str) -> tuple[int, str]:
        """Return the number of new rows, and the reason if scoring failed."""
        try:
            if is_scored(self.folder, shard, self.context):
                return 0, ""
            return score_shard(self.folder, shard, self.context), ""
        except Exception as error:
            return 0, summarize_error(error)


def apply_to_block(batch: Batch, work: "ray.ObjectRef[Callable[[Any], Any]]") -> dict[str, list[Any]]:
    """Call a function on the numbered items of a block, for `RayEngine.each`."""
    function = ray.get(work)
    numbered = [pickle.loads(item) for item in batch["item"]]
    return {
        "number": [number for number, _ in numbered],
        "result": [pickle.dumps(function(item)) for _, item in numbered],
    }


@dataclass(frozen=True)
class RayEngine:
    """Runs the work of an audit on the cluster that this process is connected to."""

    folder: Folder
    sweeper: Mapping[str, Any]  # arguments of SweepWorker
    placement: Placement
    worker: type = SweepWorker

    def sweep(self, shards: Sequence[Shard], watch: Watch) -> Iterator[ShardReport]:
        """Sweep shards and report each once; failed shards are tried again, one by one."""
        metrics = SweepMetrics()
        checked_nodes: set[str] = set()  # nodes whose files are visible here
        missing = {shard.name: shard for shard in shards}
        failures: dict[str, str] = {}
        tries: Tally[str] = Tally()  # failures by shard: the second is final
        for alone in PASSES:
            todo = [pickle.dumps(shard) for name, shard in missing.items() if tries[name] < 2]
            for row in self._stream_reports(todo, alone):
                report = ShardReport(**json.loads(row["report"]))
                if report.failure is not None:
                    failures[report.shard] = report.failure
                    tries[report.shard] += 1
                elif missing.pop(report.shard, None) is not None:  # Ray repeats an answer that was lost
                    self._check_node(report, row["node"], checked_nodes)
                    metrics.add(report)
                    if row["fresh"]:
                        watch(report.rows, count_errors(report.status))
                    yield report
        died = f"its worker died {len(PASSES)} times and more (killed, out of memory, or the encoder crashed)"
        for name in missing:
            report = ShardReport(name, failure=failures.get(name, died))
            metrics.add(report)
            yield report

    def _stream_reports(self, items: Sequence[bytes], alone: bool) -> Iterator[dict[str, Any]]:
        return stream_worker_rows(self.worker, items, self.sweeper, self.placement, alone=alone)

    def _check_node(self, report: ShardReport, node: str, checked_nodes: set[str]) -> None:
        """Fail with the first shard, not with the last, if a node writes to storage that other nodes cannot see."""
        if node not in checked_nodes:
            name = name_embeddings_file(report.shard)
            if not self.folder.exists(name):
                raise WorkerError(
                    f"a worker wrote {name} into {self.folder.url}, but it is not there for the others: "
                    "--out must be storage that all nodes share, such as s3://bucket/audit"
                )
            checked_nodes.add(node)

    def each(self, work: Callable[[T], R], items: Sequence[T], /) -> Iterator[R]:
        """Yield the result of `work` for each item, in order; a few items are processed here."""
        if len(items) < WORTH:
            yield from map(work, items)
            return
        waiting: dict[int, bytes] = {}
        position = 0
        ray.data.DataContext.get_current().max_errored_blocks = 0
        blocks = make_blocks([pickle.dumps(numbered) for numbered in enumerate(items)], BLOCK)
        results = blocks.map_batches(
            apply_to_block,
            batch_size=None,
            fn_kwargs={"work": ray.put(work)},
            num_cpus=self.light.cpus,
            max_retries=3,
            retry_exceptions=True,  # most failures of object stores pass
        )
        for row in iterate_rows(results):
            waiting[row["number"]] = row["result"]
            while position in waiting:
                yield pickle.loads(waiting.pop(position))
                position += 1
        if position < len(items):
            raise WorkerError(f"workers lost {len(items) - position} of {len(items)} parts; run the same command again")

    def score(self, shards: Sequence[str], context: ScoreContext) -> Iterator[tuple[str, int, str]]:
        """Score shards; yield the name, the new rows and an empty failure, and in the end those that failed."""
        missing = dict.fromkeys(shards, "its worker died")
        arguments = {"folder": self.folder, "context": ray.put(context), "threads": self.light.threads}
        for alone in PASSES:
            todo = [pickle.dumps(shard) for shard in missing]
            for row in stream_worker_rows(ScoreWorker, todo, arguments, self.light, alone=alone, worth=WORTH):
                if row["failure"]:
                    missing[row["shard"]] = row["failure"]
                elif missing.pop(row["shard"], None) is not None:
                    yield row["shard"], row["rows"], ""
        for shard, failure in missing.items():
            yield shard, 0, failure

    @property
    def light(self) -> Placement:
        """The placement of scoring, which needs no GPU: a worker for each CPU of the sweep."""
        workers = self.placement.workers
        max_workers = None if workers is None else workers * self.placement.threads
        return Placement(max_workers, min(1.0, self.placement.cpus))


def stream_worker_rows(
    worker: type,
    items: Sequence[bytes],
    arguments: Mapping[str, Any],
    placement: Placement,
    *,
    alone: bool,
    worth: int = 1,
) -> Iterator[dict[str, Any]]:
    """Yield the rows that a pool of workers makes of the items, as they come, without those of failed blocks.

    With `alone`, a worker has one item at a time. A worker is started for `worth` items or more.
    """
    if not items:
        return
    room = max(1, min(placement.workers or len(items), placement.room(), len(items) // worth))
    size = 1 if alone else max(1, min(BLOCK, len(items) // (room * ROUNDS)))
    context = ray.data.DataContext.get_current()
    context.max_errored_blocks = -1  # their shards are missing and tried again
    context.max_consecutive_actor_init_deaths = len(PASSES)
    blocks = make_blocks(items, size)
    pool = ray.data.ActorPoolStrategy(
        min_size=room if alone else 1,
        initial_size=room,
        max_size=room if alone else placement.workers,
        max_tasks_in_flight_per_actor=1 if alone else 2 * TOGETHER,  # tasks that wait at a worker die with it
        max_concurrent_calls_per_actor=1 if alone else TOGETHER,
        enable_true_multi_threading=True,
    )
    with warnings.catch_warnings():
        # Without a limit Ray Data tries forever, and this is the only way to set one.
        warnings.simplefilter("ignore", RayDeprecationWarning)
        results = blocks.map_batches(
            worker,
            batch_size=None,
            fn_constructor_kwargs=dict(arguments),
            compute=pool,
            num_cpus=placement.cpus,
            num_gpus=placement.gpus,
            max_task_retries=RETRIES,
        )
    try:
        yield from iterate_rows(results)
    finally:
        del results, blocks
        gc.collect()  # Ray ends workers when nothing refers to them any more, and tracebacks refer to them


def drop_traceback(record: logging.LogRecord) -> bool:
    """Log a dead worker in one line; its traceback would also keep the other workers alive forever."""
    if record.exc_info and record.exc_info[1]:
        record.msg, record.args = f"{record.getMessage()} {summarize_error(record.exc_info[1])}", ()
        record.exc_info = None
    return True


# Ray Data logs failed blocks here.
logging.getLogger("ray.data._internal.execution.streaming_executor_state").addFilter(drop_traceback)


def make_blocks(items: Sequence[bytes], size: int) -> "ray.data.Dataset":
    """Put items into blocks of `size`; Ray assigns and retries whole blocks."""
    ray.data.DataContext.get_current().enable_progress_bars = False  # ours count pairs
    return ray.data.from_items([{"item": item} for item in items], override_num_blocks=-(-len(items) // size))


def iterate_rows(results: "ray.data.Dataset") -> Iterator[dict[str, Any]]:
    try:
        yield from results.iter_rows()
    except ray.exceptions.RayError as error:
        raise WorkerError(f"the workers failed: {summarize_error(error)}") from error


class SweepMetrics:
    """Counts shards, rows and errors for Ray's dashboard and metrics."""

    def __init__(self) -> None:
        self.shards = Counter("auditor_shards", "shards that are done")
        self.failed = Counter("auditor_failed_shards", "shards that could not be read")
        self.rows = Counter("auditor_rows", "rows of shards that are done")
        self.errors = Counter("auditor_error_rows", "rows whose status is not ok")

    def add(self, report: ShardReport) -> None:
        errors = report.rows - report.status.get("ok", 0)
        for counter, count in ((self.shards, 1), (self.rows, report.rows), (self.errors, errors)):
            if count:
                counter.inc(count)
        if report.failure is not None:
            self.failed.inc(1)


def make_ray_engine(placement: Placement, folder: Folder, model: CorpusModel, config: AuditConfig) -> RayEngine:
    """Return the engine of an audit; workers load the model themselves and must get the same one."""
    shared = Folder(folder.root) if folder.local else folder  # a worker has another current folder
    arguments = {
        "folder": shared,
        "model": config.model or DEFAULT_MODEL if model.encodes_media else model,
        "fingerprint": model.fingerprint,
        "device": config.device,
        "config": config.sweep,
        "threads": placement.threads,
    }
    return RayEngine(shared, arguments, placement)


def summarize_error(error: BaseException) -> str:
    """Return the error in one line: for an error from a worker, the last line of its traceback."""
    if isinstance(error, AuditorError | ModelError):
        return str(error)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    from_worker = isinstance(error, ray.exceptions.RayError)
    return lines[-1] if from_worker and lines else f"{type(error).__name__}: {lines[0] if lines else 'no message'}"
