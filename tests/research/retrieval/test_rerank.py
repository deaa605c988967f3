"""Re-ranking: equation 8, a fit that helps on unseen data, and no way to fit on the reported split."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from auditor.research.retrieval.analyses import ItemScores
from auditor.research.retrieval.recall import EmbeddingSet, compute_recall
from auditor.research.retrieval.rerank import BETAS, Rerank, RerankError, RetrievalSplit, fit_beta
from auditor.vectors import MediaVectors
from tests.support.similarity_recall import recall_from_similarity


def hubby_split(seed: int, prefix: str, count: int = 120) -> RetrievalSplit:
    """Media and captions, some of which are hubs: too similar to everything, and with a high uncertainty."""
    generator = np.random.default_rng(seed)
    u_visual, u_text = generator.random(count), generator.random(count)
    similarity = 0.3 + 0.05 * generator.standard_normal((count, count)) + 0.12 * np.eye(count)
    similarity = similarity * np.exp(0.4 * u_visual)[:, None] * np.exp(0.6 * u_text)[None, :]
    keys = [f"{prefix}{index}" for index in range(count)]
    return RetrievalSplit(keys, similarity, ItemScores(u_visual, u_text), np.arange(count))


def test_equation_8_as_printed() -> None:
    split = hubby_split(0, "a", count=4)
    found = split.reweight(0.3, 0.7)
    i, j = 2, 1
    expected = np.exp(-0.3 * split.u.visual[i]) * np.exp(-0.7 * split.u.text[j])
    assert found[i, j] == pytest.approx(expected * split.similarity[i, j])


def test_beta_of_a_validation_split_helps_another_split() -> None:
    rerank = fit_beta(hubby_split(1, "val"))
    test = hubby_split(2, "test")
    after = test.reweight(rerank.beta_visual, rerank.beta_text)
    assert 0.2 <= rerank.beta_visual <= 0.7 and 0.3 <= rerank.beta_text <= 0.9
    assert test.text_queries(after).mean() > test.text_queries(test.similarity).mean() + 0.05
    assert test.visual_queries(after).mean() > test.visual_queries(test.similarity).mean() + 0.05


def test_the_two_searches_find_the_best_of_the_whole_grid() -> None:
    split, grid = hubby_split(3, "val", count=40), (0.0, 0.2, 0.4, 0.6, 0.8)
    rerank = fit_beta(split, grid)

    def mean_r1(beta_visual: float, beta_text: float) -> float:
        scores = split.reweight(beta_visual, beta_text)
        return float(split.text_queries(scores).mean() + split.visual_queries(scores).mean()) / 2

    assert mean_r1(rerank.beta_visual, rerank.beta_text) == max(mean_r1(v, t) for v in grid for t in grid)


def test_without_any_use_beta_is_zero() -> None:
    split = hubby_split(4, "val", count=30)
    flat = replace(split, u=ItemScores(np.full(30, 0.5), np.full(30, 0.5)))
    assert (fit_beta(flat).beta_visual, fit_beta(flat).beta_text) == (0.0, 0.0)


def test_beta_of_a_random_uncertainty_is_zero() -> None:
    """In 36 of 40 searches at least; the beta with most hits alone is above 0 in many more than 4."""
    split = hubby_split(8, "val", count=60)
    by_chance, significant = 0, 0
    for seed in range(20):
        u = np.random.default_rng(seed).random((2, 60))
        useless = replace(split, u=ItemScores(u[0], u[1]))
        rerank = fit_beta(useless)
        significant += (rerank.beta_visual > 0) + (rerank.beta_text > 0)
        by_chance += has_gain(useless, BETAS)
    assert significant <= 4 < by_chance


def has_gain(split: RetrievalSplit, betas: Sequence[float]) -> int:
    """Directions, of two, in which some beta has more hits than 0."""
    by_text = [split.text_queries(split.reweight(beta, 0.0)).sum() for beta in (0.0, *betas)]
    by_medium = [split.visual_queries(split.reweight(0.0, beta)).sum() for beta in (0.0, *betas)]
    return sum(max(hits) > hits[0] for hits in (by_text, by_medium))


def test_each_direction_has_its_own_beta() -> None:
    split = hubby_split(9, "val")
    one_sided = replace(split, u=ItemScores(split.u.visual, np.full(120, 0.5)))
    rerank = fit_beta(one_sided)
    assert rerank.beta_visual > 0 and rerank.beta_text == 0


def test_recall_on_validation_is_never_below_the_unranked_one() -> None:
    """Also if the caller's betas do not have 0, and if certain items are called uncertain."""
    split = hubby_split(10, "val")
    wrong_way = replace(split, u=ItemScores(1 - split.u.visual, 1 - split.u.text))
    for case in (split, wrong_way):
        rerank = fit_beta(case, (0.5, 1.0))
        after = case.reweight(rerank.beta_visual, rerank.beta_text)
        assert case.text_queries(after).mean() >= case.text_queries(case.similarity).mean()
        assert case.visual_queries(after).mean() >= case.visual_queries(case.similarity).mean()
    assert (rerank.beta_visual, rerank.beta_text) == (0.0, 0.0)


def test_beta_is_fitted_on_the_count_that_is_reported() -> None:
    """Of each two media, the first ties with the second for every beta; only the number of tied sentences changes."""
    twice, count = np.array([[0.5, 0.4, 0.5, 0.5, 0.4], [0.1, 0.1, 0.9, 0.9, 0.9]]), 50
    similarity = np.kron(np.eye(count), twice)
    u_text = np.tile([1.0, 0.0, 1.0, 1.0, 0.0], count)
    owners = (np.array([0, 0, 1, 1, 1]) + 2 * np.arange(count)[:, None]).ravel()
    split = RetrievalSplit(
        [str(i) for i in range(2 * count)], similarity, ItemScores(np.zeros(2 * count), u_text), owners
    )
    assert fit_beta(split, (0.0, 1.0)).beta_text == 1.0  # one tied sentence instead of two
    collapsed = replace(split, collapse_texts=True)
    for beta in (0.0, 1.0):
        scores = split.reweight(0.0, beta)
        reported = recall_from_similarity(scores, owners, collapse_texts=True).visual_to_text.r1
        assert 100 * collapsed.visual_queries(scores).mean() == pytest.approx(reported) == pytest.approx(75.0)
    assert fit_beta(collapsed, (0.0, 1.0)).beta_text == 0.0


def test_the_reported_split_cannot_be_the_one_beta_was_fitted_on() -> None:
    split = hubby_split(5, "val")
    data = EmbeddingSet(MediaVectors(np.eye(120, dtype=np.float32)), np.eye(120), np.arange(120), np.arange(120))
    rerank = fit_beta(split)
    with pytest.raises(RerankError, match="120 media are in the validation and the test split"):
        rerank.apply(split.keys, data, split.u)
    with pytest.raises(RerankError, match=r"1 media .* such as val7"):
        rerank.apply(["val7", *(f"test{index}" for index in range(119))], data, split.u)


def test_reranked_embeddings_have_the_scores_of_equation_8() -> None:
    """Also those of videos, and the recall of scaled vectors is that of scaled scores."""
    generator = np.random.default_rng(0)
    visual, text, frames = (generator.normal(size=s).astype(np.float32) for s in ((9, 6), (18, 6), (9, 3, 6)))
    owners, mask = np.repeat(np.arange(9), 2), generator.random((9, 3)) < 0.7
    u = ItemScores(generator.random(9), generator.random(18))
    for media in (MediaVectors(visual), MediaVectors(visual, frames, mask)):
        data = EmbeddingSet(media, text, np.arange(9), owners)
        weighted = Rerank(0.4, 1.1, frozenset()).apply([], data, u)
        scores = RetrievalSplit([str(i) for i in range(9)], data.scores(), u, owners).reweight(0.4, 1.1)
        np.testing.assert_allclose(weighted.scores(), scores, rtol=1e-5, atol=1e-6)
        assert compute_recall(weighted) == recall_from_similarity(scores, owners)


def test_shapes_that_do_not_fit_are_refused() -> None:
    split = hubby_split(7, "a", count=3)
    with pytest.raises(RerankError, match="keys"):
        replace(split, keys=["a", "b"])
    with pytest.raises(RerankError, match="captions"):
        replace(split, u=ItemScores(split.u.visual, np.zeros(2)))
    with pytest.raises(RerankError, match="unique"):
        replace(split, keys=["a", "a", "b"])
    with pytest.raises(RerankError, match=">= 0"):
        fit_beta(split, [-0.1])


def test_reranked_similarities_of_the_released_program(shared: Path) -> None:
    """The released program with its own betas, which it fitted on the test set, gives the same equation."""
    data = np.load(shared / "oracle" / "itm_eval_f30kstyle_60img.npz")
    owners = np.arange(300) // 5
    names = [str(index) for index in range(60)]
    split = RetrievalSplit(names, data["sim_plain"], ItemScores(data["vu"][:, 0], data["tu"][:, 0]), owners)
    found = split.reweight(float(data["beta_v"]), float(data["beta_t"]))
    np.testing.assert_allclose(found, data["sim_rerank"], atol=1e-9)
    assert 100 * split.text_queries(found).mean() == pytest.approx(float(data["rerank__t2i_R1"]), abs=1e-4)
    assert 100 * split.visual_queries(found).mean() == pytest.approx(float(data["rerank__i2t_R1"]), abs=1e-4)
