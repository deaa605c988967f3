"""Word evidence: the weakest word is found, and captions without separate words have no word evidence."""

from dataclasses import replace

import numpy as np
import pytest

from auditor.score.statistics.mismatch import fit_mismatch
from auditor.score.statistics.mismatch_statistic import compute_statistic
from auditor.score.statistics.rivals import measure_pairs
from auditor.score.statistics.word_evidence import (
    CorpusWords,
    Vocabulary,
    WordFrequencies,
    content_words,
    encode_words,
    fit_word_scale,
    look_up_words,
)
from tests.support.pairs import make_planted_pairs, normalize_rows


def test_content_words_name_something_and_come_once() -> None:
    assert content_words("A dog, the DOG and 3 cats on_the-beach!") == ["dog", "cats", "beach"]
    assert content_words("") == [] and content_words("of the and 12 !?") == []


def test_very_frequent_words_are_not_informative() -> None:
    captions = [f"photo of {word}" for word in ("cat", "dog", "bird", "fish", "dog")]
    informative = WordFrequencies.count(captions).informative_words()
    assert informative == ["cat", "bird", "fish"]  # not "photo", and not "dog", which two of five contain


def test_the_word_least_like_the_medium_is_the_weakest() -> None:
    dim = 16
    generator = np.random.default_rng(0)
    vectors = np.eye(3, dim, dtype=np.float32)  # dog, beach, guitar
    media = normalize_rows(np.stack([vectors[0] + vectors[1], vectors[2], *generator.normal(size=(60, dim))]))
    words = CorpusWords.fit(Vocabulary(("dog", "beach", "guitar"), vectors), media, None)
    rows = look_up_words(["a dog with a guitar on the beach", "a guitar", "nothing known"], words.index)
    found = words.find_weakest(rows, media, words.media_scale, np.zeros(3, np.int64))
    assert words.names[found.word[0]] == "guitar" and found.gap[0] < 0 and found.support[0] < 0
    assert found.word[1:].tolist() == [-1, -1] and np.isnan(found.gap[1:]).all()  # one word: nothing to compare with
    z = (media[0] @ vectors.T - words.media_scale.mean) / words.media_scale.deviation
    assert found.gap[0] == pytest.approx(z[2] - z.mean(), rel=1e-4)


def test_scales_in_blocks_are_those_of_the_whole() -> None:
    words, media = normalize_rows(np.random.default_rng(0).normal(size=(2, 50, 8)))
    whole = fit_word_scale(words, media)
    parts = fit_word_scale(words, media, step=7)
    assert np.allclose(whole.mean, parts.mean) and np.allclose(whole.deviation, parts.deviation)


@pytest.mark.parametrize("caption", ["一只狗在公园里接飞盘", "собака", "", "犬 が 走る", "12 !?"])
def test_captions_without_separate_words_are_scored_as_without_a_vocabulary(caption: str) -> None:
    """Scripts without spaces, one word, no letters: there is no word evidence and nothing fails."""
    corpus = make_planted_pairs(60, 0.2).reference
    strange = replace(corpus, captions=[caption] * len(corpus))
    generator = np.random.default_rng(0)
    vocabulary = encode_words(
        dict.fromkeys(content_words(caption) or ["dog"]),
        lambda texts: normalize_rows(generator.normal(size=(len(texts), 24))),
    )
    found = measure_pairs(strange, strange)
    with_words, without = fit_mismatch(strange, words=vocabulary, bootstraps=0), fit_mismatch(corpus, bootstraps=0)
    assert with_words is not None and without is not None and with_words.statistic and without.statistic
    assert np.isfinite(compute_statistic(with_words.statistic, strange, found)).all()
    if len(content_words(caption)) < 2:
        assert np.allclose(
            compute_statistic(with_words.statistic, strange, found),
            compute_statistic(without.statistic, corpus, found),
            atol=1e-4,
        )
