"""Encoded pairs of an audit: how many each shard has, and random samples of them for corpus-wide statistics.

A sample depends only on the seed and the numbers of pairs, so every run on the same corpus draws the same pairs.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
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
from auditor.audit_folder.extra_columns import CARRIED, name_column_file
from auditor.audit_folder.folder import Folder
from auditor.errors import AuditorError
from auditor.score.statistics.rivals import PairEmbeddings
from auditor.score.statistics.siblings import collect_siblings, concatenate_siblings
from auditor.vectors import Ints, PartVectors, concatenate_media, concatenate_parts, take_rows
from auditor.workers.process_pool import SERIAL, Engine

KINDS = ("image", "video")


class NothingEncodedError(AuditorError):
    """No pair of the corpus could be encoded."""


@dataclass(frozen=True, slots=True)
class ShardCounts:
    """Numbers of encoded pairs and media of a shard, by kind."""

    shard: str
    pairs: Counter[str]
    media: Counter[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedPairs(PairEmbeddings):
    """Encoded pairs of one kind with their facts; only videos have frames. Siblings are those in the same shard."""

    facts: pa.Table  # (P) rows
    rows: Ints  # (P,) row numbers in their shard
    times: tuple[tuple[float, ...], ...] = field(default=(), repr=False)  # (P) times of the frames in seconds
    parts: PartVectors | None = field(default=None, repr=False)  # (P) None if no caption has several

    def take(self, rows: Ints) -> "EncodedPairs":
        times = tuple(self.times[row] for row in rows) if self.times else ()
        facts = self.facts.take(pa.array(rows, pa.int64()))
        parts = None if self.parts is None else self.parts.take(rows)
        return replace(PairEmbeddings.take(self, rows), facts=facts, rows=self.rows[rows], times=times, parts=parts)


def count_encoded(folder: Folder, shards: Sequence[str], engine: Engine = SERIAL) -> list[ShardCounts]:
    return list(engine.each(partial(_count_shard, folder), shards))


def _count_shard(folder: Folder, shard: str) -> ShardCounts:
    table = read_facts(folder, shard, ("kind", *MEDIUM_COLUMNS))
    kinds, status = (np.array(table[name].to_pylist(), object) for name in ("kind", "status"))
    return ShardCounts(shard, Counter(kinds[status == "ok"]), Counter(kinds[find_medium_starts(table)]))


def number_digests(digests: Sequence[str]) -> Ints:
    """64-bit numbers of hex digests: media with the same identity have the same number."""
    return np.array([int(digest[:16], 16) for digest in digests], dtype=np.uint64).view(np.int64)


def select_pairs(embeddings: Embeddings, kind: str, *, frames: bool = True) -> EncodedPairs:
    """The encoded pairs of one kind of a shard, in order."""
    kinds = np.array(embeddings.facts["kind"].to_pylist(), object)[embeddings.rows]
    positions = np.flatnonzero(kinds == kind)
    rows, index = embeddings.rows[positions], embeddings.media_index[positions]
    facts, text = embeddings.facts.take(pa.array(rows)), take_rows(embeddings.text, positions)
    video = kind == "video"
    media = embeddings.media if video and frames else embeddings.media.without_frames()
    if not np.array_equal(index, np.arange(len(media))):
        media = media.take(index)
    group = number_digests(compute_media_identities(facts))
    return EncodedPairs(
        media,
        text,
        group,
        [caption or "" for caption in facts["caption"].to_pylist()],
        collect_siblings(group, media, text),
        facts=facts,
        rows=rows,
        times=tuple(embeddings.times[i] for i in index) if video else (),
        parts=None if embeddings.parts is None else embeddings.parts.take(positions),
    )


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """A request for a random sample of at most `count` pairs of a kind."""

    kind: str
    count: int
    frames: bool = True  # whether to include the frames of videos


def draw_pairs(
    folder: Folder,
    counts: Sequence[ShardCounts],
    requests: Sequence[SampleRequest],
    seed: int,
    engine: Engine = SERIAL,
    carried: Sequence[str] = (),
) -> list[EncodedPairs | None]:
    """The samples, each in corpus order, from one pass over the shards; None if the corpus has no such pair.

    Their facts include these `carried` columns of stored embeddings.
    """
    rows = [_choose_rows(counts, request, seed) for request in requests]  # of every sample, the rows of every shard
    tasks = [(shard.shard, chosen) for shard, *chosen in zip(counts, *rows, strict=True) if any(map(len, chosen))]
    parts = list(engine.each(partial(_draw_shard, folder, requests, carried), tasks))
    samples = ([pairs for part in parts if (pairs := part[number]) is not None] for number in range(len(requests)))
    return [concatenate_pairs(sample) if sample else None for sample in samples]


def _choose_rows(counts: Sequence[ShardCounts], request: SampleRequest, seed: int) -> list[Ints]:
    available = np.array([count.pairs[request.kind] for count in counts])
    total, ends = int(available.sum()), np.cumsum(available)
    generator = np.random.default_rng([seed, total])
    chosen = np.sort(generator.choice(total, min(request.count, total), replace=False))
    parts = np.split(chosen, chosen.searchsorted(ends))[:-1]
    return [part - start for part, start in zip(parts, ends - available, strict=True)]


def _draw_shard(
    folder: Folder, requests: Sequence[SampleRequest], carried: Sequence[str], task: tuple[str, list[Ints]]
) -> list[EncodedPairs | None]:
    shard, rows = task
    embeddings = read_embeddings(folder, shard)
    pairs_of: dict[tuple[str, bool], EncodedPairs] = {}
    samples: list[EncodedPairs | None] = []
    for request, chosen in zip(requests, rows, strict=True):
        selection = request.kind, request.frames
        if len(chosen) and selection not in pairs_of:
            pairs_of[selection] = select_pairs(embeddings, request.kind, frames=request.frames)
        samples.append(pairs_of[selection].take(chosen) if len(chosen) else None)
    return [pairs and append_carried_columns(folder, shard, pairs, carried) for pairs in samples]


def append_carried_columns(folder: Folder, shard: str, pairs: EncodedPairs, names: Sequence[str]) -> EncodedPairs:
    """The pairs with columns of stored embeddings, which an audit keeps beside its facts, as texts."""
    file = name_column_file(CARRIED, shard)
    if not names or not folder.exists(file):
        return pairs
    table, facts = folder.read_table(file, names).take(pa.array(pairs.rows)), pairs.facts
    for name in names:
        facts = facts.append_column(name, table[name].cast(pa.string()))
    return replace(pairs, facts=facts)


def concatenate_pairs(parts: Sequence[EncodedPairs]) -> EncodedPairs:
    """Pairs of several shards as one; videos with fewer frames are padded."""
    return EncodedPairs(
        concatenate_media([part.media for part in parts]),
        np.concatenate([part.text for part in parts]),
        np.concatenate([part.group for part in parts]),
        [caption for part in parts for caption in part.captions],
        concatenate_siblings([part.siblings for part in parts], [len(part) for part in parts]),
        facts=pa.concat_tables([part.facts for part in parts]),
        rows=np.concatenate([part.rows for part in parts]),
        times=tuple(times for part in parts for times in part.times),
        parts=concatenate_parts([part.parts for part in parts], [len(part) for part in parts]),
    )
