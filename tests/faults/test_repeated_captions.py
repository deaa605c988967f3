"""Repeated captions: near ones are found by words and by embedding, and spread tells boilerplate."""

import zlib
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from auditor import Audit
from auditor.faults.repeated_captions import (
    HASHES,
    MEMBERS,
    CaptionGroup,
    Hashes,
    caption_fault,
    covered,
    mean_distance,
    merged,
    near_by_embedding,
    near_by_words,
    repeated_captions,
    signatures,
    with_spread,
)
from auditor.sweep.caption_facts import caption_hash, normalised, normalised_all
from tests.support.planted import invented, words, write_planted


def group(caption: str, rows: int = 10, members: tuple[str, ...] = ()) -> CaptionGroup:
    return CaptionGroup((caption,), rows, rows, members, "exact")


def test_minhash_is_about_the_jaccard_of_word_pairs() -> None:
    first = "the quick brown fox jumps over the lazy dog and runs far away into the deep dark wood"
    second = "the quick brown fox jumps over the lazy dog and runs far away into the deep green wood"
    sets = []
    for text in (first, second):
        words = normalised(text).split()
        sets.append(set(pairwise(words)))
    jaccard = len(sets[0] & sets[1]) / len(sets[0] | sets[1])
    signature = signatures([first, second])
    assert abs(float((signature[0] == signature[1]).mean()) - jaccard) < 0.2


ODD = [
    "",
    "one",
    "!!",
    "A b\nc  d",
    "Straße İstanbul \u0301x",
    "\u0301 e",
    "12 34 56",
    "a b a b a b",
    "\ufb01ne \u2028 day",
    " \t",
]


def one_by_one(captions: list[str]) -> Hashes:
    generator = np.random.default_rng(0)
    factor = generator.integers(1, 2**61, HASHES, np.uint64) | np.uint64(1)
    shift = generator.integers(0, 2**61, HASHES, np.uint64)
    out = []
    for caption in captions:
        words = normalised(caption).split()
        pairs = {zlib.crc32(" ".join(words[j : j + 2]).encode()) for j in range(max(1, len(words) - 1))}
        out.append((np.array(sorted(pairs), np.uint64)[:, None] * factor + shift).min(axis=0))
    return np.array(out)


def test_all_captions_at_once_are_hashed_like_each_alone() -> None:
    for captions in (ODD, [*ODD, "a \ua66e b", "\ua66e"], ODD[:1], ["", ""], ["x y"]):
        assert normalised_all(captions) == [normalised(caption) for caption in captions]
        assert np.array_equal(signatures(captions), one_by_one(captions))
    assert signatures([]).shape == (0, HASHES)


def test_near_captions_are_found_and_others_are_not() -> None:
    captions = [
        "buy cheap shoes online now with free shipping from our shop today",
        "buy cheap shoes online now with free shipping from our shop tomorrow",
        "a dog runs over the grass in the park",
        "two people stand at the sea",
    ]
    assert near_by_words(captions) == [(0, 1)]


def test_captions_with_the_same_vector_are_near() -> None:
    _, text = invented(20)
    text[7] = text[3]
    assert near_by_embedding(text) == [(3, 7)]


def test_near_groups_become_one() -> None:
    groups = [group("a", 5), group("b", 7), group("c", 3), group("d", 2)]
    assert [(g.rows, g.how) for g in merged(groups, [(0, 1), (1, 2)])] == [(15, "near"), (2, "exact")]


def test_unlike_media_are_boilerplate_and_alike_ones_are_not() -> None:
    visual, _ = invented(200)
    members = tuple(str(i) for i in range(20))
    unlike = mean_distance(visual)
    apart = with_spread(group("x", 20, members), {m: visual[int(m)] for m in members}, unlike)
    alike = with_spread(group("x", 20, members), dict.fromkeys(members, visual[0]), unlike)
    assert apart.boilerplate and not alike.boilerplate
    assert "boilerplate" in caption_fault(apart, 100).sentence and "20.0%" in caption_fault(apart, 100).sentence


def test_mean_distance_is_that_of_all_pairs() -> None:
    visual, _ = invented(30)
    cosine = visual @ visual.T
    assert abs(mean_distance(visual) - float(1 - cosine[np.triu_indices(30, 1)].mean())) < 1e-5


def test_spellings_are_counted_as_row_by_row(tmp_path: Path) -> None:
    """Also where there are more than are kept: the most frequent first, of equals in alphabetical order."""
    captions = words(300)
    captions[:120] = [f"Photo no. {i % 50}" for i in range(120)]
    captions[120:140] = ["sold OUT", "Sold out!"] * 10
    captions[140:148] = ["the same"] * 8
    write_planted(tmp_path, *invented(300), shards=3, captions=captions)
    found = repeated_captions(Audit(tmp_path).database)
    assert [(group.rows, group.exact, group.how) for group in found] == [
        (120, 3, "normalised"),
        (20, 10, "normalised"),
        (8, 8, "exact"),
    ]
    for group in found:
        same = [caption for caption in captions if caption_hash(caption) in group.hashes]
        spelled = sorted(Counter(same).items(), key=lambda one: (-one[1], one[0]))
        uids = [f"{i:032x}" for caption, _ in spelled for i, other in enumerate(captions) if other == caption]
        assert group.captions == tuple(caption for caption, _ in spelled[:MEMBERS])
        assert group.members == tuple(uids[:MEMBERS])


def test_a_group_is_covered_by_one_with_any_spelling_of_it() -> None:
    known = replace(group("photo no. 1", rows=100), hashes=frozenset({caption_hash("photo no. 1")}))
    assert covered(group("Photo, no 23!", rows=200), [known])
    assert not covered(group("Photo, no 23!", rows=201), [known])
    assert not covered(group("a photo no 23", rows=10), [known])
