"""Tokens that are kept by word are those of open_clip's tokenizer, whatever a caption holds."""

import random

import open_clip
import pytest
import torch

from model.encoding.word_tokens import WordTokenizer

ODD = (
    *("", "  ", "a dog", "It's I'LL we'Re", "<start_of_text> a", "<END_OF_TEXT>", "a\x1cb", "tab\tand\nline"),
    *("fish &amp; chips", "caf\u00e9 d\u2019\u00e9t\u00e9", "x" * 300, "a_b-c...!!", "3.14 %", "\x1b[31mred", "日本語"),
    " ".join(f"word{number}" for number in range(100)),
)


@pytest.mark.parametrize("clean", ["lower", "whitespace", "canonicalize"])
def test_tokens_are_those_of_open_clip(clean: str) -> None:
    tokenizer = open_clip.SimpleTokenizer(context_length=24, clean=clean)
    letters = "abcXYZ 019'’.,!?<>|&;éß日\t\n\x00\x1b\x1c_-#\u2028\x85 's LL"
    generator = random.Random(0)
    noise = ["".join(generator.choices(letters, k=generator.randrange(60))) for _ in range(2000)]
    words = WordTokenizer(tokenizer)
    for captions in (ODD, noise, ODD):  # the second time from what is kept
        assert torch.equal(words.tokenize(captions), tokenizer(list(captions)))


def test_few_words_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("model.encoding.word_tokens.MOST_WORDS", 10)
    words = WordTokenizer(open_clip.SimpleTokenizer(context_length=24))
    captions = [f"a b{number} c{number} https://example.org/{number:032d}" for number in range(50)]
    assert torch.equal(words.tokenize(captions), words.tokenizer(captions))
    assert 0 < len(words.words) <= 10 and max(map(len, words.words)) < 5
