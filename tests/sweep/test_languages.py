"""Detecting languages of many captions at once gives the result of one at a time, for any script and length."""

import random
from collections.abc import Iterator

import pytest

from auditor.sweep import languages as module
from auditor.sweep.languages import CLOSE, SHORTEST, SURE, detect_language, detect_languages

SENTENCES = (
    "A brown dog runs over the green grass",
    "Ein brauner Hund läuft über die grüne Wiese",
    "Un chien brun court dans l'herbe verte",
    "Un perro marrón corre por la hierba verde",
    "Коричневая собака бежит по зелёной траве",
    "茶色の犬が緑の草の上を走っている",
    "갈색 개가 푸른 풀밭 위를 달린다",
    "كلب بني يركض فوق العشب الأخضر",
    "भूरा कुत्ता हरी घास पर दौड़ता है",
    "Braon pas trči po zelenoj travi",  # of a language with two columns
    "Смеђи пас трчи по зеленој трави",
)
SCRIPTS = ((0x20, 0x7E), (0xA0, 0x24F), (0x370, 0x5FF), (0x600, 0x6FF), (0x900, 0xE7F), (0x3040, 0x9FFF), (0, 0x2FFF))


@pytest.fixture(autouse=True)
def _detector() -> None:
    pytest.importorskip("py3langid", reason="the language detector is not installed")


def cuts(random: random.Random) -> Iterator[str]:
    """Sentences cut, joined and in capitals, many of them hard to classify."""
    for _ in range(700):
        first, second = random.choices(SENTENCES, k=2)
        yield first[random.randrange(20) :] + " " + second[: random.randrange(30)]
        yield first.upper()[: random.randrange(len(first))]


def scripts(random: random.Random) -> Iterator[str]:
    for low, high in SCRIPTS:
        for length in (1, 11, 12, 13, 40, 90, 300):
            for _ in range(6):
                yield "".join(chr(random.randint(low, high)) if random.random() > 0.15 else " " for _ in range(length))


ODD = (
    *("", "a", "犬", " " * 20, "1234567890 1234567890", "😀" * 20, "a\u0301" * 40, "\ud800" * 20, "\0" * 30),
    *("x" * 5000, "the dog runs " * 800, "собака бежит " * 300, "A" * 12),
)


def test_many_at_once_have_the_languages_of_one_at_a_time() -> None:
    dice = random.Random(0)
    captions = [*SENTENCES, *cuts(dice), *scripts(dice), *ODD]
    dice.shuffle(captions)
    one_by_one = [detect_language(caption) for caption in captions]
    assert detect_languages(captions) == one_by_one
    assert len(set(one_by_one)) > 8 and one_by_one.count(None) > 200


def test_what_is_close_to_the_bound_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    captions = [caption for caption in cuts(random.Random(1)) if len(caption) >= SHORTEST]
    exact = [module._load_identifier().classify(caption)[1] for caption in captions]
    asked: list[str] = []
    monkeypatch.setattr(module, "detect_language", asked.append)
    detect_languages(captions)
    close = {caption for caption, p in zip(captions, exact, strict=True) if abs(p - SURE) < CLOSE / 2}
    assert close and close <= set(asked) and len(asked) < len(captions) / 10


@pytest.mark.parametrize(("together", "few"), [(64, 1), (2**20, 1), (500, 3), (2**20, 32)])
def test_however_captions_are_taken_together(monkeypatch: pytest.MonkeyPatch, together: int, few: int) -> None:
    monkeypatch.setattr(module, "BATCH_BYTES", together)
    monkeypatch.setattr(module, "FEW", few)
    monkeypatch.setattr(module, "STEPS", 20)
    captions = [*SENTENCES, *ODD[:9], *SENTENCES[::-1], "Ein Satz, der viel länger ist als jeder andere. " * 9]
    assert detect_languages(captions) == [detect_language(caption) for caption in captions]


def test_none_or_none_long_enough() -> None:
    assert detect_languages([]) == []
    assert detect_languages(["a dog", ""]) == [None, None]


def test_without_a_detector_there_are_no_languages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_load_identifier", lambda: None)
    module._load_model.cache_clear()
    assert detect_languages(SENTENCES) == [None] * len(SENTENCES)
    assert detect_language(SENTENCES[0]) is None
    module._load_model.cache_clear()
