"""What the sweep left behind: how many pairs each shard has, and random samples of them for corpus-wide numbers.

The sample depends on the seed and on the numbers of pairs alone, so every run of the same corpus draws the same pairs.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from auditor.store.embeddings import Array, Embeddings, file_name, read_embeddings
from auditor.store.folder import Folder

Ints = npt.NDArray[np.int64]
KINDS = ("image", "video")
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class ShardCensus:
    """Encoded pairs and media of a shard, by kind."""

    shard: str
    pairs: dict[str, int]
    media: dict[str, int]


@dataclass(frozen=True, slots=True)
class Pairs:
    """Encoded pairs of one kind as arrays; `frames` only for video."""

    facts: pa.Table  # (P) rows
    rows: Ints  # (P,) where they stand in their shard
    visual: Array  # (P, D)
    frames: Array | None  # (P, J, D)
    mask: npt.NDArray[np.bool_] | None
    text: Array  # (P, D)
    group: Ints  # (P,) the same for media with the same bytes
    times: tuple[tuple[float, ...], ...] = field(default=(), repr=False)  # (P) seconds of the frames

    def __len__(self) -> int:
        return len(self.group)


class Each(Protocol):
    """How work on many shards is done: in turn, or spread over a cluster. Results come in the order of the items."""

    def __call__(self, work: Callable[[T], R], items: Sequence[T], /) -> Iterator[R]: ...


def in_turn(work: Callable[[T], R], items: Sequence[T], /) -> Iterator[R]:
    return map(work, items)


def take_census(folder: Folder, shards: Sequence[str], each: Each = in_turn) -> list[ShardCensus]:
    return list(each(partial(_count, folder), shards))


def _count(folder: Folder, shard: str) -> ShardCensus:
    table = folder.read_table(file_name(shard), ["kind", "status", "caption_index"])
    ok = [
        (kind, index)
        for kind, status, index in zip(*(column.to_pylist() for column in table.columns), strict=True)
        if status == "ok"
    ]
    return ShardCensus(
        shard, dict(Counter(kind for kind, _ in ok)), dict(Counter(kind for kind, index in ok if index == 0))
    )


def total(census: Sequence[ShardCensus], kind: str) -> tuple[int, int]:
    """Pairs and media of a kind in the corpus."""
    return sum(c.pairs.get(kind, 0) for c in census), sum(c.media.get(kind, 0) for c in census)


def groups(digests: Sequence[str]) -> Ints:
    """Media with the same bytes share a number."""
    return np.array([int(digest[:16], 16) for digest in digests], dtype=np.uint64).view(np.int64)


def pairs_of_kind(embeddings: Embeddings, kind: str) -> Pairs:
    """The encoded pairs of one kind of a shard, in order."""
    facts = embeddings.facts.take(pa.array(embeddings.rows))
    chosen = np.flatnonzero(np.array(facts.column("kind").to_pylist()) == kind)
    return _select(embeddings, facts, chosen, kind)


def _select(embeddings: Embeddings, facts: pa.Table, chosen: npt.NDArray[np.intp], kind: str) -> Pairs:
    media = embeddings.media_index[chosen]
    video = kind == "video" and embeddings.frames is not None and embeddings.mask is not None
    facts = facts.take(pa.array(chosen, pa.int64()))
    return Pairs(
        facts=facts,
        rows=embeddings.rows[chosen],
        visual=embeddings.visual[media],
        frames=embeddings.frames[media] if video and embeddings.frames is not None else None,
        mask=embeddings.mask[media] if video and embeddings.mask is not None else None,
        text=embeddings.text[chosen],
        group=groups(facts.column("media_digest").to_pylist()),
        times=tuple(embeddings.times[i] for i in media) if video else (),
    )


def draw(
    folder: Folder,
    census: Sequence[ShardCensus],
    kind: str,
    count: int,
    seed: int,
    *,
    frames: bool = True,
    each: Each = in_turn,
) -> Pairs | None:
    """A random sample of at most `count` pairs of a kind, in corpus order; None where the corpus has none."""
    available = np.array([c.pairs.get(kind, 0) for c in census])
    everything = int(available.sum())
    if not everything:
        return None
    generator = np.random.default_rng([seed, everything])
    chosen = np.sort(generator.choice(everything, min(count, everything), replace=False))
    ends = np.cumsum(available)
    starts = ends - available
    inside = [chosen[a:b] for a, b in zip(chosen.searchsorted(starts), chosen.searchsorted(ends), strict=True)]
    wanted = [
        (shard.shard, rows - start) for shard, rows, start in zip(census, inside, starts, strict=True) if len(rows)
    ]
    return concatenate(list(each(partial(_drawn, folder, kind, frames), wanted)))


def _drawn(folder: Folder, kind: str, frames: bool, wanted: tuple[str, Ints]) -> Pairs:
    shard, rows = wanted
    return _rows(pairs_of_kind(read_embeddings(folder, shard), kind), rows, frames)


def _rows(pairs: Pairs, chosen: Ints, frames: bool) -> Pairs:
    return Pairs(
        pairs.facts.take(pa.array(chosen)),
        pairs.rows[chosen],
        pairs.visual[chosen],
        None if pairs.frames is None or not frames else pairs.frames[chosen],
        None if pairs.mask is None or not frames else pairs.mask[chosen],
        pairs.text[chosen],
        pairs.group[chosen],
        tuple(pairs.times[i] for i in chosen) if pairs.times else (),
    )


def concatenate(parts: Sequence[Pairs]) -> Pairs:
    """Pairs of several shards as one; videos with fewer frames are padded."""
    longest = max((part.mask.shape[1] for part in parts if part.mask is not None), default=0)
    return Pairs(
        pa.concat_tables([part.facts for part in parts]),
        np.concatenate([part.rows for part in parts]),
        np.concatenate([part.visual for part in parts]),
        np.concatenate(list(_padded((part.frames for part in parts), longest))) if longest else None,
        np.concatenate(list(_padded((part.mask for part in parts), longest))) if longest else None,
        np.concatenate([part.text for part in parts]),
        np.concatenate([part.group for part in parts]),
        tuple(times for part in parts for times in part.times),
    )


def _padded(arrays: "Iterator[npt.NDArray[np.generic] | None]", longest: int) -> Iterator[npt.NDArray[np.generic]]:
    for array in arrays:
        assert array is not None  # all parts are of one kind
        width = [(0, 0), (0, longest - array.shape[1])] + [(0, 0)] * (array.ndim - 2)
        yield np.pad(array, width)
