"""Groups differ if the encoder sees them unequally, not if they are noisier, small or random."""

from dataclasses import replace

import numpy as np
import pytest

from auditor.score.statistics.group_difference import measure_differences
from auditor.score.statistics.rivals import ReferenceSample
from auditor.vectors import Bools, MediaVectors
from tests.support.pairs import make_planted_pairs, normalize_rows


def move_group(reference: ReferenceSample, members: Bools, strength: float = 1.0) -> ReferenceSample:
    """The pairs of a group with a modality gap: media and captions are moved apart."""
    direction = strength * normalize_rows(np.random.default_rng(9).normal(size=reference.text.shape[1]))
    visual = np.where(members[:, None], normalize_rows(reference.visual + direction), reference.visual)
    text = np.where(members[:, None], normalize_rows(reference.text - direction), reference.text)
    return replace(reference, media=MediaVectors(visual), text=text)


@pytest.mark.parametrize("captions", [1, 5])
def test_random_groups_and_noisier_groups_do_not_differ(captions: int) -> None:
    for seed in range(6):
        corpus = make_planted_pairs(1000 // captions, 0.3, seed=seed, captions=captions)
        group, generator = corpus.reference.group, np.random.default_rng(seed)
        media = generator.permutation(group.max() + 1)
        groups = [np.flatnonzero(np.isin(group, media[: size // captions])) for size in (50, 200, 500)]
        noisy = np.concatenate([np.flatnonzero(corpus.spoiled)[:80], np.flatnonzero(~corpus.spoiled)[:20]])
        assert (measure_differences(corpus.reference, [*groups, noisy]) < 15).all()


@pytest.mark.parametrize(("size", "least"), [(60, 60), (200, 200), (500, 400)])
def test_a_group_with_another_geometry_differs_the_more_the_larger_it_is(size: int, least: float) -> None:
    reference = make_planted_pairs(1000, 0.2).reference
    members = np.arange(1000) < size
    [ratio] = measure_differences(move_group(reference, members), [np.flatnonzero(members)])
    assert ratio > least


def test_captions_of_one_medium_count_once() -> None:
    single = make_planted_pairs(300, 0.1).reference
    members = np.arange(300) < 100
    moved = move_group(single, members)
    twice = np.repeat(np.arange(300), 2)
    repeated = replace(moved, media=moved.media.take(twice), text=moved.text[twice], group=moved.group[twice])
    [once] = measure_differences(moved, [np.flatnonzero(members)])
    [again] = measure_differences(repeated, [np.flatnonzero(members[twice])])
    assert again == pytest.approx(once, rel=0.2)
