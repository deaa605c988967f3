"""What the sweep left behind: how many pairs each shard has, and random samples of them for corpus-wide numbers.

The sample depends on the seed and on the numbers of pairs alone, so every run of the same corpus draws the same pairs.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVar

import numpy as np
import pyarrow as pa

from auditor.audit_folder.embeddings import MEDIUM, Embeddings, begins_medium, identities, read_embeddings, read_facts
from auditor.audit_folder.folder import Folder
from auditor.errors import AuditorError
from auditor.score.statistics.rivals import Reference
from auditor.score.statistics.siblings import Siblings, sibling_rows
from auditor.score.statistics.siblings import concatenate as concatenate_siblings
from auditor.vectors import Floats, Ints, MediaVectors, taken
from auditor.vectors import concatenate as concatenate_media

KINDS = ("image", "video")
T = TypeVar("T")
R = TypeVar("R")


class NothingEncodedError(AuditorError):
    """Not one pair of the corpus could be encoded."""


@dataclass(frozen=True, slots=True)
class ShardCounts:
    """Encoded pairs and media of a shard, by kind."""

    shard: str
    pairs: dict[str, int]
    media: dict[str, int]


@dataclass(frozen=True, slots=True)
class Pairs:
    """Encoded pairs of one kind; their media have frames only where they are videos."""

    facts: pa.Table  # (P) rows
    rows: Ints  # (P,) where they stand in their shard
    media: MediaVectors  # P of them
    text: Floats  # (P, D)
    group: Ints  # (P,) the same for media with the same bytes
    siblings: Siblings | None = None  # the other captions of their media in the shard
    times: tuple[tuple[float, ...], ...] = field(default=(), repr=False)  # (P) seconds of the frames

    def __len__(self) -> int:
        return len(self.group)

    @property
    def visual(self) -> Floats:  # (P, D)
        return self.media.visual

    @property
    def captions(self) -> list[str]:
        return [caption or "" for caption in self.facts.column("caption").to_pylist()]

    def reference(self, scale: float) -> Reference:
        """The same as arrays to measure, or to measure with."""
        return Reference(self.media, self.text, self.group, scale, self.captions, self.siblings)


class Each(Protocol):
    """How work on many shards is done: in turn, or spread over a cluster. Results come in the order of the items."""

    def __call__(self, work: Callable[[T], R], items: Sequence[T], /) -> Iterator[R]: ...


def in_turn(work: Callable[[T], R], items: Sequence[T], /) -> Iterator[R]:
    return map(work, items)


def count_pairs(folder: Folder, shards: Sequence[str], each: Each = in_turn) -> list[ShardCounts]:
    return list(each(partial(_count, folder), shards))


def _count(folder: Folder, shard: str) -> ShardCounts:
    table = read_facts(folder, shard, ("kind", *MEDIUM))
    kinds = np.array(table["kind"].to_pylist(), object)
    ok = np.array(table["status"].to_pylist(), object) == "ok"
    return ShardCounts(shard, dict(Counter(kinds[ok])), dict(Counter(kinds[begins_medium(table)])))


def total(counts: Sequence[ShardCounts], kind: str) -> tuple[int, int]:
    """Pairs and media of a kind in the corpus."""
    return sum(c.pairs.get(kind, 0) for c in counts), sum(c.media.get(kind, 0) for c in counts)


def groups(digests: Sequence[str]) -> Ints:
    """Media with the same identity share a number."""
    return np.array([int(digest[:16], 16) for digest in digests], dtype=np.uint64).view(np.int64)


def pairs_of_kind(embeddings: Embeddings, kind: str, chosen: Ints | None = None, *, frames: bool = True) -> Pairs:
    """The encoded pairs of one kind of a shard, in order; or those `chosen` among them, by position."""
    facts = embeddings.facts.take(pa.array(embeddings.rows))
    places = np.flatnonzero(np.array(facts.column("kind").to_pylist()) == kind)
    video = kind == "video"
    media = embeddings.media if video and frames else embeddings.media.without_frames()
    index, text = embeddings.media_index[places], taken(embeddings.text, places)
    facts = facts.take(pa.array(places, pa.int64()))
    group = groups(identities(facts))
    siblings = siblings_of(group, text, media, index, chosen)
    kept = np.arange(len(places)) if chosen is None else chosen
    return Pairs(
        facts=facts if chosen is None else facts.take(pa.array(chosen, pa.int64())),
        rows=embeddings.rows[places[kept]],
        media=media if is_all(index[kept], len(media)) else media.take(index[kept]),
        text=taken(text, kept),
        group=group[kept],
        siblings=siblings,
        times=tuple(embeddings.times[i] for i in index[kept]) if video else (),
    )


def is_all(rows: Ints, count: int) -> bool:
    """Whether rows are all of so many, in their order."""
    return len(rows) == count and bool((rows == np.arange(count)).all())


def siblings_of(group: Ints, text: Floats, media: MediaVectors, index: Ints, chosen: Ints | None) -> Siblings | None:
    """The other captions of the media of all pairs, or of those chosen."""
    if len(np.unique(group)) == len(group):
        return None
    found = Siblings(*sibling_rows(group), text, media.take(index).own_similarity(text))
    return found if chosen is None else found.take(chosen, len(group))


@dataclass(frozen=True, slots=True)
class Wanted:
    """A random sample of at most `count` pairs of a kind."""

    kind: str
    count: int
    frames: bool = True  # of videos


def draw_pairs(
    folder: Folder, counts: Sequence[ShardCounts], wanted: Sequence[Wanted], seed: int, each: Each = in_turn
) -> list[Pairs | None]:
    """The samples, each in corpus order, from one reading of the shards; None where the corpus has no such pair."""
    rows = [_choose(counts, one, seed) for one in wanted]  # of every sample the rows of every shard
    asked = [(shard.shard, some) for shard, *some in zip(counts, *rows, strict=True) if any(map(len, some))]
    parts = list(each(partial(_drawn, folder, wanted), asked))
    samples = ([some for part in parts if (some := part[place]) is not None] for place in range(len(wanted)))
    return [concatenate(found) if found else None for found in samples]


def _choose(counts: Sequence[ShardCounts], wanted: Wanted, seed: int) -> list[Ints]:
    available = np.array([c.pairs.get(wanted.kind, 0) for c in counts])
    everything = int(available.sum())
    generator = np.random.default_rng([seed, everything])
    chosen = np.sort(generator.choice(everything, min(wanted.count, everything), replace=False))
    ends = np.cumsum(available)
    places = zip(chosen.searchsorted(ends - available), chosen.searchsorted(ends), ends - available, strict=True)
    return [chosen[first:last] - start for first, last, start in places]


def _drawn(folder: Folder, wanted: Sequence[Wanted], asked: tuple[str, list[Ints]]) -> list[Pairs | None]:
    shard, rows = asked
    embeddings = read_embeddings(folder, shard)
    return [
        pairs_of_kind(embeddings, one.kind, chosen, frames=one.frames) if len(chosen) else None
        for one, chosen in zip(wanted, rows, strict=True)
    ]


def to_fit(at_most: int) -> list[Wanted]:
    """What prototypes are fitted on: at most so many random pairs of each kind."""
    return [Wanted(kind, at_most, frames=False) for kind in KINDS]


def vectors_to_fit(drawn: Sequence[Pairs | None]) -> tuple[Floats, Floats]:
    """Of media and captions."""
    pairs = [one for one in drawn if one is not None]
    if not pairs:
        raise NothingEncodedError("no pair of this corpus could be encoded, so there is nothing to fit or score")
    return np.concatenate([one.visual for one in pairs]), np.concatenate([one.text for one in pairs])


def concatenate(parts: Sequence[Pairs]) -> Pairs:
    """Pairs of several shards as one; videos with fewer frames are padded."""
    return Pairs(
        pa.concat_tables([part.facts for part in parts]),
        np.concatenate([part.rows for part in parts]),
        concatenate_media([part.media for part in parts]),
        np.concatenate([part.text for part in parts]),
        np.concatenate([part.group for part in parts]),
        concatenate_siblings([part.siblings for part in parts], [len(part) for part in parts]),
        tuple(times for part in parts for times in part.times),
    )
