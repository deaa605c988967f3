"""Engines decide which process works on a shard: the interface of all engines, and the engine for one machine.

One machine sweeps media in this process with its decoder processes. Everything else runs in this process too if there
is little of it; for an audit with LARGE embeddings, a pool of processes works on the shards, one for each core.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from auditor.audit_folder.folder import Folder
from auditor.corpus.open_corpus import Shard
from auditor.score.corpus_statistics import ScoreContext
from auditor.score.score import score_if_needed
from auditor.sweep.corpus_model import CorpusModel, fingerprint_sweep
from auditor.sweep.embeddings_writer import find_finished_report
from auditor.sweep.sweep_config import SweepConfig
from auditor.sweep.sweep_events import ShardReport, Watch, count_errors
from auditor.sweep.vector_sweep import StoredModel, VectorSweeper, count_stored_bytes, sweep_vectors
from auditor.workers.process_pool import Engine, ProcessPool

if TYPE_CHECKING:
    from auditor.sweep.sweep import Sweeper

T = TypeVar("T")
R = TypeVar("R")


class AuditEngine(Engine, Protocol):
    """Decides which process works on a shard; the work itself is the same everywhere.

    The engine also skips finished shards: with many shards, that check alone is worth distributing.
    """

    def sweep(self, shards: Sequence[Shard], watch: Watch) -> Iterator[ShardReport]:
        """Sweep the shards that are not swept yet; yield a report for every shard, in any order."""

    def score(self, shards: Sequence[str], context: ScoreContext) -> Iterator[tuple[str, int, str]]:
        """Score the shards that are not scored yet; yield the name, the new rows and the failure of every shard."""


@dataclass(frozen=True)
class LocalEngine:
    """Does everything on this machine."""

    folder: Folder
    model: CorpusModel | None  # None if the engine only scores
    config: SweepConfig
    pool: ProcessPool = field(default_factory=ProcessPool, repr=False, compare=False)

    def sweep(self, shards: Sequence[Shard], watch: Watch) -> Iterator[ShardReport]:
        assert self.model is not None
        settings = fingerprint_sweep(self.model, self.config)
        pending: list[Shard] = []
        for shard in shards:
            if report := find_finished_report(self.folder, shard, settings):
                yield report
            else:
                pending.append(shard)
        if pending:
            yield from self.sweep_pending(self.model, pending, watch)

    def sweep_pending(self, model: CorpusModel, shards: Sequence[Shard], watch: Watch) -> Iterator[ShardReport]:
        """Sweep shards without checking whether they are swept."""
        count_bytes = partial(count_stored_bytes, shards)
        if isinstance(model, StoredModel) and self.pool.choose_engine(len(shards), count_bytes) is self.pool:
            for report in self.pool.each(partial(sweep_vectors, model, self.folder), shards):
                watch(report.rows, count_errors(report.status))
                yield report
            return
        with make_sweeper(model, self.folder, self.config) as sweeper:
            yield from sweeper.sweep(shards, watch)

    def each(self, work: Callable[[T], R], items: Sequence[T], /) -> Iterator[R]:
        return self.pool.choose_engine(len(items), partial(self.folder.bytes_in, "embeddings")).each(work, items)

    def score(self, shards: Sequence[str], context: ScoreContext) -> Iterator[tuple[str, int, str]]:
        return self.each(partial(score_if_needed, self.folder, context), shards)


def make_sweeper(model: CorpusModel, folder: Folder, config: SweepConfig) -> "Sweeper | VectorSweeper":
    if isinstance(model, StoredModel):
        return VectorSweeper(model, folder)
    from auditor.sweep.sweep import Sweeper  # it imports torch, which stored embeddings need only later
    from model.backbone import Backbone

    assert isinstance(model, Backbone)
    return Sweeper(model, folder, config)
