"""What places the work on shards: the protocol of every engine, and the one that does everything in this process."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from auditor.corpus.reader import Shard
from auditor.score.corpus_statistics import Context
from auditor.score.score import is_scored, score_shard
from auditor.store.folder import Folder
from auditor.sweep.embeddings_file import ShardReport
from auditor.sweep.sweep import SweepConfig, Sweeper, earlier
from auditor.sweep.vector_sweep import StoredModel, VectorSweeper
from model.backbone import Backbone

Watch = Callable[[int, int], None]
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
    """Everything in this process and its decoder processes."""

    folder: Folder
    backbone: Backbone | StoredModel | None  # None where only scoring is wanted
    config: SweepConfig

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
        with sweeper:
            yield from sweeper.sweep(todo, watch)

    def each(self, work: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
        return map(work, items)

    def score(self, shards: Sequence[str], context: Context) -> Iterator[tuple[str, int, str]]:
        for shard in shards:
            yield shard, 0 if is_scored(self.folder, shard, context) else score_shard(self.folder, shard, context), ""


def make_sweeper(backbone: Backbone | StoredModel, folder: Folder, config: SweepConfig) -> Sweeper | VectorSweeper:
    """What sweeps a shard, in this process or in a worker."""
    if isinstance(backbone, StoredModel):
        return VectorSweeper(backbone, folder)
    return Sweeper(backbone, folder, config)
