"""Encoded pairs of an audit: how many each shard has, and random samples of them for corpus-wide statistics.

A sample depends only on the seed and the numbers of pairs, so every run on the same corpus draws the same pairs.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa

from auditor.audit_folder.embeddings import (
    MEDIUM_COLUMNS,
    Embeddings,
    compute_media_identities,
    find_medium_starts,
    read_embeddings,
    read_facts,
)
from auditor.audit_folder.folder import Folder
from auditor.errors import AuditorError
from auditor.score.statistics.rivals import ReferenceSample
from auditor.score.statistics.siblings import Siblings, pair_sibling_rows
from auditor.score.statistics.siblings import concatenate_siblings as concatenate_siblings
from auditor.vectors import Floats, Ints, MediaVectors, take_rows
from auditor.vectors import concatenate_media as concatenate_media
from auditor.workers.process_pool import SERIAL, Engine

KINDS = ("image", "video")


class NothingEncodedError(AuditorError):
    """No pair of the corpus could be encoded."""


@dataclass(frozen=True, slots=True)
class ShardCounts:
    """Numbers of encoded pairs and media of a shard, by kind."""

    shard: str
    pairs: dict[str, int]
    media: dict[str, int]


@dataclass(frozen=True, slots=True)
class EncodedPairs:
    """Encoded pairs of one kind; only videos have frames."""

    facts: pa.Table  # (P) rows
    rows: Ints  # (P,) row numbers in their shard
    media: MediaVectors  # (P)
    text: Floats  # (P, D)
    group: Ints  # (P,) equal for media with the same bytes
    siblings: Siblings | None = None  # the other captions of their media in the shard
    times: tuple[tuple[float, ...], ...] = field(default=(), repr=False)  # (P) times of the frames in seconds

    def __len__(self) -> int:
        return len(self.group)

    @property
    def visual(self) -> Floats:  # (P, D)
        return self.media.visual

    @property
    def captions(self) -> list[str]:
        return [caption or "" for caption in self.facts.column("caption").to_pylist()]

    def reference(self, scale: float) -> ReferenceSample:
        """The pairs as a reference sample, to measure or to compare with."""
        return ReferenceSample(self.media, self.text, self.group, scale, self.captions, self.siblings)


def count_encoded(folder: Folder, shards: Sequence[str], engine: Engine = SERIAL) -> list[ShardCounts]:
    return list(engine.each(partial(_count_shard, folder), shards))


def _count_shard(folder: Folder, shard: str) -> ShardCounts:
    table = read_facts(folder, shard, ("kind", *MEDIUM_COLUMNS))
    kinds = np.array(table["kind"].to_pylist(), object)
    ok = np.array(table["status"].to_pylist(), object) == "ok"
    return ShardCounts(shard, dict(Counter(kinds[ok])), dict(Counter(kinds[find_medium_starts(table)])))


def total_counts(counts: Sequence[ShardCounts], kind: str) -> tuple[int, int]:
    """Pairs and media of a kind in the corpus."""
    return sum(c.pairs.get(kind, 0) for c in counts), sum(c.media.get(kind, 0) for c in counts)


def number_digests(digests: Sequence[str]) -> Ints:
    """64-bit numbers of hex digests: media with the same identity have the same number."""
    return np.array([int(digest[:16], 16) for digest in digests], dtype=np.uint64).view(np.int64)


def select_pairs(embeddings: Embeddings, kind: str, chosen: Ints | None = None, *, frames: bool = True) -> EncodedPairs:
    """The encoded pairs of one kind of a shard, in order; only those at the positions `chosen`, if given."""
    facts = embeddings.facts.take(pa.array(embeddings.rows))
    positions = np.flatnonzero(np.array(facts.column("kind").to_pylist()) == kind)
    video = kind == "video"
    media = embeddings.media if video and frames else embeddings.media.without_frames()
    index, text = embeddings.media_index[positions], take_rows(embeddings.text, positions)
    facts = facts.take(pa.array(positions, pa.int64()))
    group = number_digests(compute_media_identities(facts))
    siblings = select_siblings(group, text, media, index, chosen)
    selected = np.arange(len(positions)) if chosen is None else chosen
    return EncodedPairs(
        facts=facts if chosen is None else facts.take(pa.array(chosen, pa.int64())),
        rows=embeddings.rows[positions[selected]],
        media=media if is_every_row(index[selected], len(media)) else media.take(index[selected]),
        text=take_rows(text, selected),
        group=group[selected],
        siblings=siblings,
        times=tuple(embeddings.times[i] for i in index[selected]) if video else (),
    )


def is_every_row(rows: Ints, count: int) -> bool:
    """Whether rows are 0 to count - 1, in order."""
    return len(rows) == count and bool((rows == np.arange(count)).all())


def select_siblings(
    group: Ints, text: Floats, media: MediaVectors, index: Ints, chosen: Ints | None
) -> Siblings | None:
    """The other captions of the media of all pairs, or of the chosen pairs."""
    if len(np.unique(group)) == len(group):
        return None
    siblings = Siblings(*pair_sibling_rows(group), text, media.take(index).own_similarity(text))
    return siblings if chosen is None else siblings.take(chosen, len(group))


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """A request for a random sample of at most `count` pairs of a kind."""

    kind: str
    count: int
    frames: bool = True  # whether to include the frames of videos


def draw_pairs(
    folder: Folder, counts: Sequence[ShardCounts], requests: Sequence[SampleRequest], seed: int, engine: Engine = SERIAL
) -> list[EncodedPairs | None]:
    """The samples, each in corpus order, from one pass over the shards; None if the corpus has no such pair."""
    rows = [_choose_rows(counts, request, seed) for request in requests]  # of every sample, the rows of every shard
    tasks = [(shard.shard, chosen) for shard, *chosen in zip(counts, *rows, strict=True) if any(map(len, chosen))]
    parts = list(engine.each(partial(_draw_shard, folder, requests), tasks))
    samples = ([pairs for part in parts if (pairs := part[number]) is not None] for number in range(len(requests)))
    return [concatenate_pairs(sample) if sample else None for sample in samples]


def _choose_rows(counts: Sequence[ShardCounts], request: SampleRequest, seed: int) -> list[Ints]:
    """The rows to draw from each shard."""
    available = np.array([c.pairs.get(request.kind, 0) for c in counts])
    total = int(available.sum())
    generator = np.random.default_rng([seed, total])
    chosen = np.sort(generator.choice(total, min(request.count, total), replace=False))
    ends = np.cumsum(available)
    ranges = zip(chosen.searchsorted(ends - available), chosen.searchsorted(ends), ends - available, strict=True)
    return [chosen[first:last] - start for first, last, start in ranges]


def _draw_shard(
    folder: Folder, requests: Sequence[SampleRequest], task: tuple[str, list[Ints]]
) -> list[EncodedPairs | None]:
    shard, rows = task
    embeddings = read_embeddings(folder, shard)
    return [
        select_pairs(embeddings, request.kind, chosen, frames=request.frames) if len(chosen) else None
        for request, chosen in zip(requests, rows, strict=True)
    ]


def concatenate_pairs(parts: Sequence[EncodedPairs]) -> EncodedPairs:
    """Pairs of several shards as one; videos with fewer frames are padded."""
    return EncodedPairs(
        pa.concat_tables([part.facts for part in parts]),
        np.concatenate([part.rows for part in parts]),
        concatenate_media([part.media for part in parts]),
        np.concatenate([part.text for part in parts]),
        np.concatenate([part.group for part in parts]),
        concatenate_siblings([part.siblings for part in parts], [len(part) for part in parts]),
        tuple(times for part in parts for times in part.times),
    )
