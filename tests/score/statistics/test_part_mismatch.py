"""The probability that some part of a caption is wrong, on planted captions of several parts."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from auditor.research.retrieval.analyses import compute_auroc
from auditor.score.statistics import part_mismatch
from auditor.score.statistics.mismatch import fit_mismatch
from auditor.score.statistics.mismatch_statistic import compute_statistic
from auditor.score.statistics.part_mismatch import (
    PartModel,
    PartScores,
    expand_parts,
    fit_parts,
    iterate_captions,
    judge_captions,
)
from auditor.score.statistics.rivals import ReferenceSample, measure_pairs
from auditor.vectors import Bools, Floats, MediaVectors, PartVectors
from tests.support.pairs import convert_to_video, normalize_rows


@dataclass(frozen=True)
class PlantedParts:
    reference: ReferenceSample
    parts: PartVectors
    partly: Bools  # (N,) one part is that of another medium
    wholly: Bools  # (N,) all parts are

    def judge(self) -> tuple[PartModel, PartScores]:
        p = estimate_p(self.reference)
        model = fit_parts(self.reference, self.parts, p)
        assert model is not None
        return model, judge_captions(self.reference, self.parts, p, model)


def estimate_p(reference: ReferenceSample) -> Floats:
    model = fit_mismatch(reference, bootstraps=0)
    assert model is not None and model.statistic is not None
    return model.p(compute_statistic(model.statistic, reference, measure_pairs(reference, reference)))


def plant_parts(
    count: int = 600,
    *,
    rate: float = 0.2,
    wholly: float = 0.1,
    filler: bool = False,
    seed: int = 0,
    most: int = 6,
    noise: float = 1.2,
) -> PlantedParts:
    """Captions of 2 to `most` parts, which are their medium plus noise. The last part is spoiled, or all of them.

    With `filler`, captions get one more part that is about nothing.
    """
    generator = np.random.default_rng(seed)
    visual = normalize_rows(generator.normal(size=(count, 48)))
    counts = generator.integers(2, most + 1, count)
    order = generator.permutation(count)
    partly, whole = np.zeros(count, bool), np.zeros(count, bool)
    partly[order[: round(rate * count)]] = True
    whole[order[round(rate * count) : round((rate + wholly) * count)]] = True
    about = np.repeat(np.arange(count), counts)
    last = np.cumsum(counts) - 1
    about[last[partly]] = np.roll(about[last[partly]], 1)
    about[whole[about]] = np.repeat(np.roll(np.flatnonzero(whole), 1), counts[whole])
    vectors = normalize_rows(visual[about] + noise * normalize_rows(generator.normal(size=(len(about), 48))))
    if filler:
        phrases = normalize_rows(generator.normal(size=(4, 48)))[generator.integers(0, 4, count)]
        vectors = np.insert(vectors, np.cumsum(counts), normalize_rows(phrases), axis=0)
        counts = counts + 1
    first = np.cumsum(counts) - counts
    text = normalize_rows(np.add.reduceat(vectors, first, axis=0))
    reference = ReferenceSample(MediaVectors(visual), text, np.arange(count), scale=20.0)
    return PlantedParts(reference, PartVectors(vectors.astype(np.float16), counts), partly, whole)


def test_wrong_parts_are_found_named_and_counted() -> None:
    planted = plant_parts()
    _, scores = planted.judge()
    wrong = planted.partly | planted.wholly
    assert compute_auroc(scores.p, wrong) > 0.97
    assert abs(scores.p.mean() - wrong.mean()) < 0.03
    assert (scores.p[~wrong] >= 0.5).mean() < 0.02
    assert (scores.weakest == planted.parts.counts - 1)[planted.partly].mean() > 0.95
    assert (scores.p[planted.wholly] >= estimate_p(planted.reference)[planted.wholly]).all()


def test_of_two_parts_the_right_one_does_not_count_because_the_other_is_wrong() -> None:
    """With sibling evidence, the share of wrong parts is .111."""
    models = [plant_parts(wholly=0, most=2, noise=2.0, seed=seed).judge()[0] for seed in range(3)]
    assert abs(np.mean([model.mismatch.pi0 for model in models]) - 0.1) < 0.006


def test_the_probability_of_a_caption_covers_those_of_its_parts() -> None:
    planted = plant_parts(rate=0.1)
    _, scores = planted.judge()
    starts = np.cumsum(planted.parts.counts) - planted.parts.counts
    highest = np.maximum.reduceat(scores.p_of_parts, starts)
    assert (scores.p >= highest - 1e-6).all()
    assert (scores.p <= np.minimum(1, np.add.reduceat(scores.p_of_parts, starts)) + 1e-6).all()
    named = scores.p_of_parts[starts + scores.weakest.astype(int)]
    np.testing.assert_array_equal(named, highest)


def test_right_captions_have_no_weak_part() -> None:
    _, scores = plant_parts(rate=0, wholly=0).judge()
    assert (scores.p >= 0.5).mean() < 0.01 and scores.p.mean() < 0.02


def test_sentences_that_say_nothing_are_not_held_against_a_caption() -> None:
    planted = plant_parts(filler=True)
    model, scores = planted.judge()
    wrong = planted.partly | planted.wholly
    assert (scores.p[~wrong] >= 0.5).mean() < 0.03
    assert compute_auroc(scores.p, wrong) > 0.95
    assert len(model.reference) < len(model.doubts.p)  # the statistic is fitted without them


def test_blocks_do_not_change_the_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    planted = plant_parts(200)
    model, whole = planted.judge()
    p = estimate_p(planted.reference)
    monkeypatch.setattr(part_mismatch, "BLOCK_PARTS", 30)
    assert len(list(iterate_captions(planted.reference.group, planted.parts.counts))) > 10
    for one, other in zip(judge_captions(planted.reference, planted.parts, p, model), whole, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_captions_with_one_part_have_no_scores() -> None:
    planted = plant_parts(200)
    counts = np.where(np.arange(200) % 3 == 0, 0, planted.parts.counts)
    parts = PartVectors(planted.parts.vectors[np.repeat(counts > 0, planted.parts.counts)], counts)
    p = estimate_p(planted.reference)
    scores = judge_captions(planted.reference, parts, p, fit_parts(planted.reference, parts, p))
    for values in (scores.weakest, scores.similarity, scores.p):
        assert np.array_equal(np.isnan(values), counts == 0)
    assert not np.isnan(scores.p_of_parts).any() and len(scores.p_of_parts) == counts.sum()


def test_without_a_model_only_similarities_are_known() -> None:
    planted = plant_parts(50, rate=0.2, wholly=0)
    few = PartVectors(planted.parts.vectors[: planted.parts.counts[0]], np.array([planted.parts.counts[0]]))
    assert fit_parts(planted.reference, few, np.zeros(1, np.float32)) is None
    scores = judge_captions(planted.reference, planted.parts, np.full(50, np.nan, np.float32), None)
    assert np.isnan(scores.p).all() and np.isnan(scores.p_of_parts).all()
    expanded = expand_parts(planted.reference, planted.parts, np.arange(50))
    cosine = expanded.media.own_similarity(expanded.text)
    starts = np.cumsum(planted.parts.counts) - planted.parts.counts
    np.testing.assert_allclose(scores.similarity, np.minimum.reduceat(cosine, starts), rtol=1e-6)
    np.testing.assert_allclose(cosine[starts + scores.weakest.astype(int)], scores.similarity, rtol=1e-6)


def test_a_caption_without_an_estimate_gives_no_probability() -> None:
    planted = plant_parts(200)
    model, _ = planted.judge()
    p = estimate_p(planted.reference)
    p[5] = np.nan
    scores = judge_captions(planted.reference, planted.parts, p, model)
    assert np.flatnonzero(np.isnan(scores.p)).tolist() == [5]


def test_parts_of_videos_are_judged_by_their_frames() -> None:
    planted = plant_parts(300, wholly=0)
    planted = replace(planted, reference=convert_to_video(planted.reference))
    _, scores = planted.judge()
    assert compute_auroc(scores.p, planted.partly) > 0.95
