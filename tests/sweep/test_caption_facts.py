"""Facts of captions: what counts as the same, what looks like something else, languages."""

import pytest

from auditor.schema import FACTS
from auditor.sweep.caption_facts import (
    caption_facts,
    caption_hash,
    facts_by_column,
    looks_like,
    non_letter_share,
    normalised,
    normalised_ascii,
    repeated_share,
    word_count,
)
from auditor.sweep.languages import language


def test_the_same_but_for_case_punctuation_and_digits() -> None:
    assert normalised("  A Dog, no. 12!") == normalised("a dog no 345")
    assert caption_hash("A Dog, no. 12!") == caption_hash("a dog no 345")
    assert caption_hash("a dog") != caption_hash("a cat")
    assert normalised("ＣＡＦÉ") == normalised("café")
    assert -(2**63) <= caption_hash("x") < 2**63


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
        ("A dog runs over the grass.", None),
        ("un café à Paris", None),
        ("Two men, one of them (left) in a T-shirt: 5 < 7", None),
        ("a photo of 12 people", None),
        ("", None),
    ],
)
def test_what_a_caption_looks_like(caption: str, seen: str | None) -> None:
    assert looks_like(caption) == seen


def test_repetition_is_the_share_of_word_pairs_seen_before() -> None:
    assert repeated_share("dog dog dog dog") == pytest.approx(2 / 3)
    assert repeated_share("a dog runs over the grass") == 0
    assert repeated_share("") == repeated_share("dog") == 0


def test_letters_of_all_scripts_are_letters() -> None:
    assert non_letter_share("犬が走る") == non_letter_share("собака бежит") == non_letter_share("é") == 0
    assert non_letter_share("a1 !?") == pytest.approx(3 / 4)
    assert non_letter_share("   ") == 0


def test_the_short_way_for_ascii_counts_as_characters_are_counted() -> None:
    for first in range(128):
        text = f"a{chr(first)} b"
        seen = [character for character in text if not character.isspace()]
        assert non_letter_share(text) == sum(not character.isalpha() for character in seen) / len(seen)
    assert word_count("Two dogs, one cat") == 4


def test_languages_are_told_where_there_is_enough_text() -> None:
    pytest.importorskip("py3langid", reason="the language detector is not installed")
    assert language("A brown dog runs over the green grass") == "en"
    assert language("Ein brauner Hund läuft über die grüne Wiese") == "de"
    assert language("Un chien brun court dans l'herbe verte") == "fr"
    assert language("a man") is None


def test_every_fact_is_a_column() -> None:
    assert set(caption_facts("A dog")) <= set(FACTS)


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
    found = facts_by_column(captions)
    nothing = dict.fromkeys(caption_facts(""))
    for place, caption in enumerate(captions):
        wanted = nothing if caption is None else caption_facts(caption)
        assert {name: column[place] for name, column in found.items()} == wanted, caption
    assert facts_by_column([]) == {name: [] for name in nothing}
    assert facts_by_column([None]) == {name: [None] for name in nothing}


def test_normalised_captions_of_ascii_together() -> None:
    captions = [caption for caption in ODD if caption.isascii()]
    pairs = [chr(first) + chr(second) + "1" + chr(first) for first in range(128) for second in range(128)]
    assert normalised_ascii([*captions, *pairs]) == [normalised(caption) for caption in (*captions, *pairs)]
    assert normalised_ascii([""]) == normalised_ascii([" "]) == [""]


@pytest.mark.parametrize("caption", ODD)
def test_words_are_counted_in_the_caption_itself(caption: str) -> None:
    facts = caption_facts(caption)
    assert facts["words"] == word_count(caption)
    assert facts["repeated_words"] == repeated_share(caption)
