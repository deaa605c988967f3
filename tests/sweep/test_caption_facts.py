"""Caption facts: which captions count as the same, which are not captions, and their languages."""

import re

import pytest

from auditor.schema import FACTS
from auditor.sweep.caption_facts import (
    classify_caption,
    describe_captions,
    describe_text,
    hash_caption,
    measure_non_letters,
    measure_repetition,
    normalize_ascii,
    normalize_caption,
)
from auditor.sweep.languages import detect_language


def test_the_same_but_for_case_punctuation_and_digits() -> None:
    assert normalize_caption("  A Dog, no. 12!") == normalize_caption("a dog no 345")
    assert hash_caption("A Dog, no. 12!") == hash_caption("a dog no 345")
    assert hash_caption("a dog") != hash_caption("a cat")
    assert normalize_caption("ＣＡＦÉ") == normalize_caption("café")
    assert -(2**63) <= hash_caption("x") < 2**63


@pytest.mark.parametrize(
    ("caption", "seen"),
    [
        ("IMG_2034.jpg", "file name"),
        ("holiday-03.PNG", "file name"),
        ("DSC01234", "file name"),
        ("photo 12", "file name"),
        ("see https://example.org/a?b=c for more", "url"),
        ("www.example.com", "url"),
        ("<b>A dog</b> runs", "html"),
        ("cats &amp; dogs", "html"),
        ("A cafÃ© in Paris", "mojibake"),
        ("donâ€™t look", "mojibake"),
        ("broken � text", "mojibake"),
        ("Happy dog on a beach Stock Photo #1234", "stock title"),
        ("Royalty-Free Images: red car", "stock title"),
        ("Sunset over hills - image ID: 88123456", "stock title"),
        ("A dog runs over the grass.", None),
        ("A trader photographs the stock exchange", None),
        ("un café à Paris", None),
        ("Two men, one of them (left) in a T-shirt: 5 < 7", None),
        ("a photo of 12 people", None),
        ("", None),
    ],
)
def test_what_a_caption_looks_like(caption: str, seen: str | None) -> None:
    likeness = classify_caption(caption)
    assert (likeness and likeness[0]) == seen
    assert likeness is None or likeness[1] in caption


def test_repetition_is_the_share_of_word_pairs_seen_before() -> None:
    assert measure_repetition(normalize_caption("dog dog dog dog").split()) == pytest.approx(2 / 3)
    assert measure_repetition(normalize_caption("a dog runs over the grass").split()) == 0
    assert measure_repetition([]) == measure_repetition(["dog"]) == 0


def test_letters_of_all_scripts_are_letters() -> None:
    assert measure_non_letters("犬が走る") == measure_non_letters("собака бежит") == measure_non_letters("é") == 0
    assert measure_non_letters("a1 !?") == pytest.approx(3 / 4)
    assert measure_non_letters("   ") == 0


def test_the_short_way_for_ascii_counts_as_characters_are_counted() -> None:
    for first in range(128):
        text = f"a{chr(first)} b"
        seen = [character for character in text if not character.isspace()]
        assert measure_non_letters(text) == sum(not character.isalpha() for character in seen) / len(seen)
    assert describe_caption("Two dogs, one cat")["words"] == 4


def test_languages_are_told_where_there_is_enough_text() -> None:
    pytest.importorskip("py3langid", reason="the language detector is not installed")
    assert detect_language("A brown dog runs over the green grass") == "en"
    assert detect_language("Ein brauner Hund läuft über die grüne Wiese") == "de"
    assert detect_language("Un chien brun court dans l'herbe verte") == "fr"
    assert detect_language("a man") is None


def describe_caption(caption: str) -> dict[str, object]:
    """The facts of one caption by itself."""
    return {**describe_text(caption, normalize_caption(caption))._asdict(), "language": detect_language(caption)}


def test_every_fact_is_a_column() -> None:
    assert set(describe_caption("A dog")) <= set(FACTS)


ODD = (
    *("", " ", "a", "__", "_a_ b", "snake_case_words", "A Dog, no. 12!", "007 00 7", "a1.5_22", "\tone\x1ctwo\n"),
    *("dog dog dog dog", "dog cat dog cat", "see www.example.com", "IMG_2034.jpg", "cats &amp; dogs", "5 < 7 & 8"),
    *(
        "un café à Paris",
        "A cafÃ© in Paris",
        "ＣＡＦÉ ①②",
        "犬が走る",
        "ÿ",
        "a ÿ b",
        "\x7f\x00\x1f",
        "E\u0301te\u0301 2024",
    ),
    *("A brown dog runs over the green grass", "Ein brauner Hund läuft über die grüne Wiese", "\ud800 dog"),
)


def test_facts_of_many_are_the_facts_of_each() -> None:
    captions = [*ODD, None, *ODD[::-1], *(f"{chr(a)}a{chr(a)}{chr(a)}1{chr(a)}" for a in range(256))]
    found = describe_captions(captions)
    nothing = dict.fromkeys(describe_caption(""))
    for place, caption in enumerate(captions):
        wanted = nothing if caption is None else describe_caption(caption)
        assert {name: column[place] for name, column in found.items()} == wanted, caption
    assert describe_captions([]) == {name: [] for name in nothing}
    assert describe_captions([None]) == {name: [None] for name in nothing}


def test_normalised_captions_of_ascii_together() -> None:
    captions = [caption for caption in ODD if caption.isascii()]
    pairs = [chr(first) + chr(second) + "1" + chr(first) for first in range(128) for second in range(128)]
    assert normalize_ascii([*captions, *pairs]) == [normalize_caption(caption) for caption in (*captions, *pairs)]
    assert normalize_ascii([""]) == normalize_ascii([" "]) == [""]


@pytest.mark.parametrize("caption", ODD)
def test_words_are_counted_in_the_caption_itself(caption: str) -> None:
    facts = describe_caption(caption)
    assert facts["words"] == len(re.findall(r"\w+", caption))
    assert facts["repeated_words"] == measure_repetition(normalize_caption(caption).split())
