"""Counts the usable samples of a training corpus and assigns them to the training processes.

A sample is usable if the corpus reader finds no problem with it; the others are left out and counted by reason.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any

from auditor.corpus.open_corpus import OpenShard, Shard, open_corpus
from auditor.corpus.sample import Sample
from auditor.corpus.shard import DEFAULT_OPTIONS, CorpusOptions
from auditor.errors import AuditorError
from model.training.training_processes import ALONE, ProcessGroup


class TrainError(AuditorError):
    """A run that cannot start or continue."""


@dataclass(frozen=True, slots=True)
class ShardCount:
    """The usable samples of a shard, and the problems of the others."""

    samples: int
    captions: int
    most_captions: int  # of one sample
    left_out: Counter[str]  # samples by status
    example: str | None = None  # of a sample that is left out
    problem: str | None = None  # of the shard itself, such as a truncated end


@dataclass(frozen=True, slots=True)
class CountedShards:
    """The shards of a corpus, and the sums of their counts."""

    shards: Sequence[Shard]
    samples: int
    captions: int
    most_captions: int
    left_out: Counter[str]  # unusable samples by status, before any decoding
    examples: list[str]
    problems: list[str]

    def pairs(self, captions: str) -> int:
        """Pairs in an epoch."""
        return self.captions if captions == "all" else self.samples


@dataclass(frozen=True, slots=True)
class ShardSlice:
    """The samples of a shard that one process reads: every `parts`-th usable sample, starting at `part`."""

    shard: int
    part: int = 0
    parts: int = 1

    def samples(self, opened: OpenShard) -> list[tuple[int, Sample]]:
        """Each sample with a number that is unique in the corpus and does not change if another sample disappears."""
        usable = ((place, sample) for place, sample in enumerate(opened.samples) if sample.problem is None)
        return [(self.shard << 32 | place, sample) for place, sample in usable][self.part :: self.parts]


def count_shards(spec: str, processes: ProcessGroup = ALONE, options: CorpusOptions = DEFAULT_OPTIONS) -> CountedShards:
    """List the shards of a corpus and count each of them in one of the processes."""
    shards = open_corpus(spec, options).shards
    try:
        local_counts: Any = {i: count_shard(shards[i]) for i in range(processes.rank, len(shards), processes.size)}
    except AuditorError as error:  # every process must receive it, or the others would wait forever
        local_counts = error
    counts: dict[int, ShardCount] = {}
    for part in processes.share(local_counts):
        if isinstance(part, AuditorError):
            raise part
        counts.update(part)
    parts = [counts[i] for i in range(len(shards))]
    examples = [part.example for part in parts if part.example]
    if not any(part.samples for part in parts):
        example = "".join(f"; {example}" for example in examples[:1])
        raise TrainError(f"{spec} holds no pairs: a sample is a medium with captions{example}")
    return CountedShards(
        shards,
        samples=sum(part.samples for part in parts),
        captions=sum(part.captions for part in parts),
        most_captions=max(part.most_captions for part in parts),
        left_out=sum((part.left_out for part in parts), Counter[str]()),
        examples=examples,
        problems=[part.problem for part in parts if part.problem],
    )


def count_shard(shard: Shard) -> ShardCount:
    with shard.open() as opened:
        sizes = [len(sample.captions) for sample in opened.samples if sample.problem is None]
        wrong = [(sample, sample.problem) for sample in opened.samples if sample.problem]
        example = f"{shard.name}: {wrong[0][0].key}: {wrong[0][1].message}" if wrong else None
        problem = f"{shard.name}: {opened.problems[0]}" if opened.problems else None
    left_out = Counter[str](problem.status for _, problem in wrong)
    return ShardCount(len(sizes), sum(sizes), max(sizes, default=0), left_out, example, problem)


def assign_slices(shards: int, rank: int, size: int) -> list[ShardSlice]:
    """The share of one process: whole shards if they divide evenly or are many, else every n-th sample of a shard."""
    parts = 1 if shards >= 100 * size else size // gcd(shards, size)
    return [ShardSlice(shard, part, parts) for shard in range(shards) for part in range(parts)][rank::size]
