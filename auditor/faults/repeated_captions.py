"""Repeated captions: equal, equal except for case, punctuation and digits, or nearly equal.

DuckDB counts groups by `caption_hash`, which is equal for equal normalized captions; among the most frequent groups,
near ones are found by MinHash of their word pairs. A caption whose media differ as much as random media of the corpus
is boilerplate; if its media are similar, it is only a plain description.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from auditor.audit_folder.fault_records import Fault
from auditor.query.database import AuditDatabase
from auditor.sweep.caption_facts import hash_caption, normalize_captions
from auditor.vectors import Floats, Ints

SMALLEST = 5  # rows: a caption that occurs less often is not a pattern
MOST_GROUPS = 1000
MEMBERS = 32  # members of a group whose media are compared
HASH_COUNT, BANDS = 64, 16
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
    hashes: frozenset[int] = frozenset()  # caption_hash of all spellings

    @property
    def is_boilerplate(self) -> bool:
        return self.spread is not None and self.spread > 0.7


def find_repeated_captions(
    database: AuditDatabase, smallest: int = SMALLEST, limit: int = MOST_GROUPS
) -> list[CaptionGroup]:
    """The most frequent captions, grouped regardless of case, punctuation and digits."""
    table = database.table("caption_hash uid caption")
    frequent = database.rows(
        f"SELECT caption_hash AS hash, count(*) AS rows FROM {database.table('caption_hash')} "
        f"WHERE caption_hash IS NOT NULL GROUP BY hash HAVING count(*) >= {int(smallest)} "
        f"ORDER BY rows DESC, hash LIMIT {int(limit)}"
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
    by_hash: dict[int, list[Mapping[str, Any]]] = {}
    for row in spellings:
        by_hash.setdefault(row["hash"], []).append(row)
    return [_build_caption_group(by_hash[row["hash"]], row["rows"]) for row in frequent]


def _build_caption_group(spellings: Sequence[Mapping[str, Any]], rows: int) -> CaptionGroup:
    """Build a group from its most frequent spellings and the rows of all spellings."""
    first = spellings[0]
    members = [uid for spelling in spellings for uid in spelling["members"]]
    likeness = "exact" if first["spellings"] == 1 else "normalised"
    captions = tuple(spelling["caption"] for spelling in spellings)
    return CaptionGroup(
        captions, rows, first["rows"], tuple(members[:MEMBERS]), likeness, hashes=frozenset({first["hash"]})
    )


def compute_minhashes(captions: Sequence[str], seed: int = 0) -> Hashes:
    """MinHashes (N, HASH_COUNT) of the captions' sets of adjacent word pairs."""
    return minhash_pairs(*hash_word_pairs(normalize_captions(captions)), seed)


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


def minhash_pairs(pairs: Hashes, first: Ints, seed: int = 0) -> Hashes:
    """The minimum of each hash function over the word pairs of each caption, (N, HASH_COUNT)."""
    generator = np.random.default_rng(seed)
    factor = generator.integers(1, 2**61, HASH_COUNT, np.uint64) | np.uint64(1)
    shift = generator.integers(0, 2**61, HASH_COUNT, np.uint64)
    out = np.empty((HASH_COUNT, len(first)), np.uint64)
    for i in range(HASH_COUNT if len(first) else 0):
        np.minimum.reduceat(pairs * factor[i] + shift[i], first, out=out[i])
    return out.T


def find_near_spellings(captions: Sequence[str]) -> list[tuple[int, int]]:
    """Pairs of captions that share a band and most of their MinHash: a Jaccard index of about 0.7 or more."""
    signature = compute_minhashes(captions)
    width = HASH_COUNT // BANDS
    pairs = set()
    for band in range(BANDS):
        keys = np.ascontiguousarray(signature[:, band * width : (band + 1) * width]).view(f"V{8 * width}").ravel()
        order = np.argsort(keys, kind="stable")
        for a, b in pairwise(order.tolist()):
            if keys[a] == keys[b] and (signature[a] == signature[b]).mean() >= 0.6:
                pairs.add((min(a, b), max(a, b)))
    return sorted(pairs)


def merge_groups(groups: Sequence[CaptionGroup], pairs: Sequence[tuple[int, int]]) -> list[CaptionGroup]:
    """Merge groups that are near each other; returns the largest first."""
    root = list(range(len(groups)))

    def find(i: int) -> int:
        while root[i] != i:
            root[i] = root[root[i]]
            i = root[i]
        return i

    for a, b in pairs:
        root[max(find(a), find(b))] = min(find(a), find(b))
    parts: dict[int, list[CaptionGroup]] = {}
    for i, group in enumerate(groups):
        parts.setdefault(find(i), []).append(group)
    return sorted((_combine_groups(part) for part in parts.values()), key=lambda group: -group.rows)


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


def describe_caption_group(group: CaptionGroup, rows: int) -> Fault:
    """The fault that reports a group; `rows` is the size of the corpus."""
    phrases = {"exact": "the same caption", "normalised": "the same caption except for case, punctuation or digits"}
    media = "different media: boilerplate" if group.is_boilerplate else "similar media"
    text = group.captions[0] if len(group.captions[0]) <= 60 else group.captions[0][:57] + "..."
    media_phrase = f" on {media}" if group.spread is not None else ""
    phrase = phrases.get(group.likeness, "nearly the same caption")
    share = group.rows / max(rows, 1)
    sentence = f"{group.rows:,} rows ({share:.1%}) have {phrase}{media_phrase}: {text!r}"
    pattern = "boilerplate" if group.is_boilerplate else "repeated"
    fault = Fault("caption", pattern, None, None, None, None, group.rows, None, sentence, group.captions[0])
    return replace(fault, share=share, likeness=group.likeness, spread=group.spread)
