"""Copies of a medium do not decide p_mismatch, neither by different captions nor by equal ones."""

import numpy as np
import pytest

from auditor.score.statistics.mismatch import fit_mismatch
from auditor.score.statistics.mismatch_statistic import compute_statistic
from auditor.score.statistics.rivals import ReferenceSample, measure_pairs
from auditor.score.statistics.siblings import collect_siblings
from auditor.vectors import Floats, Ints, MediaVectors
from tests.support.pairs import normalize_rows

PAIRS = 500
SHARES = [1 / PAIRS, 0.01, 0.05, 0.2, 0.6]


@pytest.fixture(scope="module")
def corpus() -> tuple[Floats, Floats, Floats]:
    """Media, their captions, and captions of the same media by a second annotator."""
    generator = np.random.default_rng(0)
    visual = normalize_rows(generator.normal(size=(PAIRS, 32)))
    first, second = (normalize_rows(visual + 1.2 * normalize_rows(generator.normal(size=visual.shape))) for _ in "ab")
    return visual, first, second


def judge(visual: Floats, text: Floats, group: Ints) -> Floats:
    media = MediaVectors(np.ascontiguousarray(visual))
    reference = ReferenceSample(media, text, group, siblings=collect_siblings(group, media, text), scale=20.0)
    model = fit_mismatch(reference, bootstraps=0)
    assert model is not None and model.statistic is not None
    return model.p(compute_statistic(model.statistic, reference, measure_pairs(reference, reference)))


def copy_pairs(visual: Floats, text: Floats, copied: Ints, captions: Floats) -> Floats:
    group = np.concatenate([np.arange(PAIRS), copied])
    return judge(np.concatenate([visual, visual[copied]]), np.concatenate([text, captions]), group)


def choose(share: float) -> Ints:
    return np.random.default_rng(3).permutation(PAIRS)[: max(1, round(PAIRS * share))]


@pytest.mark.parametrize("share", SHARES)
def test_right_captions_of_copies_do_not_make_each_other_suspicious(
    corpus: tuple[Floats, Floats, Floats], share: float
) -> None:
    visual, first, second = corpus
    copied = choose(share)
    for captions in (first[copied], second[copied]):  # equal and different
        p = copy_pairs(visual, first, copied, captions)
        assert (p > 0.5).mean() <= 0.01 and np.median(p) < 0.02


@pytest.mark.parametrize("share", SHARES)
def test_a_wrong_caption_does_not_vouch_for_its_own_copy(corpus: tuple[Floats, Floats, Floats], share: float) -> None:
    visual, first, _ = corpus
    copied = choose(share)
    wrong = first.copy()
    wrong[copied] = np.roll(first, PAIRS // 2, axis=0)[copied]
    alone = judge(visual, wrong, np.arange(PAIRS))
    p = copy_pairs(visual, wrong, copied, wrong[copied])
    assert np.median(p[copied]) >= min(np.median(alone[copied]), 0.5) - 0.05
    assert np.allclose(p[copied], p[PAIRS:], atol=1e-3)


def test_few_siblings_hardly_change_the_scores_of_other_pairs(corpus: tuple[Floats, Floats, Floats]) -> None:
    visual, first, second = corpus
    copied, group = choose(0.02), np.arange(PAIRS)
    alone, beside = judge(visual, first, group), copy_pairs(visual, first, copied, second[copied])
    others = np.setdiff1d(group, copied)
    assert np.abs(alone[others] - beside[others]).max() < 0.1


def test_repeated_siblings_count_once() -> None:
    text = np.eye(4, dtype=np.float32)[[0, 1, 1, 2, 0]]
    siblings = collect_siblings(np.zeros(5, np.int64), MediaVectors(np.ones((5, 4), np.float32) / 2), text)
    assert siblings is not None
    for row, others in {0: [1, 3], 1: [0, 3], 2: [0, 3], 3: [0, 1], 4: [1, 3]}.items():
        found = sorted(
            {int(np.flatnonzero((text == text[sibling]).all(1))[0]) for sibling in siblings.row[siblings.owner == row]}
        )
        assert found == others and len(siblings.row[siblings.owner == row]) == 2
