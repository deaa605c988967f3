"""Defects of generated captions: each rule in both directions, loops, cut-off ends, preambles, and human captions."""

import tarfile
import time
from pathlib import Path

import pytest

from auditor.schema import DEFECTS, Defect
from auditor.sweep.caption_defects import LONGEST, RULES, SPAN, DefectRule, find_defect, find_preamble
from auditor.sweep.caption_facts import describe_captions, measure_repetition, normalize_caption
from tests.sweep.generated_captions import LEAKS, SOUND, UNSEEN


def find(caption: str) -> tuple[str, str] | None:
    words = normalize_caption(caption).split()
    return find_defect(caption, words, measure_repetition(words))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.defect}: {rule.example[:30]}")
def test_each_rule_finds_its_example_and_not_the_sound_one(rule: DefectRule) -> None:
    defect = find(rule.example)
    assert defect is not None and defect[0] == rule.defect
    assert defect[1] in rule.example and len(defect[1]) <= SPAN
    assert rule.pattern.search(rule.example), "found by this rule, not by another"
    assert find(rule.sound) is None


@pytest.mark.parametrize(
    ("caption", "defect"),
    [
        ("A dog runs. A dog runs fast. A dog runs fast. A dog runs fast.", "loop"),
        ("a man and a man and a man and a man and a man", "loop"),
        ("red red red red red", "loop"),
        ("A dog, a cat, a bird and a man and a woman and a child", None),
        ("Yellow taxi, yellow bus, yellow bicycle", None),
        ("A man in a red jacket stands in front of a large house with a", "unfinished"),
        ("A man with a red hat is standing next to a tall woman with his helmet on", None),
        (
            "The street is full of people. Some of them carry umbrellas because it is raining. In the background there "
            "are tall buildings and a bus that waits for passengers at the corner near",
            "unfinished",
        ),
        ("A dog on the beach. It is running after a ball", None),
        ("I'm sorry, but I cannot identify the person.\nA man.", "refusal"),
        ("ein Hund am Strand", None),
        ("", None),
        ("   ", None),
    ],
)
def test_loops_and_ends(caption: str, defect: str | None) -> None:
    found = find(caption)
    assert (found and found[0]) == defect


@pytest.mark.parametrize(
    ("caption", "preamble"),
    [
        ("The image shows a dog on a beach.", "The image shows"),
        ("In this picture, we can see a dog.", "In this picture, we can see"),
        ("In the photo there are two dogs", "In the photo there are"),
        ("this video captures: a dog", "this video captures"),
        ("The scene appears to be a market", "The scene appears to be"),
        ("The image of a saint hangs on the wall", None),
        ("The picture frame is golden", None),
        ("A photo of a dog", None),
        ("In the street, a dog runs", None),
    ],
)
def test_openings_that_say_nothing(caption: str, preamble: str | None) -> None:
    assert find_preamble(caption, normalize_caption(caption).split()) == preamble


def test_the_columns_of_a_caption() -> None:
    captions = ["The image shows a dog.</s>", "A dog.", None, "IMG_0001.jpg"]
    facts = describe_captions(captions)
    assert facts["looks_like"] == ["prompt leak", None, None, "file name"]
    assert facts["looks_like_span"] == ["</s>", None, None, "IMG_0001.jpg"]
    assert facts["preamble"] == ["The image shows", None, None, None]


def count_found(captions: dict[Defect, tuple[str, ...]]) -> tuple[int, int]:
    flat = [caption for kind in captions.values() for caption in kind]
    return sum(find(caption) is not None for caption in flat), len(flat)


def test_recall_on_written_captions() -> None:
    """All 60 are found for which rules were written in part; of those that no rule was written on, 33 of 41."""
    assert set(LEAKS) == set(UNSEEN) == set(DEFECTS)
    assert count_found(LEAKS) == (60, 60)
    found, total = count_found(UNSEEN)
    assert found >= 0.75 * total
    assert not [caption for caption in SOUND if find(caption)]


def test_every_defect_has_a_rule_or_a_function() -> None:
    assert {rule.defect for rule in RULES} | {"loop", "unfinished"} == set(DEFECTS)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("part", ["a", "[insert ", "**a", "0.11 ", "[", "dog ", "I can ", "the image is of a ", "{{"])
def test_huge_captions_do_not_take_for_ever(part: str) -> None:
    defect = find(part * (2_000_000 // len(part)))
    assert defect is None or (defect[0] in DEFECTS and len(defect[1]) <= SPAN)


@pytest.mark.parametrize("opening", ["[", "[[", "{'a' "])
def test_blanks_after_a_bracket_take_no_time(opening: str) -> None:
    start = time.process_time()
    assert find(opening + " " * LONGEST + "x") is None
    assert time.process_time() - start < 0.5  # 1.5 seconds if two parts of a pattern share the blanks


def test_human_captions_have_no_defects(shared: Path) -> None:
    """Tuned on the train tars; fewer than one of 10,000 captions of people is flagged."""
    captions: list[str] = []
    for path in sorted((shared / "data").glob("[fh]*/*.tar")):  # flickr8k and human
        with tarfile.open(path) as tar:
            for member in tar:
                if member.name.endswith(".txt") and (file := tar.extractfile(member)):
                    captions += file.read().decode().splitlines()
    flagged = [caption for caption in captions if caption.strip() and find(caption)]
    assert len(captions) >= 10_000 and len(flagged) < len(captions) / 10_000, flagged
