"""Repeated captions: equal, equal except for case, punctuation and digits, or nearly equal.

DuckDB counts groups by `caption_hash`, which is equal for equal normalized captions; among the most frequent groups,
near ones are found by MinHash of their word pairs. A caption whose media differ as much as random media of the corpus
is boilerplate; if its media are similar, it is only a plain description.
"""

import zlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from auditor.audit_folder.fault_records import Fault
from auditor.keep.caption_choice import count_sources
from auditor.query.database import AuditDatabase
from auditor.sweep.caption_facts import hash_caption, normalize_captions
from auditor.vectors import Floats, Ints

SMALLEST = 5  # rows: a caption that occurs less often is not a pattern
MOST_GROUPS = 1000
MOST_HASHES = 900  # in a condition, which becomes part of URLs
MEMBERS = 32  # members of a group whose media are compared
HASH_COUNT = 64
NEAR_SPELLING = 0.6  # smallest share of equal MinHashes (about the Jaccard index)
AT_ONCE = 1024  # captions compared with all others at once
MAIN_SOURCE = 0.995  # of the captions of a group: they are said to be of that source
SIMILAR_TEXT = 0.97  # cosine of two captions with nearly the same meaning
Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class CaptionGroup:
    """Rows with (nearly) the same caption.

    `spread` is how much their media differ: 1 as much as random media of the corpus, 0 if they are equal.
    """

    captions: tuple[str, ...]  # spellings, the most frequent first; not all if there are many
    rows: int
    exact: int  # rows with the most frequent spelling
    members: tuple[str, ...]  # uids of some rows
    likeness: str  # exact, normalised, near
    spread: float | None = None
    hashes: frozenset[int] = frozenset()  # caption_hash of all rows

    @property
    def is_boilerplate(self) -> bool:
        return self.spread is not None and self.spread > 0.7


def find_repeated_captions(database: AuditDatabase) -> list[CaptionGroup]:
    """The most frequent captions, grouped regardless of case, punctuation and digits."""
    table = database.table("caption_hash uid caption")
    frequent = database.rows(
        f"SELECT caption_hash AS hash, count(*) AS rows FROM {database.table('caption_hash')} "
        f"WHERE caption_hash IS NOT NULL GROUP BY hash HAVING count(*) >= {SMALLEST} "
        f"ORDER BY rows DESC, hash LIMIT {MOST_GROUPS}"
    )
    if not frequent:
        return []
    hashes = ", ".join(str(row["hash"]) for row in frequent)
    spellings = database.rows(
        f"WITH spelled AS (SELECT caption_hash AS hash, caption, count(*) AS rows FROM {table} "
        f"WHERE caption_hash IN ({hashes}) GROUP BY hash, caption), "
        f"grouped AS (SELECT hash, count(*) AS spellings, min(row(-rows, caption), {MEMBERS}) AS first "
        "FROM spelled GROUP BY hash), "
        "chosen AS (SELECT hash, spellings, unnest(first) AS one FROM grouped), "
        "named AS (SELECT hash, spellings, one[2] AS caption, -one[1] AS rows FROM chosen) "
        f"SELECT named.*, min(uid, {MEMBERS}) AS members FROM named "
        f"JOIN (SELECT uid, caption, caption_hash FROM {table}) AS given "
        "ON given.caption_hash = named.hash AND given.caption = named.caption "
        "GROUP BY ALL ORDER BY hash, rows DESC, caption"
    )
    by_hash = {key: list(rows) for key, rows in groupby(spellings, lambda row: row["hash"])}
    return [_build_caption_group(by_hash[row["hash"]], row["rows"]) for row in frequent]


def _build_caption_group(spellings: Sequence[Mapping[str, Any]], rows: int) -> CaptionGroup:
    first = spellings[0]
    members = [uid for spelling in spellings for uid in spelling["members"]]
    likeness = "exact" if first["spellings"] == 1 else "normalised"
    captions = tuple(spelling["caption"] for spelling in spellings)
    return CaptionGroup(
        captions, rows, first["rows"], tuple(members[:MEMBERS]), likeness, hashes=frozenset({first["hash"]})
    )


def compute_minhashes(captions: Sequence[str]) -> Hashes:
    """MinHashes (N, HASH_COUNT) of the captions' sets of adjacent word pairs."""
    return minhash_pairs(*hash_word_pairs(normalize_captions(captions)))


def hash_word_pairs(captions: Sequence[str]) -> tuple[Hashes, Ints]:
    """A hash for each pair of adjacent words of all (normalized) captions, and the index of each caption's first hash.

    A caption of one word, or none, has one hash.
    """
    text = "\n".join([*captions, ""]).encode()
    letters = np.frombuffer(text, np.uint8)
    gaps = np.flatnonzero((letters == ord(" ")) | (letters == ord("\n")))  # where words end
    starts = np.concatenate([[0], gaps[:-1] + 1])
    is_last = letters[gaps] == ord("\n")
    is_first = np.concatenate([[True], is_last[:-1]])[: len(gaps)]
    begins = ~is_last | is_first  # words that begin a pair or stand alone
    ends = np.where(is_last, gaps, np.concatenate([gaps[1:], [0]])[: len(gaps)])[begins]
    spans = map(slice, starts[begins].tolist(), ends.tolist())
    numbers = np.fromiter(map(zlib.crc32, map(text.__getitem__, spans)), np.uint64, len(ends))
    return numbers, np.flatnonzero(is_first[begins])


def minhash_pairs(pairs: Hashes, first: Ints) -> Hashes:
    """The minimum of each hash function over the word pairs of each caption, (N, HASH_COUNT)."""
    generator = np.random.default_rng(0)
    factor = generator.integers(1, 2**61, HASH_COUNT, np.uint64) | np.uint64(1)
    shift = generator.integers(0, 2**61, HASH_COUNT, np.uint64)
    out = np.empty((HASH_COUNT, len(first)), np.uint64)
    for i in range(HASH_COUNT if len(first) else 0):
        np.minimum.reduceat(pairs * factor[i] + shift[i], first, out=out[i])
    return out.T


def find_near_spellings(captions: Sequence[str]) -> list[tuple[int, int]]:
    """Pairs of captions that share most of their MinHash."""
    signature = compute_minhashes(captions)
    pairs = np.argwhere(np.triu(estimate_jaccard(signature, signature) >= NEAR_SPELLING, k=1))
    return [(i, j) for i, j in pairs.tolist()]


def estimate_jaccard(signature: Hashes, other_signature: Hashes) -> Floats:
    """(N, M): the share of equal hashes, an estimate of the Jaccard index.

    Comparing the lower 32 bits is enough: hashes are odd multiples of 32-bit numbers plus a constant.
    """
    hashes, other_hashes = (np.ascontiguousarray(x.T.astype(np.uint32)) for x in (signature, other_signature))
    equal_hashes = np.zeros((len(signature), len(other_signature)), np.uint8)
    for start in range(0, len(signature), AT_ONCE):
        block = equal_hashes[start : start + AT_ONCE]
        for row, other_row in zip(hashes[:, start : start + AT_ONCE], other_hashes, strict=True):
            block += row[:, None] == other_row
    return equal_hashes.astype(np.float32) / np.float32(HASH_COUNT)


def merge_groups(groups: Sequence[CaptionGroup], pairs: Sequence[tuple[int, int]]) -> list[CaptionGroup]:
    """Merge groups that are near each other; returns the largest first."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    if not pairs:
        return sorted(groups, key=lambda group: -group.rows)
    graph = coo_array((np.ones(len(pairs)), np.transpose(pairs)), shape=(len(groups), len(groups)))
    parts: dict[int, list[CaptionGroup]] = defaultdict(list)
    for label, group in zip(connected_components(graph, directed=False)[1], groups, strict=True):
        parts[label].append(group)
    return sorted(map(_combine_groups, parts.values()), key=lambda group: -group.rows)


def _combine_groups(part: Sequence[CaptionGroup]) -> CaptionGroup:
    if len(part) == 1:
        return part[0]
    captions = tuple(caption for group in part for caption in group.captions)
    members = tuple(uid for group in part for uid in group.members)[:MEMBERS]
    hashes = frozenset[int]().union(*(group.hashes for group in part))
    rows, exact = sum(group.rows for group in part), max(group.exact for group in part)
    return CaptionGroup(captions, rows, exact, members, "near", hashes=hashes)


def is_covered(group: CaptionGroup, named_groups: Sequence[CaptionGroup]) -> bool:
    """Whether most rows of a group belong to a group that is already named."""
    hashes = {hash_caption(caption) for caption in group.captions}
    return any(hashes & other.hashes and group.rows <= 2 * other.rows for other in named_groups)


def add_spread(group: CaptionGroup, vectors: Mapping[str, Floats], corpus_distance: float) -> CaptionGroup:
    """Add the spread of the group's media; `corpus_distance` is the mean distance of two media of the corpus."""
    media = np.array([vectors[uid] for uid in group.members if uid in vectors])
    if len(media) < 2 or corpus_distance <= 0:
        return group
    return replace(group, spread=float(np.clip(compute_mean_distance(media) / corpus_distance, 0, 2)))


def compute_mean_distance(visual: Floats) -> float:
    """Mean of 1 - cosine over all pairs of vectors."""
    count = len(visual)
    total = float(np.square(visual.sum(axis=0, dtype=np.float64)).sum()) - count
    return 1 - total / (count * (count - 1))


def count_group_sources(database: AuditDatabase, groups: Sequence[CaptionGroup]) -> list[dict[str, int]]:
    """The captions of each group by source; none if the corpus has one source. Large groups are counted in part."""
    listed = [sorted(group.hashes)[:MOST_HASHES] for group in groups]
    hashes = ", ".join(map(str, sorted({number for numbers in listed for number in numbers})))
    if not hashes or not count_sources(database):
        return [{} for _ in groups]
    rows = database.rows(
        f"SELECT caption_hash AS hash, caption_source AS source, count(*) AS n FROM "
        f"{database.table('caption_hash caption_source')} "
        f"WHERE caption_hash IN ({hashes}) AND caption_source IS NOT NULL GROUP BY ALL"
    )
    by_hash: dict[int, Counter[str]] = defaultdict(Counter)
    for row in rows:
        by_hash[row["hash"]][row["source"]] = row["n"]
    totals = (sum((by_hash[number] for number in numbers), Counter[str]()) for numbers in listed)
    return [dict(total.most_common()) for total in totals]


def describe_group_rows(group: CaptionGroup, rows: int, sources: Mapping[str, int], totals: Mapping[str, int]) -> str:
    """The number of captions, and their share of the corpus or, if nearly all have one source, of that source."""
    source = find_main_source(sources)
    if source is not None:
        return f"{group.rows:,} captions of {source} ({group.rows / max(totals[source], 1):.1%} of them)"
    shares = ", ".join(f"{name} {count / sum(sources.values()):.0%}" for name, count in sources.items())
    by_source = f"; by source: {shares}" if shares else ""
    return f"{group.rows:,} rows ({group.rows / max(rows, 1):.1%}{by_source})"


def find_main_source(sources: Mapping[str, int]) -> str | None:
    """The source of nearly all captions that are counted; None if there are several, or none."""
    return next((name for name, count in sources.items() if count >= MAIN_SOURCE * sum(sources.values())), None)


def describe_caption_group(
    group: CaptionGroup, rows: int, sources: Mapping[str, int], totals: Mapping[str, int]
) -> Fault:
    """The fault that reports a group; `rows` is the size of the corpus, `totals` that of each source of captions."""
    phrases = {"exact": "the same caption", "normalised": "the same caption except for case, punctuation or digits"}
    phrase = phrases.get(group.likeness, "nearly the same caption")
    if group.spread is not None:
        phrase += " on different media: boilerplate" if group.is_boilerplate else " on similar media"
    caption = group.captions[0]
    text = caption if len(caption) <= 60 else caption[:57] + "..."
    sentence = f"{describe_group_rows(group, rows, sources, totals)} have {phrase}: {text!r}"
    pattern = "boilerplate" if group.is_boilerplate else "repeated"
    where = f"caption_hash IN ({', '.join(map(str, sorted(group.hashes)[:MOST_HASHES]))})"
    share, source = group.rows / max(rows, 1), find_main_source(sources)
    facts = None, None, None, None, group.rows, None, sentence, caption, share
    return Fault("caption", pattern, *facts, likeness=group.likeness, spread=group.spread, where=where, source=source)
