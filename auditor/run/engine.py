"""What places the work on shards: the protocol of every engine, and the one of a single machine.

A machine sweeps media in this process and its decoders, and does all else here too while that is little; of an audit
with LARGE embeddings the shards are spread over a crew of processes, one for each core.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVar

from auditor.audit_folder.folder import Folder
from auditor.corpus.open_corpus import Shard
from auditor.score.corpus_statistics import Context
from auditor.score.score import is_scored, score_shard
from auditor.sweep.embeddings_writer import ShardReport, errors_in
from auditor.sweep.sweep import SweepConfig, Sweeper, earlier
from auditor.sweep.vector_sweep import StoredModel, VectorSweeper, stored_bytes
from auditor.workers.process_pool import Crew
from model.backbone import Backbone

Watch = Callable[[int, int], None]
LARGE = 64 * 2**20  # bytes of vectors: below, a crew would hardly have begun when all is done
T = TypeVar("T")
R = TypeVar("R")


class Engine(Protocol):
    """Places the work on shards; the work itself is the same everywhere.

    Whether a shard is done already is looked up by the engine too: for many shards that alone is work to be spread.
    """

    def sweep(self, shards: Sequence[Shard], watch: Watch) -> Iterator[ShardReport]:
        """Sweep the shards that are not swept yet; reports every one, in any order."""

    def each(self, work: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
        """What `work` makes of each item, in the order of the items."""

    def score(self, shards: Sequence[str], context: Context) -> Iterator[tuple[str, int, str]]:
        """Score the shards that are not scored yet; yields every one's name, its new rows, and why it could not be."""


@dataclass(frozen=True)
class LocalEngine:
    """Everything on this machine."""

    folder: Folder
    backbone: Backbone | StoredModel | None  # None where only scoring is wanted
    config: SweepConfig
    crew: Crew = field(default_factory=Crew, repr=False, compare=False)

    def sweep(self, shards: Sequence[Shard], watch: Watch) -> Iterator[ShardReport]:
        if self.backbone is None:
            raise ValueError("this engine has no encoder")
        sweeper = make_sweeper(self.backbone, self.folder, self.config)
        todo: list[Shard] = []
        for shard in shards:
            done = earlier(self.folder, shard, sweeper.settings)
            if done is None:
                todo.append(shard)
            else:
                yield done
        if isinstance(self.backbone, StoredModel) and self._is_worth_it(len(todo)) and stored_bytes(todo) >= LARGE:
            for report in self.crew.run(partial(sweep_stored, self.backbone, self.folder), todo):
                watch(report.rows, errors_in(report.status))
                yield report
            return
        with sweeper:
            yield from sweeper.sweep(todo, watch)

    def each(self, work: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
        if self._is_worth_it(len(items)) and self.folder.bytes_in("embeddings") >= LARGE:
            return self.crew.run(work, items)
        return map(work, items)

    def score(self, shards: Sequence[str], context: Context) -> Iterator[tuple[str, int, str]]:
        return self.each(partial(score_once, self.folder, context), shards)

    def _is_worth_it(self, items: int) -> bool:
        """Whether every process of a crew would have something to do, and would not be alone."""
        return self.crew.size > 1 and items >= 2 * self.crew.size


def sweep_stored(model: StoredModel, folder: Folder, shard: Shard) -> ShardReport:
    return next(VectorSweeper(model, folder).sweep([shard]))


def score_once(folder: Folder, context: Context, shard: str) -> tuple[str, int, str]:
    """Score a shard where that is not done yet; its name, its new rows, and why it could not be (never, here)."""
    return shard, 0 if is_scored(folder, shard, context) else score_shard(folder, shard, context), ""


def make_sweeper(backbone: Backbone | StoredModel, folder: Folder, config: SweepConfig) -> Sweeper | VectorSweeper:
    """What sweeps a shard, in this process or in a worker."""
    if isinstance(backbone, StoredModel):
        return VectorSweeper(backbone, folder)
    return Sweeper(backbone, folder, config)
