"""Re-ranking: equation 8, a fit that helps on unseen data, and no way to fit on the reported split."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from auditor.research.retrieval.analyses import ItemScores
from auditor.research.retrieval.recall import Array, EmbeddingSet, RetrievalError, RetrievalResult, compute_recall
from auditor.research.retrieval.rerank import BETAS, Rerank, fit_beta
from auditor.vectors import MediaVectors
from tests.support.similarity_recall import recall_from_similarity


@dataclass(frozen=True)
class Split:
    """A split with these similarities: captions are unit vectors, and media the similarities to them."""

    keys: list[str]
    similarity: Array  # (N, M)
    u: ItemScores
    owners: Array  # (M,)

    @property
    def data(self) -> EmbeddingSet:
        media = MediaVectors(self.similarity)
        return EmbeddingSet(media, np.eye(self.similarity.shape[1]), np.arange(len(self.keys)), self.owners)

    def fit(self, betas: Sequence[float] = BETAS, collapse_texts: bool = False) -> Rerank:
        return fit_beta(self.keys, self.data, self.u, betas, collapse_texts=collapse_texts)

    def recall(self, beta_visual: float = 0.0, beta_text: float = 0.0) -> RetrievalResult:
        return compute_recall(Rerank(beta_visual, beta_text, frozenset()).apply([], self.data, self.u))

    def r1(self, beta_visual: float = 0.0, beta_text: float = 0.0) -> tuple[float, float]:
        """R@1 of captions, which beta_visual changes, and of media."""
        result = self.recall(beta_visual, beta_text)
        return result.text_to_visual.r1, result.visual_to_text.r1


def hubby_split(seed: int, prefix: str, count: int = 120) -> Split:
    """Media and captions, some of which are hubs: too similar to everything, and with a high uncertainty."""
    generator = np.random.default_rng(seed)
    u_visual, u_text = generator.random(count), generator.random(count)
    similarity = 0.3 + 0.05 * generator.standard_normal((count, count)) + 0.12 * np.eye(count)
    similarity = similarity * np.exp(0.4 * u_visual)[:, None] * np.exp(0.6 * u_text)[None, :]
    keys = [f"{prefix}{index}" for index in range(count)]
    return Split(keys, similarity, ItemScores(u_visual, u_text), np.arange(count))


def test_equation_8_as_printed() -> None:
    split = hubby_split(0, "a", count=4)
    weighted = Rerank(0.3, 0.7, frozenset()).apply([], split.data, split.u).scores()
    i, j = 2, 1
    expected = np.exp(-0.3 * split.u.visual[i]) * np.exp(-0.7 * split.u.text[j])
    assert weighted[i, j] == pytest.approx(expected * split.similarity[i, j], rel=1e-6)


def test_beta_of_a_validation_split_helps_another_split() -> None:
    rerank = hubby_split(1, "val").fit()
    assert 0.2 <= rerank.beta_visual <= 0.7 and 0.3 <= rerank.beta_text <= 0.9
    test = hubby_split(2, "test")
    before, after = test.r1(), test.r1(rerank.beta_visual, rerank.beta_text)
    assert after[0] > before[0] + 5 and after[1] > before[1] + 5


def test_the_two_searches_find_the_best_of_the_whole_grid() -> None:
    split, grid = hubby_split(3, "val", count=40), (0.0, 0.2, 0.4, 0.6, 0.8)
    rerank = split.fit(grid)
    chosen = sum(split.r1(rerank.beta_visual, rerank.beta_text))
    assert chosen == pytest.approx(max(sum(split.r1(v, t)) for v in grid for t in grid))


def test_without_any_use_beta_is_zero() -> None:
    flat = replace(hubby_split(4, "val", count=30), u=ItemScores(np.full(30, 0.5), np.full(30, 0.5)))
    assert (flat.fit().beta_visual, flat.fit().beta_text) == (0.0, 0.0)


def test_beta_of_a_random_uncertainty_is_zero() -> None:
    """In 36 of 40 searches at least; the beta with the most hits alone is above 0 in many more than 4."""
    split, grid = hubby_split(8, "val", count=60), BETAS[:11]
    by_chance, significant = 0, 0
    for seed in range(20):
        u = np.random.default_rng(seed).random((2, 60))
        useless = replace(split, u=ItemScores(u[0], u[1]))
        rerank, plain = useless.fit(grid), useless.r1()
        significant += (rerank.beta_visual > 0) + (rerank.beta_text > 0)
        recalls = [useless.r1(beta, beta) for beta in grid]
        by_chance += sum(max(r1) > r1_plain for r1, r1_plain in zip(zip(*recalls, strict=True), plain, strict=True))
    assert significant <= 4 < by_chance


def test_each_direction_has_its_own_beta() -> None:
    split = hubby_split(9, "val")
    rerank = replace(split, u=ItemScores(split.u.visual, np.full(120, 0.5))).fit()
    assert rerank.beta_visual > 0 and rerank.beta_text == 0


def test_recall_on_validation_is_never_below_the_unranked_one() -> None:
    """Also if the caller's betas do not have 0, and if certain items are called uncertain."""
    split = hubby_split(10, "val")
    wrong_way = replace(split, u=ItemScores(1 - split.u.visual, 1 - split.u.text))
    for case in (split, wrong_way):
        rerank = case.fit((0.5, 1.0))
        before, after = case.r1(), case.r1(rerank.beta_visual, rerank.beta_text)
        assert after[0] >= before[0] and after[1] >= before[1]
    assert (rerank.beta_visual, rerank.beta_text) == (0.0, 0.0)


def test_beta_is_fitted_on_the_count_that_is_reported() -> None:
    """Of each two media, the first ties with the second for every beta; only the number of tied sentences changes."""
    block, count = np.array([[0.5, 0.4, 0.5, 0.5, 0.4], [0.1, 0.1, 0.9, 0.9, 0.9]]), 50
    u_text = np.tile([1.0, 0.0, 1.0, 1.0, 0.0], count)
    owners = (np.array([0, 0, 1, 1, 1]) + 2 * np.arange(count)[:, None]).ravel()
    keys = [str(number) for number in range(2 * count)]
    split = Split(keys, np.kron(np.eye(count), block), ItemScores(np.zeros(2 * count), u_text), owners)
    assert split.fit((0.0, 1.0)).beta_text == 1.0  # one tied sentence instead of two
    for beta in (0.0, 1.0):
        scores = split.similarity * np.exp(-beta * u_text)
        assert recall_from_similarity(scores, owners, collapse_texts=True).visual_to_text.r1 == pytest.approx(75.0)
    assert split.fit((0.0, 1.0), collapse_texts=True).beta_text == 0.0


def test_the_reported_split_cannot_be_the_one_beta_was_fitted_on() -> None:
    split = hubby_split(5, "val")
    rerank = split.fit()
    with pytest.raises(RetrievalError, match="120 media are in the validation and the test split"):
        rerank.apply(split.keys, split.data, split.u)
    with pytest.raises(RetrievalError, match=r"1 media .* such as val7"):
        rerank.apply(["val7", *(f"test{index}" for index in range(119))], split.data, split.u)


def test_reranked_embeddings_have_the_scores_of_equation_8() -> None:
    """Also those of videos, and the recall of scaled vectors is that of scaled scores."""
    generator = np.random.default_rng(0)
    visual, text, frames = (generator.normal(size=s).astype(np.float32) for s in ((9, 6), (18, 6), (9, 3, 6)))
    owners, mask = np.repeat(np.arange(9), 2), generator.random((9, 3)) < 0.7
    u = ItemScores(generator.random(9), generator.random(18))
    for media in (MediaVectors(visual), MediaVectors(visual, frames, mask)):
        data = EmbeddingSet(media, text, np.arange(9), owners)
        weighted = Rerank(0.4, 1.1, frozenset()).apply([], data, u)
        scores = data.scores() * np.exp(-0.4 * u.visual)[:, None] * np.exp(-1.1 * u.text)
        np.testing.assert_allclose(weighted.scores(), scores, rtol=1e-5, atol=1e-6)
        assert compute_recall(weighted) == recall_from_similarity(scores, owners)


def test_input_that_does_not_fit_is_refused() -> None:
    split = hubby_split(7, "a", count=3)
    for wrong in (
        replace(split, keys=["a", "a", "b"]),
        replace(split, u=ItemScores(split.u.visual, np.zeros(2))),
        replace(split, u=ItemScores(np.zeros(4), split.u.text)),
    ):
        with pytest.raises(RetrievalError, match="3 media and 3 captions need unique keys and uncertainties"):
            wrong.fit()
    with pytest.raises(RetrievalError, match=">= 0"):
        split.fit([-0.1])


def test_reranked_similarities_of_the_released_program(shared: Path) -> None:
    """The released program with its own betas, which it fitted on the test set, gives the same equation."""
    data = np.load(shared / "oracle" / "itm_eval_f30kstyle_60img.npz")
    u = ItemScores(data["vu"][:, 0], data["tu"][:, 0])
    split = Split([str(index) for index in range(60)], data["sim_plain"], u, np.arange(300) // 5)
    betas = float(data["beta_v"]), float(data["beta_t"])
    weighted = Rerank(*betas, frozenset()).apply([], split.data, u).scores()
    np.testing.assert_allclose(weighted, data["sim_rerank"], rtol=1e-6)
    assert split.r1(*betas) == pytest.approx((float(data["rerank__t2i_R1"]), float(data["rerank__i2t_R1"])), abs=1e-4)
