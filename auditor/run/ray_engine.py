"""Runs an audit on a Ray cluster: Ray Data gives shards to a pool of workers, which call the same functions as locally.

Ray places the workers, restarts dead ones, gives their shards to others and grows the pool with the cluster. This
module ensures that no shard is swept twice, that every shard ends in exactly one report, and that the calling process
checks each report. A shard whose worker died several times gets a worker to itself, so that it cannot take other shards
with it, and is then reported as failed.
"""

import gc
import logging
import pickle
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import ray
import ray.data
import torch
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
from auditor.score.score import score_if_needed
from auditor.sweep.corpus_model import CorpusModel
from auditor.sweep.embeddings_writer import find_finished_report
from auditor.sweep.sweep_config import SweepConfig
from auditor.sweep.sweep_events import ShardReport, Watch, count_errors
from auditor.workers.blas_threads import use_one_blas_thread
from auditor.workers.process_pool import sort_results
from model.checkpoint import load_model
from model.model_errors import ModelError

RETRIES = 1  # of a block of shards whose worker died; Ray uses it up at once if a whole node is gone
PASSES = (False, False, True, True)  # missing shards are tried again, in the last passes each shard alone
TOGETHER = 2  # shards a worker has open at once: one is fetched while the other is encoded
BLOCK = 16  # most shards assigned together
WORTH = 64  # shards that justify a process of their own if a shard takes milliseconds
ROUNDS = 20  # blocks per worker, if there are enough shards, so that all workers end at about the same time

METRICS = {
    "shards": "shards that are done",
    "failed_shards": "shards that could not be read",
    "rows": "rows of shards that are done",
    "error_rows": "rows whose status is not ok",
}

T = TypeVar("T")
R = TypeVar("R")
Outcome = tuple[str, Any, str]  # name of the item, its result, and why it failed, empty if it did not
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
        needs = [(name, need) for name, need in (("CPU", self.cpus), ("GPU", self.gpus)) if need > 0]
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        return sum(int(min(node.get(name, 0.0) / need for name, need in needs)) for node in nodes)


class BlockWorker(ABC):
    """A process of the cluster: runs the items of a block one by one. An error costs its item only."""

    @abstractmethod
    def run(self, item: Any) -> Any: ...

    def __call__(self, batch: Batch) -> dict[str, list[bytes]]:
        return {"outcome": [pickle.dumps(self._try(*pickle.loads(item))) for item in batch["item"]]}

    def _try(self, name: str, item: Any) -> Outcome:
        try:
            return name, self.run(item), ""
        except Exception as error:
            return name, None, summarize_error(error)


class SweepWorker(BlockWorker):
    """An encoder with its decoder processes."""

    def __init__(
        self, folder: Folder, model: str | CorpusModel, fingerprint: str, device: str, config: SweepConfig, threads: int
    ):
        torch.set_num_threads(threads)
        loaded: CorpusModel = load_model(model, device).backbone if isinstance(model, str) else model
        if loaded.fingerprint != fingerprint:
            raise WorkerError(f"{model} is another model here ({loaded.fingerprint:.8}, not {fingerprint:.8})")
        self.folder = folder
        self.sweeper = make_sweeper(loaded, folder, config).__enter__()

    def run(self, shard: Shard) -> tuple[ShardReport, bool, str]:
        """Return the report, whether the shard was swept now (in a block tried again it may be finished), the node."""
        node = ray.get_runtime_context().get_node_id() if ray.is_initialized() else ""
        finished = find_finished_report(self.folder, shard, self.sweeper.settings)
        report = finished or next(iter(self.sweeper.sweep([shard])))
        if report.failure is not None:
            raise WorkerError(report.failure)
        return report, finished is None, node


class ScoreWorker(BlockWorker):
    """Fetches the corpus-wide numbers once and scores shards."""

    def __init__(self, folder: Folder, context: "ray.ObjectRef[ScoreContext]", threads: int):
        torch.set_num_threads(threads)
        self.folder = folder
        self.context: ScoreContext = ray.get(context)

    @use_one_blas_thread()
    def run(self, shard: str) -> int:
        return score_if_needed(self.folder, self.context, shard)[1]


@use_one_blas_thread()
def apply_to_block(batch: Batch, work: "ray.ObjectRef[Callable[[Any], Any]]") -> dict[str, list[Any]]:
    """Call a function on the numbered items of a block, for `RayEngine.each`."""
    function = ray.get(work)
    numbered = [pickle.loads(item) for item in batch["item"]]
    results = [pickle.dumps(function(item)) for _, item in numbered]
    return {"number": [number for number, _ in numbered], "result": results}


@dataclass(frozen=True)
class RayEngine:
    """Runs the work of an audit on the cluster that this process is connected to."""

    folder: Folder
    sweeper: Mapping[str, Any]  # arguments of SweepWorker
    placement: Placement
    worker: type[BlockWorker] = SweepWorker

    def sweep(self, shards: Sequence[Shard], watch: Watch) -> Iterator[ShardReport]:
        metrics = {name: Counter(f"auditor_{name}", description) for name, description in METRICS.items()}
        checked_nodes: set[str] = set()  # nodes whose files are visible here
        items = {shard.name: shard for shard in shards}
        for name, result, failure in run_on_workers(self.worker, items, self.sweeper, self.placement):
            if failure:
                report = ShardReport(name, failure=failure)
            else:
                report, fresh, node = result
                self._check_node(report, node, checked_nodes)
                if fresh:
                    watch(report.rows, count_errors(report.status))
            count_report(metrics, report)
            yield report

    def _check_node(self, report: ShardReport, node: str, checked_nodes: set[str]) -> None:
        """Fail with the first shard, not with the last, if a node writes to storage that other nodes cannot see."""
        name = name_embeddings_file(report.shard)
        if node not in checked_nodes and not self.folder.exists(name):
            raise WorkerError(
                f"a worker wrote {name} into {self.folder.url}, but it is not there for the others: "
                "--out must be storage that all nodes share, such as s3://bucket/audit"
            )
        checked_nodes.add(node)

    def each(self, work: Callable[[T], R], items: Sequence[T], /) -> Iterator[R]:
        if len(items) < WORTH:
            yield from map(work, items)
            return
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
        remaining = len(items)
        for result in sort_results((row["number"], row["result"]) for row in iterate_rows(results)):
            remaining -= 1
            yield pickle.loads(result)
        if remaining:
            raise WorkerError(f"workers lost {remaining} of {len(items)} parts; run the same command again")

    def score(self, shards: Sequence[str], context: ScoreContext) -> Iterator[tuple[str, int, str]]:
        arguments = {"folder": self.folder, "context": ray.put(context), "threads": self.light.threads}
        items = {shard: shard for shard in shards}
        for shard, rows, failure in run_on_workers(ScoreWorker, items, arguments, self.light, worth=WORTH):
            yield shard, rows or 0, failure

    @property
    def light(self) -> Placement:
        """The placement of scoring, which needs no GPU: a worker for each CPU of the sweep."""
        workers = self.placement.workers
        max_workers = None if workers is None else workers * self.placement.threads
        return Placement(max_workers, min(1.0, self.placement.cpus))


def run_on_workers(
    worker: type[BlockWorker],
    items: Mapping[str, Any],
    arguments: Mapping[str, Any],
    placement: Placement,
    *,
    worth: int = 1,
) -> Iterator[Outcome]:
    """Yield the outcome of each named item once. An item whose worker died is tried in every pass, a failure twice."""
    missing = {name: pickle.dumps((name, item)) for name, item in items.items()}
    failures: dict[str, str] = {}
    for alone in PASSES:
        todo = list(missing.values())
        for name, result, failure in stream_outcomes(worker, todo, arguments, placement, alone=alone, worth=worth):
            if failure and name not in failures:
                failures[name] = failure
            elif missing.pop(name, None) is not None:  # Ray repeats an answer that was lost
                yield name, result, failure
    died = f"its worker died {len(PASSES)} times and more (killed, out of memory, or it crashed)"
    for name in missing:
        yield name, None, failures.get(name, died)


def stream_outcomes(
    worker: type[BlockWorker],
    items: Sequence[bytes],
    arguments: Mapping[str, Any],
    placement: Placement,
    *,
    alone: bool,
    worth: int,
) -> Iterator[Outcome]:
    """Yield outcomes as workers make them, without those of failed blocks. A worker is started for `worth` items."""
    if not items:
        return
    room = max(1, min(placement.workers or len(items), placement.room(), len(items) // worth))
    size = 1 if alone else max(1, min(BLOCK, len(items) // (room * ROUNDS)))
    context = ray.data.DataContext.get_current()
    context.max_errored_blocks = -1  # their shards are missing and tried again
    context.max_consecutive_actor_init_deaths = len(PASSES)
    blocks = make_blocks(items, size)
    # With `alone`, a worker has one item at a time. Tasks that wait at a worker die with it.
    pool = ray.data.ActorPoolStrategy(
        min_size=room if alone else 1,
        initial_size=room,
        max_size=room if alone else placement.workers,
        max_tasks_in_flight_per_actor=1 if alone else 2 * TOGETHER,
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
        yield from (pickle.loads(row["outcome"]) for row in iterate_rows(results))
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


def count_report(metrics: Mapping[str, Counter], report: ShardReport) -> None:
    """Count a report for Ray's dashboard and metrics."""
    failed, errors = int(report.failure is not None), report.rows - report.status.get("ok", 0)
    for metric, count in zip(metrics.values(), (1, failed, report.rows, errors), strict=True):
        if count:
            metric.inc(count)


def make_ray_engine(placement: Placement, folder: Folder, model: CorpusModel, config: AuditConfig) -> RayEngine:
    """Workers load the model themselves and must get the same one."""
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
