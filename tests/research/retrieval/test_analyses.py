"""The analyses against naive versions, and on data with known answers."""

import numpy as np
import pytest
from scipy import stats

from auditor.research.retrieval import analyses
from auditor.research.retrieval.analyses import ItemScores
from auditor.research.retrieval.protocols import PROTOCOLS, average_results, mask_first_captions, score_split
from auditor.research.retrieval.recall import DIRECTIONS, Direction, EmbeddingSet, compute_recall, rank_queries
from auditor.vectors import MediaVectors


def unit(x: np.ndarray) -> np.ndarray:
    return (x / np.linalg.norm(x, axis=-1, keepdims=True)).astype(np.float32)


def noisy_set(media: int = 200, captions: int = 2, seed: int = 0) -> tuple[EmbeddingSet, np.ndarray]:
    """Captions whose distance from their medium grows with its number; also returns the true difficulty."""
    rng = np.random.default_rng(seed)
    visual = unit(rng.normal(size=(media, 24)))
    difficulty = np.linspace(0.1, 4, media)
    owners = np.repeat(np.arange(media), captions)
    text = unit(visual[owners] + difficulty[owners, None] * unit(rng.normal(size=(media * captions, 24))))
    return EmbeddingSet(MediaVectors(visual), text, np.arange(media), owners), difficulty


def oracle_scores(data: EmbeddingSet, difficulty: np.ndarray) -> ItemScores:
    return ItemScores(difficulty, difficulty[data.text_groups])


def test_mean_similarity_is_the_mean_over_others() -> None:
    data, _ = noisy_set(30)
    h = analyses.compute_mean_similarity(data, step=7)
    scores = data.visual.astype(float) @ data.text.T
    for i in range(30):
        assert h.visual[i] == pytest.approx(scores[i][data.text_groups != i].mean(), abs=1e-6)
    for j in range(60):
        assert h.text[j] == pytest.approx(np.delete(scores[:, j], data.text_groups[j]).mean(), abs=1e-6)


def test_pearson_is_scipys() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 50))
    assert analyses.compute_pearson(a, a + b) == pytest.approx(stats.pearsonr(a, a + b).statistic)
    assert np.isnan(analyses.compute_pearson(a, np.ones(50)))


def test_seeds_are_averaged_number_by_number() -> None:
    runs = [{"name": "u", "curve": [{"share": 0.5, "removed": 3, "r": r}]} for r in (1.0, 2.0)]
    assert analyses.average_runs(runs) == {"name": "u", "curve": [{"share": 0.5, "removed": 3, "r": 1.5}]}
    assert analyses.average_runs(runs[:1]) == runs[0]


def test_deviation_is_that_of_a_sample() -> None:
    assert analyses.compute_deviation([1.0, 2.0]) == pytest.approx(np.sqrt(0.5))
    assert np.isnan(analyses.compute_deviation([1.0]))


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_removing_the_truly_hard_beats_random_and_the_reverse_loses(direction: Direction) -> None:
    data, difficulty = noisy_set()
    right = oracle_scores(data, difficulty)
    wrong = ItemScores(-right.visual, -right.text)
    rows = analyses.compute_removal_curve(data, {"right": right, "wrong": wrong}, direction, shares=(0.0, 0.3, 0.6))
    assert rows[0]["right"] == rows[0]["wrong"] == rows[0]["random"] == analyses.compute_recall_at_1(data, direction)
    for row in rows[1:]:
        assert row["right"] > row["random"] + 5 > row["wrong"] + 5
    assert rows[2]["removed"] == 120


def test_removal_by_uncertainty_is_what_a_hand_made_subset_gives() -> None:
    data, difficulty = noisy_set(50)
    row = analyses.compute_removal_curve(data, {"u": oracle_scores(data, difficulty)}, "text_to_visual", shares=(0.4,))[
        0
    ]
    kept = np.arange(30)  # difficulty rises with the number
    by_hand = EmbeddingSet(MediaVectors(data.visual[:30]), data.text[:60], kept, np.repeat(kept, 2))
    assert row["u"] == compute_recall(by_hand).text_to_visual.r1


def test_uncertain_subsets_take_the_hardest_alone() -> None:
    data, difficulty = noisy_set(60)
    better, _ = noisy_set(60, seed=1)
    rows = analyses.compare_uncertain_subsets(
        {"a": data, "b": better}, oracle_scores(data, difficulty), "visual_to_text", [10, 1000]
    )
    assert [row["samples"] for row in rows] == [10, 60]
    by_hand = data.take_groups(np.arange(50, 60))
    assert rows[0]["a"] == compute_recall(by_hand).visual_to_text.r1
    assert rows[1]["b"] == compute_recall(better).visual_to_text.r1


def test_recall_by_bin_falls_with_true_difficulty_and_accounts_for_every_query() -> None:
    data, difficulty = noisy_set(400)
    hit = rank_queries(data, "visual_to_text").hit(1)
    rows = analyses.compute_recall_by_tenth(difficulty, hit)
    assert sum(row["queries"] for row in rows) == 400
    assert rows[0]["recall"] > rows[-1]["recall"] + 40
    assert np.average([r["recall"] for r in rows], weights=[r["queries"] for r in rows]) == pytest.approx(
        100 * hit.mean()
    )


def test_auroc_is_the_share_of_ordered_pairs() -> None:
    rng = np.random.default_rng(0)
    scores, wrong = rng.integers(0, 6, 60).astype(float), rng.integers(0, 2, 60)
    pairs = [(a > b) + (a == b) / 2 for a in scores[wrong == 1] for b in scores[wrong == 0]]
    assert analyses.compute_auroc(scores, wrong) == pytest.approx(np.mean(pairs))
    assert np.isnan(analyses.compute_auroc(scores, np.zeros(60)))


def test_falling_fit_is_the_best_non_increasing_one() -> None:
    rng = np.random.default_rng(0)
    x = np.arange(40.0)
    y = np.exp(-x / 20) + rng.normal(0, 0.3, 40)
    knots, values = analyses.fit_decreasing(x, y)
    fitted = values[np.searchsorted(knots, x)]
    assert (np.diff(fitted) <= 1e-12).all()
    # optimality: moving any block's level, or any other non-increasing candidate, costs more
    loss = ((fitted - y) ** 2).sum()
    for _ in range(200):
        other = np.sort(fitted + rng.normal(0, 0.05, 40))[::-1]
        assert ((other - y) ** 2).sum() >= loss
    assert fitted.mean() == pytest.approx(y.mean())


def test_calibration_tells_a_telling_score_from_noise() -> None:
    rng = np.random.default_rng(0)
    u = rng.random(4000)
    hit = (rng.random(4000) < 1 - u).astype(float)
    telling = analyses.calibrate_recall(u, hit)
    assert telling["auroc"] > 0.8 and telling["expected_error"] < 0.06
    assert telling["brier"] < telling["brier_constant"] - 0.05
    noise = analyses.calibrate_recall(rng.random(4000), hit)
    assert abs(noise["auroc"] - 0.5) < 0.04 and noise["brier"] > telling["brier"] + 0.05


def test_a_single_query_is_calibrated_on_itself() -> None:
    single = analyses.calibrate_recall(np.array([0.3]), np.array([1.0]))
    assert single["brier"] == single["brier_constant"] == 0 and np.isnan(single["auroc"])


def test_first_captions_in_any_order() -> None:
    owners = np.array([3, 1, 3, 1, 3, 2, 1])
    assert mask_first_captions(owners, 2).tolist() == [True, True, True, True, False, True, False]
    assert mask_first_captions(owners, None).all()


def test_coco_folds_are_1000_by_5000_and_averaged(monkeypatch: pytest.MonkeyPatch) -> None:
    data, _ = noisy_set(2000, captions=5)
    results = score_split(PROTOCOLS["coco"], data)
    assert list(results) == ["COCO 2K", "COCO 1K"]
    folds = [compute_recall(data.take_groups(np.arange(i * 1000, (i + 1) * 1000))) for i in range(2)]
    assert results["COCO 1K"] == average_results(folds)
    assert folds[0].text_to_visual.queries == 5000
    assert results["COCO 1K"].rsum == pytest.approx((folds[0].rsum + folds[1].rsum) / 2)


def test_weights_travel_with_the_folds() -> None:
    data, _ = noisy_set(2000, captions=1)
    rng = np.random.default_rng(0)
    weights = rng.random(2000), rng.random(2000)
    halves = [np.arange(1000), np.arange(1000, 2000)]
    parts = [compute_recall(data.take_groups(h).reweight(weights[0][h], weights[1][h])) for h in halves]
    assert score_split(PROTOCOLS["coco"], data.reweight(*weights))["COCO 1K"] == average_results(parts)


def test_msvd_reports_both_counts() -> None:
    data, _ = noisy_set(40, captions=7)
    results = score_split(PROTOCOLS["msvd"], data)
    assert results["test"].visual_to_text.mean_rank < results["test, all sentences"].visual_to_text.mean_rank
    assert results["test"].text_to_visual == results["test, all sentences"].text_to_visual
