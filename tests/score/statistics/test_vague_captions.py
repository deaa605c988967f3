"""Vague captions are recognized by examples, in any space, and nothing else is taken for one."""

import numpy as np

from auditor.score.example_captions import FOREIGN_CAPTIONS, group_examples
from auditor.score.statistics.vague_captions import LINE, estimate_accuracy, fit_vague_captions
from auditor.vectors import Floats
from tests.support.pairs import normalize_rows

DIM = 48


class Space:
    """A space in which each kind of caption has a direction of its own, with noise."""

    def __init__(self, seed: int = 0) -> None:
        self.generator = np.random.default_rng(seed)

    def draw(self, direction: int, count: int, strength: float = 1.0) -> Floats:
        center = strength * np.eye(DIM)[direction]
        return normalize_rows(center + 0.15 * self.generator.normal(size=(count, DIM))).astype(np.float32)

    def examples(self) -> dict[str, Floats]:
        return {"clear": self.draw(1, 60), "non-caption": self.draw(2, 25), "foreign": self.draw(3, 30)}


def test_vague_captions_are_told_from_the_corpus_and_from_other_oddities() -> None:
    space = Space()
    corpus = np.concatenate([space.draw(4, 400), space.draw(0, 20)])
    model = fit_vague_captions(corpus, space.draw(0, 100), space.examples())
    assert model is not None
    is_vague = model.measure(corpus) >= LINE
    assert is_vague[400:].all() and not is_vague[:400].any()
    assert not (model.measure(np.concatenate([space.draw(2, 20), space.draw(3, 20)])) >= LINE).any()


def test_a_corpus_full_of_vague_captions_is_no_yardstick() -> None:
    space = Space(1)
    corpus = np.concatenate([space.draw(4, 100), space.draw(0, 300)])
    model = fit_vague_captions(corpus, space.draw(0, 100), space.examples())
    assert model is not None
    is_vague = model.measure(corpus) >= LINE
    assert is_vague[100:].mean() > 0.98 and not is_vague[:100].any()


def test_a_long_caption_is_less_vague_than_its_vector() -> None:
    space = Space(4)
    model, vague = fit_vague_captions(space.draw(4, 50), space.draw(0, 100), space.examples()), space.draw(0, 3)
    assert model is not None
    words = np.array([3, 8, 16], np.float32)
    np.testing.assert_allclose(model.measure(vague, words), model.measure(vague) * [1, 1, 0.5], rtol=1e-5)


def test_an_encoder_that_cannot_tell_the_examples_apart_gives_no_answer() -> None:
    space = Space(2)
    vague, others = space.draw(0, 100, strength=0), {kind: space.draw(0, 50, strength=0) for kind in space.examples()}
    assert estimate_accuracy(vague, others) < 0.7
    assert fit_vague_captions(space.draw(4, 50), vague, others) is None


def test_tiny_corpora_can_be_fitted() -> None:
    space = Space(3)
    for count in (0, 1, 2):
        model = fit_vague_captions(space.draw(4, count), space.draw(0, 100), space.examples())
        assert model is not None and np.isfinite(model.measure(space.draw(4, 5))).all()


def test_the_examples_are_distinct_and_foreign_ones_follow_the_corpus() -> None:
    kinds = group_examples()
    captions = [caption.lower() for group in kinds.values() for caption in group]
    assert len(set(captions)) == len(captions) and min(map(len, kinds.values())) >= 20
    without_german = group_examples({"de", None})["foreign"]
    assert set(kinds["foreign"]) - set(without_german) == set(FOREIGN_CAPTIONS["de"])
