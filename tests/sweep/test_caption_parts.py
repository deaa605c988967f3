"""Splitting captions: sentences, clauses, words and characters, in any script and of any size."""

import time
from itertools import pairwise

import pytest

from auditor.sweep.caption_parts import (
    CHARACTERS_PER_TOKEN,
    MOST_PARTS,
    iterate_sentence_ends,
    may_have_sentences,
    split_caption,
)

CONTEXT = 12


def count_words(text: str) -> int:
    """A tokenizer: a token for a word of up to five characters, one more for every further five, start and end."""
    return sum(-(-len(word) // 5) for word in text.split()) + 2


def list_sentences(caption: str) -> list[str]:
    starts = [0, *iterate_sentence_ends(caption)]
    return [caption[a:b].strip() for a, b in pairwise(starts)]


def split(caption: str) -> list[str]:
    return split_caption(caption, count_words, CONTEXT).texts(caption)


@pytest.mark.parametrize(
    ("caption", "sentences"),
    [
        ("A dog runs. A man watches.", ["A dog runs.", "A man watches."]),
        ("a dog runs . a man watches .", ["a dog runs .", "a man watches ."]),
        ("What a view! Is it Rome? It is.", ["What a view!", "Is it Rome?", "It is."]),
        ("Dr. Smith meets J. K. Brown at 3.5 p.m. in the U.S. pavilion. They talk.",
         ["Dr. Smith meets J. K. Brown at 3.5 p.m. in the U.S. pavilion.", "They talk."]),
        ("Players No. 7 and No. 9 run. It rains.", ["Players No. 7 and No. 9 run.", "It rains."]),
        ("The answer is no. They leave.", ["The answer is no.", "They leave."]),
        ("Cups, plates, etc. are on a table. It is old.", ["Cups, plates, etc. are on a table.", "It is old."]),
        ("1. A dog.\n2. A cat.\n\n- a bird", ["1. A dog.", "2. A cat.", "- a bird"]),
        ("Wow! A dog runs on.", ["Wow! A dog runs on."]),
        ('A sign says "Stop!" and a car waits. A bus comes.', ['A sign says "Stop!" and a car waits.', "A bus comes."]),
        ('He holds a sign that says " Go . "', ['He holds a sign that says " Go . "']),
        ("A pause ... and it goes on. Then it ends.", ["A pause ... and it goes on.", "Then it ends."]),
        ("A dog runs. 😀😀", ["A dog runs. 😀😀"]),
        ("他在公园里跑步。一只狗跟着他！", ["他在公园里跑步。", "一只狗跟着他！"]),
        ("कुत्ता दौड़ता है। आदमी देखता है।", ["कुत्ता दौड़ता है।", "आदमी देखता है।"]),
        ("كلب يجري؟ رجل يشاهد.", ["كلب يجري؟", "رجل يشاهد."]),
        ("A title\n\nA dog runs", ["A title", "A dog runs"]),
        ("one sentence", ["one sentence"]),
        ("  ", [""]),
    ],
)  # fmt: skip
def test_sentences(caption: str, sentences: list[str]) -> None:
    assert list_sentences(caption) == sentences
    assert may_have_sentences(caption) or len(sentences) == 1


def test_a_caption_that_fits_is_split_at_sentences_only() -> None:
    assert split("A dog, a cat and a bird run. It rains.") == ["A dog, a cat and a bird run.", "It rains."]


def test_a_long_sentence_is_split_at_clauses_then_words_into_parts_of_like_size() -> None:
    clauses = "a man in a red hat walks here, while a small dog runs by, and a bird sings"
    assert split(clauses) == ["a man in a red hat walks here,", "while a small dog runs by, and a bird sings"]
    words = " ".join(f"w{n:02d}" for n in range(25))
    assert [count_words(part) - 2 for part in split(words)] == [8, 8, 9]


@pytest.mark.parametrize(
    "caption",
    [
        "x" * 500,
        "字" * 300,
        "ผู้ชายวิ่งในสวนสาธารณะสุนัขวิ่งตาม" * 9,
        "👩🏽‍👩🏽‍👧🏽" * 40,
        "e\u0301" * 200,
        "word " * 90,
        ", " * 300,
        "." * 400,
    ],
    ids=["endless word", "CJK", "Thai", "emoji", "accents", "words", "commas", "periods"],
)
def test_every_part_fits_and_together_they_are_the_caption(caption: str) -> None:
    parts = split_caption(caption, count_words, CONTEXT)
    assert parts.whole and parts.ends[-1] == len(caption) and len(parts.ends) > 1
    assert list(parts.ends) == sorted(set(parts.ends))
    assert all(count_words(text) <= CONTEXT for text in parts.texts(caption))


def test_characters_stay_whole() -> None:
    family = "👩🏽‍👩🏽‍👧🏽"
    assert set("".join(split(family * 40)).split(family)) == {""}
    assert all(len(part) % len(family) == 0 for part in split(family * 40))
    assert not any(part.startswith("\u0301") for part in split("e\u0301" * 200))


def test_the_rest_after_512_parts_is_left_out() -> None:
    caption = "A dog runs. " * (MOST_PARTS + 1)
    parts = split_caption(caption, count_words, CONTEXT)
    assert len(parts.ends) == MOST_PARTS and not parts.whole
    assert parts.ends[-1] == len("A dog runs. ") * MOST_PARTS - 1
    exact = split_caption("A dog runs. " * MOST_PARTS, count_words, CONTEXT)
    assert len(exact.ends) == MOST_PARTS and exact.whole


@pytest.mark.parametrize(
    "unit", ["word ", "a", "字", "😀", "x. ", "!", ", ", "... ", "A dog runs. ", "\u0301", " \n", "9"]
)
def test_ten_megabytes_take_a_bounded_time(unit: str) -> None:
    """Only texts of bounded size are counted, and few of them; wall time is a backstop against quadratic behavior."""
    counted: list[int] = []

    def count(text: str) -> int:
        counted.append(len(text))
        return count_words(text)

    start = time.process_time()
    parts = split_caption(unit * (10_000_000 // len(unit)), count, CONTEXT)
    assert len(parts.ends) <= MOST_PARTS and max(counted, default=0) <= CONTEXT * CHARACTERS_PER_TOKEN
    assert len(counted) <= 64 * MOST_PARTS
    assert time.process_time() - start < 30
