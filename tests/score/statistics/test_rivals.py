"""Measures of pairs compared with naive versions, the exclusion of the own group, and videos."""

from dataclasses import replace

import numpy as np
import pytest

from auditor import vectors
from auditor.score.statistics import rivals
from auditor.score.statistics.rivals import PairEmbeddings, ReferenceSample, estimate_frame_threshold, measure_pairs
from auditor.vectors import MediaVectors
from tests.support.pairs import convert_to_video, make_planted_pairs


def naive_measures(ref: ReferenceSample, row: int) -> dict[str, float]:
    """One pair against every reference pair of another group, in double precision."""
    apart = ref.group != ref.group[row]

    def similarity(i: int, j: int) -> float:
        whole = float(ref.visual[i].astype(np.float64) @ ref.text[j])
        if ref.media.frames is None or ref.media.mask is None:
            return whole
        return (whole + float((ref.media.frames[i][ref.media.mask[i]] @ ref.text[j]).max())) / 2

    of_visual = np.array([similarity(row, j) for j in np.flatnonzero(apart)])
    of_text = np.array([similarity(i, row) for i in np.flatnonzero(apart)])

    def level(values: np.ndarray, scale: float) -> float:
        return float(np.log(np.mean(np.exp(scale * values))) / scale)

    def matches(values: np.ndarray) -> float:
        p = np.exp(ref.scale * values) / np.exp(ref.scale * values).sum()
        return float(np.exp(-(p * np.log(p)).sum()) / len(values) * len(ref))

    own = similarity(row, row)
    everyone = range(len(ref))  # the reference is the whole corpus: the own partner is a match
    return {
        "similarity": own,
        "similarity_normalised": own - (level(of_visual, ref.scale) + level(of_text, ref.scale)) / 2,
        "rival_margin": own - rivals.RIVAL_WEIGHT * (level(of_visual, 2 * ref.scale) + level(of_text, 2 * ref.scale)),
        "matches_visual": matches(np.array([similarity(row, j) for j in everyone])),
        "matches_text": matches(np.array([similarity(i, row) for i in everyone])),
        "better_captions": float((of_visual > own + 1e-5).mean()),
        "better_media": float((of_text > own + 1e-5).mean()),
    }


def test_a_temperature_changes_only_negclip_loss() -> None:
    ref = make_planted_pairs(20, 0.2, captions=2).reference
    plain, own, warm = (measure_pairs(ref, replace(ref, temperature=t)) for t in (None, 1 / ref.scale, 0.3))
    np.testing.assert_allclose(own.similarity_normalised, plain.similarity_normalised, atol=1e-5)
    naive = [naive_measures(replace(ref, scale=1 / 0.3), row)["similarity_normalised"] for row in range(len(ref))]
    np.testing.assert_allclose(warm.similarity_normalised, naive, rtol=2e-4, atol=2e-5)
    for name in ("matches_text", "rival_margin", "better_media"):
        np.testing.assert_array_equal(getattr(warm, name), getattr(plain, name))


@pytest.mark.parametrize("video", [False, True])
@pytest.mark.parametrize("block", [64, 1 << 21])
def test_measures_equal_naive_ones(video: bool, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rivals, "BLOCK_ELEMENTS", block)
    monkeypatch.setattr(vectors, "BLOCK_ELEMENTS", block)
    ref = make_planted_pairs(20, 0.2, captions=2).reference
    ref = convert_to_video(ref) if video else ref
    found = measure_pairs(ref, ref)
    for row in (0, 7, 39):
        for name, expected in naive_measures(ref, row).items():
            assert getattr(found, name)[row] == pytest.approx(expected, rel=2e-4, abs=2e-5), name


def test_a_pair_is_measured_alike_alone_and_among_others() -> None:
    ref = make_planted_pairs(60, 0.2).reference
    together = measure_pairs(ref, ref)
    alone = measure_pairs(ref.take(np.array([5])), ref)
    assert alone.rival_margin[0] == pytest.approx(together.rival_margin[5], abs=1e-5)


def test_the_own_group_never_counts() -> None:
    ref = make_planted_pairs(40, 0.0, captions=3).reference
    base = measure_pairs(ref.take(np.array([0])), ref)
    crowded = ReferenceSample(
        MediaVectors(np.concatenate([ref.visual, np.repeat(ref.visual[:1], 50, 0)])),
        np.concatenate([ref.text, np.repeat(ref.text[:1], 50, 0)]),
        np.concatenate([ref.group, np.repeat(ref.group[:1], 50)]),
        scale=ref.scale,
    )
    copied = measure_pairs(ref.take(np.array([0])), crowded)
    assert copied.rival_margin[0] == pytest.approx(base.rival_margin[0], abs=1e-5)
    assert copied.similarity_normalised[0] == pytest.approx(base.similarity_normalised[0], abs=1e-5)


def test_what_fits_a_caption_does_not_depend_on_its_partner() -> None:
    ref = make_planted_pairs(80, 0.0).reference
    swapped = np.roll(np.arange(80), 1)
    before = measure_pairs(ref, ref)
    mixed = replace(ref, text=ref.text[swapped])
    after = measure_pairs(mixed, mixed)
    assert np.allclose(after.matches_text, before.matches_text[swapped], rtol=1e-3)
    assert np.allclose(after.matches_visual, before.matches_visual, rtol=1e-3)


def test_rows_inside_and_outside_the_reference_are_counted_alike() -> None:
    """In a large corpus, a row in the reference must not look less ambiguous because its partner is there too."""
    ref = make_planted_pairs(3000, 0.0, noise=0.8).reference
    sample = ref.take(np.arange(150))
    found = measure_pairs(ref, sample, media=3000, captions=3000)
    inside, outside = np.median(found.matches_text[:150]), np.median(found.matches_text[150:])
    assert 0.5 < inside / outside < 2


def test_matches_scale_to_the_corpus_and_count_what_fits() -> None:
    """A caption that fits a quarter of the media equally well and nothing else matches a quarter of the corpus."""
    eye = np.eye(8, dtype=np.float32)
    visual = np.repeat(eye[:4], 25, axis=0)  # 100 media of 4 classes
    ref = ReferenceSample(MediaVectors(visual), visual, np.arange(100), scale=100.0)
    found = measure_pairs(PairEmbeddings(MediaVectors(visual[:1]), eye[:1], np.array([-1])), ref, media=1_000_000)
    assert found.matches_text[0] == pytest.approx(250_000, rel=1e-3)
    middle = PairEmbeddings(MediaVectors(visual[:1]), np.ones((1, 8), np.float32) / 8**0.5, np.array([-1]))
    everything = measure_pairs(middle, ref, media=1000)
    assert everything.matches_text[0] == pytest.approx(1000, rel=1e-3)


def test_large_scales_do_not_overflow() -> None:
    ref = replace(make_planted_pairs(50, 0.1).reference, scale=1000.0)
    found = measure_pairs(ref, ref)
    for name in ("similarity_normalised", "rival_margin", "matches_text", "matches_visual"):
        assert np.isfinite(getattr(found, name)).all(), name


def test_padding_frames_are_never_the_best() -> None:
    ref = convert_to_video(make_planted_pairs(30, 0.0).reference)
    assert ref.media.frames is not None and ref.media.mask is not None
    against = replace(ref, text=-ref.text)  # now a zero frame would be the best of all
    found = measure_pairs(against, against)
    assert found.best_frame is not None
    assert ref.media.mask[np.arange(len(ref)), found.best_frame].all()
    whole = ref.media.similarity(against.text)
    assert np.allclose(np.diag(whole), ref.media.own_similarity(against.text), atol=1e-6)


def test_frame_columns_are_those_of_the_frames() -> None:
    ref = convert_to_video(make_planted_pairs(200, 0.0, noise=0.3).reference)
    assert ref.media.frames is not None and ref.media.mask is not None
    threshold = estimate_frame_threshold(ref)
    assert threshold is not None
    found = measure_pairs(ref, ref, frame_threshold=threshold)
    assert found.frame_spread is not None and found.frame_match_share is not None
    known = (ref.media.frames[3] @ ref.text[3])[ref.media.mask[3]]
    assert found.frame_spread[3] == pytest.approx(known.std(), abs=1e-5)
    assert found.frame_match_share[3] == pytest.approx((known >= threshold).mean(), abs=1e-6)
    assert found.frame_match_share.mean() > 0.8
    strangers = measure_pairs(replace(ref, text=np.roll(ref.text, 1, 0)), ref)
    assert strangers.frame_match_share is not None
    assert 0.02 < strangers.frame_match_share.mean() < 0.09  # one in twenty by construction


def test_a_pair_fails_if_a_better_partner_exists() -> None:
    """Rows of orthogonal pairs: a swapped caption is beaten by the right one in both directions, a copy by none."""
    eye = np.eye(6, dtype=np.float32)
    right = ReferenceSample(MediaVectors(eye), eye, np.arange(6), scale=100.0)
    measures = measure_pairs(right, right)
    assert not measures.better_captions.any() and not measures.better_media.any()
    swapped = replace(right, text=eye[[1, 0, 2, 3, 4, 5]])
    measures = measure_pairs(swapped, swapped)
    fails = np.array([0.2, 0.2, 0, 0, 0, 0], np.float32)  # one of the five others fits better
    assert np.allclose(measures.better_captions, fails) and np.allclose(measures.better_media, fails)
    copied = replace(right, text=eye[[0, 0, 2, 3, 4, 5]])  # media 0 and 1 have the same caption, which shows medium 0
    measures = measure_pairs(copied, copied)
    assert np.allclose(measures.better_media, [0, 0.2, 0, 0, 0, 0])
    assert not measures.better_captions.any()  # an equal caption is not better, and no caption shows medium 1


def test_each_caption_of_a_medium_has_its_own_rank() -> None:
    eye = np.eye(4, dtype=np.float32)
    visual, group = eye[[0, 0, 1, 2]], np.array([0, 0, 1, 2])
    ref = ReferenceSample(MediaVectors(visual), eye[[0, 3, 1, 0]], group, scale=100.0)
    measures = measure_pairs(ref, ref)
    assert np.allclose(measures.better_captions, [0, 0.5, 0, 0])  # of the captions of the other media
    assert np.allclose(measures.better_media, [0, 0, 0, 2 / 3])  # medium 0 stands twice among the three others


def test_images_have_no_frame_columns() -> None:
    ref = make_planted_pairs(30, 0.0).reference
    found = measure_pairs(ref, ref)
    assert found.best_frame is None and estimate_frame_threshold(ref) is None


def test_no_pairs_give_empty_measures() -> None:
    ref = make_planted_pairs(30, 0.0).reference
    found = measure_pairs(ref.take(np.arange(0)), ref)
    assert len(found.rival_margin) == len(found.better_captions) == len(found.better_media) == 0
