"""The weights of evidence depend on how clear the pairs of a corpus are; scores without sibling evidence."""

import numpy as np

from auditor.score.statistics.mismatch_statistic import (
    CLEAR_CORPUS_EVIDENCE,
    SIBLING_EVIDENCE,
    WEIGHTS,
    adapt_weights,
    cross_validate,
    estimate_hub_share,
)
from auditor.score.statistics.rivals import ReferenceSample
from auditor.vectors import MediaVectors
from tests.support.pairs import PlantedPairs, make_gap_pairs, make_planted_pairs, normalize_rows


def weights_of(corpus: PlantedPairs) -> dict[str, float]:
    spread = cross_validate(corpus.reference, np.random.default_rng(0), 20_000, 1.0, None).statistic.scales
    return {name: found.weight for name, found in spread.items()}


def related(share: float = 0.5, pairs: int = 600) -> ReferenceSample:
    """Half of the captions describe something related to their medium, half the medium itself; neither is clear."""
    generator = np.random.default_rng(0)
    media = normalize_rows(generator.normal(size=(pairs, 16)))
    off = np.where(generator.random(pairs) < share, 3.2, 1.8)[:, None]
    text = normalize_rows(media + off * normalize_rows(generator.normal(size=media.shape)))
    return ReferenceSample(MediaVectors(media), text, np.arange(pairs), scale=20.0)


def clear(wide: float, rate: float = 0.0, pairs: int = 600) -> ReferenceSample:
    """Captions near their medium, some nearer than others; a share of them is moved to the next medium."""
    generator = np.random.default_rng(0)
    media = normalize_rows(generator.normal(size=(pairs, 64)))
    off = np.exp(wide * generator.normal(size=(pairs, 1)))
    text = normalize_rows(media + off * normalize_rows(generator.normal(size=media.shape)))
    moved = np.flatnonzero(generator.random(pairs) < rate)
    text[moved] = text[np.roll(moved, 1)]
    return ReferenceSample(MediaVectors(media), text, np.arange(pairs), scale=20.0)


def test_a_clear_corpus_has_the_weights_as_they_were_chosen() -> None:
    """Also if the corpus is half random: the other half is clear."""
    for rate in (0.0, 0.5):
        weights = weights_of(PlantedPairs(clear(0.4, rate), np.zeros(600, bool)))
        assert weights["rivals_visual"] == WEIGHTS["rivals_visual"] and weights["rivals_text"] == WEIGHTS["rivals_text"]


def test_if_matched_pairs_are_equally_near_the_similarity_decides() -> None:
    weights = weights_of(PlantedPairs(clear(0.0, 0.2), np.zeros(600, bool)))
    assert weights["similarity"] == 1
    assert 0.6 * WEIGHTS["rivals_text"] < weights["rivals_text"] < 0


def test_rivals_count_less_and_neighbors_more_if_pairs_are_unsure() -> None:
    reference = related()
    weights = weights_of(PlantedPairs(reference, np.zeros(len(reference), bool)))
    assert -0.2 < weights["rivals_text"] < 0
    assert weights["neighbours"] > WEIGHTS["neighbours"] * 0.25  # a mean trust of one half or less
    assert weights["similarity"] == WEIGHTS["similarity"]


def test_rivals_keep_their_weight_across_a_modality_gap() -> None:
    """There, rivals remove the effect of hubs, however unsure the pairs are."""
    corpus = make_gap_pairs(500, 0.2, seed=1, noise=3.0)
    assert estimate_hub_share(corpus.reference, np.zeros(2, np.float32)) == 1.0  # zero variance: never above 1
    assert weights_of(corpus)["rivals_text"] < 0.7 * WEIGHTS["rivals_text"]
    null = np.random.default_rng(0).normal(0, 0.2, 1000).astype(np.float32)
    assert estimate_hub_share(make_planted_pairs(500, 0.2, seed=1).reference, null) < 0.2


def test_only_rivals_and_words_of_siblings_are_weighed_by_clearness() -> None:
    trust, observed = np.full(100, 0.1, np.float32), np.random.default_rng(1).normal(1, 1, 5000).astype(np.float32)
    null = np.random.default_rng(2).normal(0, 1, 5000).astype(np.float32)
    weights = adapt_weights(make_planted_pairs(500, 0.0).reference, trust, observed, null)
    for name, weight in WEIGHTS.items():
        if name in CLEAR_CORPUS_EVIDENCE:
            assert abs(weights[name]) < abs(weight)
        elif name != "neighbours":
            assert weights[name] == weight


def test_scores_without_siblings_exist_only_if_there_are_siblings() -> None:
    generator = np.random.default_rng(0)
    assert cross_validate(make_planted_pairs(100, 0.1).reference, generator, 5000, 1.0, None).without_siblings is None
    validation = cross_validate(make_planted_pairs(100, 0.1, captions=3).reference, generator, 5000, 1.0, None)
    assert validation.without_siblings is not None and any(
        name in validation.statistic.scales for name in SIBLING_EVIDENCE
    )
    assert not np.allclose(validation.without_siblings[0], validation.observed)
