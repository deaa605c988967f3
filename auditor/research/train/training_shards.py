"""The corpus of a run: any that the audit reads, its usable samples counted, and which of them each process reads.

A sample is usable where the audit's reader finds nothing wrong with it; the others are left out and counted by reason.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any

from auditor.corpus.open_corpus import OpenShard, Shard, open_corpus
from auditor.corpus.sample import Sample
from auditor.errors import AuditorError
from model.training.training_processes import ProcessGroup


class LoaderError(AuditorError):
    """Data that cannot be trained on."""


@dataclass(frozen=True, slots=True)
class ShardCount:
    """What there is to train on in a shard, and what is wrong with the rest."""

    samples: int
    captions: int
    most_captions: int  # of one sample
    left_out: Counter[str]  # samples by status
    example: str | None = None  # of what is left out
    problem: str | None = None  # of the shard itself: a truncated tail, say


@dataclass(frozen=True, slots=True)
class Shards:
    """The shards of a corpus, counted."""

    shards: Sequence[Shard]
    counts: Sequence[ShardCount]

    @property
    def samples(self) -> int:
        return sum(count.samples for count in self.counts)

    @property
    def most_captions(self) -> int:
        return max(count.most_captions for count in self.counts)

    def pairs(self, captions: str) -> int:
        """Pairs in an epoch."""
        return sum(count.captions for count in self.counts) if captions == "all" else self.samples

    @property
    def left_out(self) -> Counter[str]:
        """Samples that reading alone found unusable, by status."""
        return sum((count.left_out for count in self.counts), Counter[str]())

    @property
    def examples(self) -> list[str]:
        return [count.example for count in self.counts if count.example]

    @property
    def problems(self) -> list[str]:
        return [count.problem for count in self.counts if count.problem]


@dataclass(frozen=True, slots=True)
class Slice:
    """Every `parts`-th usable sample of a shard, from `part` on: what one process reads of it."""

    shard: int
    part: int = 0
    parts: int = 1

    def samples(self, opened: OpenShard) -> Iterator[tuple[int, Sample]]:
        """Each with a number that is unique in the corpus, and the same even if another sample disappears."""
        for place, sample in list(usable(opened))[self.part :: self.parts]:
            yield self.shard << 32 | place, sample


def usable(opened: OpenShard) -> Iterator[tuple[int, Sample]]:
    """With their place among all samples of the shard."""
    return ((place, sample) for place, sample in enumerate(opened.samples) if sample.problem is None)


def count_shards(spec: str, processes: ProcessGroup = ProcessGroup()) -> Shards:  # noqa: B008 (frozen)
    """List and count the shards of a corpus, each by one of the processes."""
    shards = open_corpus(spec).shards
    try:
        mine: Any = {i: count_shard(shards[i]) for i in range(processes.rank, len(shards), processes.size)}
    except AuditorError as error:  # every process must learn of it, or the others would wait for ever
        mine = error
    counted: dict[int, ShardCount] = {}
    for part in processes.share(mine):
        if isinstance(part, AuditorError):
            raise part
        counted.update(part)
    found = Shards(shards, [counted[i] for i in range(len(shards))])
    if not found.samples:
        raise LoaderError(
            f"{spec} holds no pairs: a sample is a medium with captions{'; '.join(['', *found.examples[:1]])}"
        )
    return found


def count_shard(shard: Shard) -> ShardCount:
    """Reads what names and captions there are, no media."""
    with shard.open() as opened:
        sizes = [len(sample.captions) for _, sample in usable(opened)]
        wrong = [(sample, sample.problem) for sample in opened.samples if sample.problem]
        example = f"{shard.name}: {wrong[0][0].key}: {wrong[0][1].message}" if wrong else None
        problem = f"{shard.name}: {opened.problems[0]}" if opened.problems else None
    left_out = Counter[str](problem.status for _, problem in wrong)
    return ShardCount(len(sizes), sum(sizes), max(sizes, default=0), left_out, example, problem)


def assign_slices(shards: int, rank: int, size: int) -> list[Slice]:
    """The share of one process: whole shards where they divide evenly or are many, else every n-th sample of each."""
    parts = 1 if shards >= 100 * size else size // gcd(shards, size)
    return [Slice(shard, part, parts) for shard in range(shards) for part in range(parts)][rank::size]
