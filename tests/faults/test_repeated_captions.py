"""Repeated captions: near ones are found by words and embeddings, and boilerplate by spread."""

import zlib
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from auditor import Audit
from auditor.faults.near_captions import mark_near_captions
from auditor.faults.repeated_captions import (
    HASH_COUNT,
    MEMBERS,
    CaptionGroup,
    Hashes,
    add_spread,
    compute_mean_distance,
    compute_minhashes,
    count_group_sources,
    describe_caption_group,
    find_near_spellings,
    find_repeated_captions,
    is_covered,
    merge_groups,
)
from auditor.keep.caption_choice import count_sources
from auditor.sweep.caption_facts import hash_caption, normalize_caption, normalize_captions
from tests.faults.test_shared_openings import write_captions
from tests.support.planted import make_captions, make_embeddings, write_planted


def make_group(caption: str, rows: int = 10, members: tuple[str, ...] = ()) -> CaptionGroup:
    return CaptionGroup((caption,), rows, rows, members, "exact")


def test_minhash_is_about_the_jaccard_of_word_pairs() -> None:
    first = "the quick brown fox jumps over the lazy dog and runs far away into the deep dark wood"
    second = "the quick brown fox jumps over the lazy dog and runs far away into the deep green wood"
    sets = []
    for text in (first, second):
        words = normalize_caption(text).split()
        sets.append(set(pairwise(words)))
    jaccard = len(sets[0] & sets[1]) / len(sets[0] | sets[1])
    signature = compute_minhashes([first, second])
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


def hash_naively(captions: list[str]) -> Hashes:
    generator = np.random.default_rng(0)
    factor = generator.integers(1, 2**61, HASH_COUNT, np.uint64) | np.uint64(1)
    shift = generator.integers(0, 2**61, HASH_COUNT, np.uint64)
    out = []
    for caption in captions:
        words = normalize_caption(caption).split()
        pairs = {zlib.crc32(" ".join(words[j : j + 2]).encode()) for j in range(max(1, len(words) - 1))}
        out.append((np.array(sorted(pairs), np.uint64)[:, None] * factor + shift).min(axis=0))
    return np.array(out)


def test_all_captions_at_once_are_hashed_like_each_alone() -> None:
    for captions in (ODD, [*ODD, "a \ua66e b", "\ua66e"], ODD[:1], ["", ""], ["x y"]):
        assert normalize_captions(captions) == [normalize_caption(caption) for caption in captions]
        assert np.array_equal(compute_minhashes(captions), hash_naively(captions))
    assert compute_minhashes([]).shape == (0, HASH_COUNT)


def test_near_captions_are_found_and_others_are_not() -> None:
    captions = [
        "buy cheap shoes online now with free shipping from our shop today",
        "buy cheap shoes online now with free shipping from our shop tomorrow",
        "a dog runs over the grass in the park",
        "two people stand at the sea",
    ]
    assert find_near_spellings(captions) == [(0, 1)]


def test_captions_with_the_same_vector_are_near() -> None:
    _, text = make_embeddings(20)
    text[7] = text[3]
    captions = [f"{word} alone" for word in "abcdefghijklmnopqrst"]
    assert np.argwhere(np.triu(mark_near_captions(captions, text), k=1)).tolist() == [[3, 7]]


def test_near_groups_become_one() -> None:
    groups = [make_group("a", 5), make_group("b", 7), make_group("c", 3), make_group("d", 2)]
    assert [(g.rows, g.likeness) for g in merge_groups(groups, [(0, 1), (1, 2)])] == [(15, "near"), (2, "exact")]


def test_unlike_media_are_boilerplate_and_alike_ones_are_not() -> None:
    visual, _ = make_embeddings(200)
    members = tuple(str(i) for i in range(20))
    unlike = compute_mean_distance(visual)
    apart = add_spread(make_group("x", 20, members), {m: visual[int(m)] for m in members}, unlike)
    alike = add_spread(make_group("x", 20, members), dict.fromkeys(members, visual[0]), unlike)
    assert apart.is_boilerplate and not alike.is_boilerplate
    sentence = describe_caption_group(apart, 100, {}, {}).sentence
    assert "boilerplate" in sentence and "20 rows (20.0%) have" in sentence


def test_a_repeated_caption_names_its_source(tmp_path: Path) -> None:
    texts = [f"{row} dogs at {row * 3} o'clock" for row in range(300)]
    texts[1::4] = ["A photo of a thing"] * 75  # every second caption of refined
    for row in range(0, 100, 10):
        texts[row] = texts[row + 3] = "An empty street"  # of both sources
    database = write_captions(tmp_path, texts, ["raw", "refined"]).database
    groups = find_repeated_captions(database)
    counts = count_group_sources(database, groups)
    totals = count_sources(database)
    sentences = {
        group.captions[0]: describe_caption_group(group, sum(totals.values()), sources, totals)
        for group, sources in zip(groups, counts, strict=True)
    }
    boilerplate, both = sentences["A photo of a thing"], sentences["An empty street"]
    share = boilerplate.rows / totals["refined"]
    assert boilerplate.source == "refined" and both.source is None and 0.4 < share < 0.55
    assert boilerplate.sentence.startswith(f"{boilerplate.rows} captions of refined ({share:.1%} of them) have the")
    assert "; by source: r" in both.sentence and "raw 50%" in both.sentence and "refined 50%" in both.sentence


def test_mean_distance_is_that_of_all_pairs() -> None:
    visual, _ = make_embeddings(30)
    cosine = visual @ visual.T
    assert abs(compute_mean_distance(visual) - float(1 - cosine[np.triu_indices(30, 1)].mean())) < 1e-5


def test_spellings_are_counted_as_row_by_row(tmp_path: Path) -> None:
    """With more groups than the limit: the most frequent first, ties in alphabetical order."""
    captions = make_captions(300)
    captions[:120] = [f"Photo no. {i % 50}" for i in range(120)]
    captions[120:140] = ["sold OUT", "Sold out!"] * 10
    captions[140:148] = ["the same"] * 8
    write_planted(tmp_path, *make_embeddings(300), shards=3, captions=captions)
    found = find_repeated_captions(Audit(tmp_path).database)
    assert [(group.rows, group.exact, group.likeness) for group in found] == [
        (120, 3, "normalised"),
        (20, 10, "normalised"),
        (8, 8, "exact"),
    ]
    for group in found:
        same = [caption for caption in captions if hash_caption(caption) in group.hashes]
        spelled = sorted(Counter(same).items(), key=lambda one: (-one[1], one[0]))
        uids = [f"{i:032x}" for caption, _ in spelled for i, other in enumerate(captions) if other == caption]
        assert group.captions == tuple(caption for caption, _ in spelled[:MEMBERS])
        assert group.members == tuple(uids[:MEMBERS])


def test_a_group_is_covered_by_one_with_any_spelling_of_it() -> None:
    known = replace(make_group("photo no. 1", rows=100), hashes=frozenset({hash_caption("photo no. 1")}))
    assert is_covered(make_group("Photo, no 23!", rows=200), [known])
    assert not is_covered(make_group("Photo, no 23!", rows=201), [known])
    assert not is_covered(make_group("a photo no 23", rows=10), [known])
