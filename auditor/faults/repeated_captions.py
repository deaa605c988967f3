"""Repeated captions: the same, the same but for case, punctuation and digits, and nearly the same.

Groups are counted by DuckDB over `caption_hash`, a number that equal normalised captions share; near ones are found
among the most frequent by MinHash of their words and by their embeddings. A caption on media that are as unlike as any
two of the corpus is boilerplate; on media that are alike it is only a plain description.
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
from auditor.sweep.caption_facts import caption_hash, normalised_all
from auditor.vectors import Floats, Ints

SMALLEST = 5  # rows: a caption that occurs less often is no pattern
MOST_GROUPS = 1000
MEMBERS = 32  # of a group whose media are compared
HASHES, BANDS = 64, 16
ALIKE_TEXT = 0.97  # cosine of two captions that say nearly the same
Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class CaptionGroup:
    """Rows with (nearly) the same caption. `spread`: how unlike their media are, 1 as any two of the corpus, 0 one."""

    captions: tuple[str, ...]  # spellings, the most frequent first; of very many only some
    rows: int
    exact: int  # rows with the most frequent spelling
    members: tuple[str, ...]  # uids of some of them
    how: str  # exact, normalised, near
    spread: float | None = None
    hashes: frozenset[int] = frozenset()  # those that all spellings of the group have

    @property
    def boilerplate(self) -> bool:
        return self.spread is not None and self.spread > 0.7


def repeated_captions(database: AuditDatabase, smallest: int = SMALLEST, most: int = MOST_GROUPS) -> list[CaptionGroup]:
    """The captions that occur most often, the same but for case, punctuation and digits."""
    table = database.table("caption_hash uid caption")
    frequent = database.rows(
        f"SELECT caption_hash AS hash, count(*) AS rows FROM {database.table('caption_hash')} "
        f"WHERE caption_hash IS NOT NULL GROUP BY hash HAVING count(*) >= {int(smallest)} "
        f"ORDER BY rows DESC, hash LIMIT {int(most)}"
    )
    if not frequent:
        return []
    wanted = ", ".join(str(row["hash"]) for row in frequent)
    spellings = database.rows(
        f"WITH spelled AS (SELECT caption_hash AS hash, caption, count(*) AS rows FROM {table} "
        f"WHERE caption_hash IN ({wanted}) GROUP BY hash, caption), "
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
    return [_group(by_hash[row["hash"]], row["rows"]) for row in frequent]


def _group(spellings: Sequence[Mapping[str, Any]], rows: int) -> CaptionGroup:
    """A caption from the most frequent of its spellings, and how many rows have any."""
    first = spellings[0]
    members = [uid for one in spellings for uid in one["members"]]
    how = "exact" if first["spellings"] == 1 else "normalised"
    captions = tuple(one["caption"] for one in spellings)
    return CaptionGroup(captions, rows, first["rows"], tuple(members[:MEMBERS]), how, hashes=frozenset({first["hash"]}))


def signatures(captions: Sequence[str], seed: int = 0) -> Hashes:
    """MinHash (N, HASHES) of the sets of pairs of neighbouring words."""
    return min_hashes(*word_pairs(normalised_all(captions)), seed)


def word_pairs(captions: Sequence[str]) -> tuple[Hashes, Ints]:
    """A number for each pair of neighbouring words of all (normalised) captions, and where those of each begin.

    A caption of fewer words has one number.
    """
    text = "\n".join([*captions, ""]).encode()
    letters = np.frombuffer(text, np.uint8)
    gaps = np.flatnonzero((letters == ord(" ")) | (letters == ord("\n")))  # where words end
    starts = np.concatenate([[0], gaps[:-1] + 1])
    is_last = letters[gaps] == ord("\n")
    is_first = np.concatenate([[True], is_last[:-1]])[: len(gaps)]
    begins = ~is_last | is_first  # the words that a pair begins with, or that are alone
    ends = np.where(is_last, gaps, np.concatenate([gaps[1:], [0]])[: len(gaps)])[begins]
    spans = map(slice, starts[begins].tolist(), ends.tolist())
    numbers = np.fromiter(map(zlib.crc32, map(text.__getitem__, spans)), np.uint64, len(ends))
    return numbers, np.flatnonzero(is_first[begins])


def min_hashes(pairs: Hashes, first: Ints, seed: int = 0) -> Hashes:
    """The smallest of each hash over the numbers of each caption, (N, HASHES)."""
    generator = np.random.default_rng(seed)
    factor = generator.integers(1, 2**61, HASHES, np.uint64) | np.uint64(1)
    shift = generator.integers(0, 2**61, HASHES, np.uint64)
    out = np.empty((HASHES, len(first)), np.uint64)
    for i in range(HASHES if len(first) else 0):
        np.minimum.reduceat(pairs * factor[i] + shift[i], first, out=out[i])
    return out.T


def near_by_words(captions: Sequence[str]) -> list[tuple[int, int]]:
    """Pairs of captions that share a band of their MinHash and most of it: a Jaccard of about 0.7 or more."""
    signature = signatures(captions)
    width = HASHES // BANDS
    found = set()
    for band in range(BANDS):
        keys = np.ascontiguousarray(signature[:, band * width : (band + 1) * width]).view(f"V{8 * width}").ravel()
        order = np.argsort(keys, kind="stable")
        for a, b in pairwise(order.tolist()):
            if keys[a] == keys[b] and (signature[a] == signature[b]).mean() >= 0.6:
                found.add((min(a, b), max(a, b)))
    return sorted(found)


def near_by_embedding(text: Floats, alike: float = ALIKE_TEXT) -> list[tuple[int, int]]:
    """Pairs of captions whose vectors are nearly the same."""
    first, second = np.nonzero(np.triu(text @ text.T >= alike, k=1))
    return list(zip(first.tolist(), second.tolist(), strict=True))


def merged(groups: Sequence[CaptionGroup], pairs: Sequence[tuple[int, int]]) -> list[CaptionGroup]:
    """Groups that are near each other as one, the largest first."""
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
    return sorted((_together(part) for part in parts.values()), key=lambda group: -group.rows)


def _together(part: Sequence[CaptionGroup]) -> CaptionGroup:
    if len(part) == 1:
        return part[0]
    captions = tuple(caption for group in part for caption in group.captions)
    members = tuple(uid for group in part for uid in group.members)[:MEMBERS]
    hashes = frozenset[int]().union(*(group.hashes for group in part))
    rows, exact = sum(group.rows for group in part), max(group.exact for group in part)
    return CaptionGroup(captions, rows, exact, members, "near", hashes=hashes)


def covered(group: CaptionGroup, others: Sequence[CaptionGroup]) -> bool:
    """Whether most rows of a group are those of another one that is named already."""
    hashes = {caption_hash(caption) for caption in group.captions}
    return any(hashes & other.hashes and group.rows <= 2 * other.rows for other in others)


def with_spread(group: CaptionGroup, vectors: Mapping[str, Floats], unlike: float) -> CaptionGroup:
    """The group with the spread of its media; `unlike` is the mean distance of two media of the corpus."""
    known = np.array([vectors[uid] for uid in group.members if uid in vectors])
    if len(known) < 2 or unlike <= 0:
        return group
    return replace(group, spread=float(np.clip(mean_distance(known) / unlike, 0, 2)))


def mean_distance(visual: Floats) -> float:
    """Mean of 1 - cosine over all pairs."""
    count = len(visual)
    total = float(np.square(visual.sum(axis=0, dtype=np.float64)).sum()) - count
    return 1 - total / (count * (count - 1))


def caption_fault(group: CaptionGroup, rows: int) -> Fault:
    """`rows` is the size of the corpus."""
    how = {"exact": "the same caption", "normalised": "the same caption but for case, punctuation or digits"}
    media = "unlike media: boilerplate" if group.boilerplate else "media that are alike"
    text = group.captions[0] if len(group.captions[0]) <= 60 else group.captions[0][:57] + "..."
    known = f" on {media}" if group.spread is not None else ""
    said = how.get(group.how, "nearly the same caption")
    share = group.rows / max(rows, 1)
    sentence = f"{group.rows:,} rows ({share:.1%}) have {said}{known}: {text!r}"
    pattern = "boilerplate" if group.boilerplate else "repeated"
    fault = Fault("caption", pattern, None, None, None, None, group.rows, None, sentence, group.captions[0])
    return replace(fault, share=share, likeness=group.how, spread=group.spread)
