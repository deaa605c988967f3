"""Ambiguity is not mismatch: vague captions fit more of the corpus, swapped captions do not; the lines of evidence."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from auditor.score.statistics.ambiguity import (
    CONTRAST,
    EDGE,
    combine_evidence,
    estimate_clip_distance,
    grade,
    grade_captions,
    grade_media,
    measure_frame_distance,
)
from auditor.score.statistics.mismatch import fit_mismatch
from auditor.score.statistics.mismatch_statistic import compute_statistic
from auditor.score.statistics.rivals import PairMeasures, ReferenceSample, measure_pairs
from auditor.score.statistics.word_evidence import WordFrequencies
from auditor.vectors import MediaVectors
from tests.support.pairs import make_planted_pairs, normalize_rows


def measures_of(ref: ReferenceSample, text: np.ndarray | None = None) -> PairMeasures:
    return measure_pairs(ref if text is None else replace(ref, text=text), ref)


def p_mismatch(ref: ReferenceSample) -> np.ndarray:
    model = fit_mismatch(ref, bootstraps=0)
    assert model is not None and model.statistic is not None
    return model.p(compute_statistic(model.statistic, ref, measures_of(ref)))


def sorts(vague: int = 0) -> ReferenceSample:
    """200 media of 20 classes; each caption names its class and a detail; vague captions name four classes."""
    generator = np.random.default_rng(0)
    of = np.repeat(np.eye(20), 10, axis=0)
    visual = normalize_rows(of + 0.06 * generator.normal(size=of.shape))
    text = normalize_rows(visual + 0.05 * generator.normal(size=of.shape))
    text[:vague] = normalize_rows(np.eye(20)[:4].sum(axis=0))
    return ReferenceSample(MediaVectors(visual), text, np.arange(200), scale=20.0)


def test_a_caption_of_several_sorts_fits_more_of_the_corpus() -> None:
    clear, vague = measures_of(sorts()).matches_text[:20], measures_of(sorts(20)).matches_text[:20]
    assert (vague > clear).all()
    assert 10 < np.median(vague) < 60  # four classes are 40 media


def test_swapping_captions_leaves_ambiguity_and_raises_p_mismatch() -> None:
    ref = make_planted_pairs(400, 0.0, seed=2).reference
    swapped = np.arange(400)
    swapped[:80] = np.roll(swapped[:80], 1)
    mixed = ReferenceSample(ref.media, ref.text[swapped], ref.group, scale=ref.scale)
    before, after = measures_of(ref), measures_of(mixed)
    assert np.allclose(before.matches_text[swapped], after.matches_text, rtol=1e-3)
    assert np.allclose(before.matches_visual, after.matches_visual, rtol=1e-3)
    p = p_mismatch(mixed)
    assert p[:80].mean() > 0.8 and p[80:].mean() < 0.1


def grade_words(share: np.ndarray) -> np.ndarray:
    """Evidence of the words of captions alone."""
    nothing = np.zeros(len(share), np.float32)
    return np.max(grade_captions(nothing, 1000, share, len(share), None, np.ones(len(share), bool)), axis=0)


SIGHTS = [
    f"a {look} {thing} beside the {place}"
    for look in ("brown", "tall", "old", "wet")
    for thing in ("dog", "horse", "bench", "tram")
    for place in ("river", "church", "kiosk", "harbour", "tunnel", "meadow", "quarry", "terminal")
]


def test_frequent_words_carry_little_information_however_many_they_are() -> None:
    """Regression test: such words used to count as unknown words, which are the most informative."""
    captions = ["a photo of something"] * 96 + SIGHTS[:32]
    frequencies = WordFrequencies.count(captions)
    share = frequencies.share(captions)
    ambiguity = grade_words(share)
    assert (ambiguity[:96] >= 0.5).all() and share[:96].max() == pytest.approx(0.75**2)
    assert not (ambiguity[96:] >= 0.5).any()
    assert frequencies.bits(["zebra"])[0] == 7.0  # one of 128


def test_a_corpus_without_ambiguity_has_no_flags() -> None:
    measures, certain, readable = measures_of(sorts()), np.full(200, 0.99, np.float32), np.ones(200, bool)
    shares = WordFrequencies.count(SIGHTS).share(SIGHTS)
    assert grade_words(shares).max() < 0.5
    of_captions = grade_captions(measures.matches_text, 200, np.zeros(200, np.float32), 200, None, readable)
    clear = np.full(200, 0.2, np.float32)
    of_media = grade_media(measures.matches_visual, 200, clear, clear, 224, None, readable)
    assert combine_evidence(certain, of_captions).max() < 0.5
    assert combine_evidence(certain, of_media).max() < 0.5


def test_a_caption_without_words_says_nothing_but_other_scripts_have_no_share() -> None:
    shares = WordFrequencies.count(SIGHTS).share(["the", "1234", "狗", "一只狗在公园里接飞盘"])
    assert shares[:2].tolist() == [1.0, 1.0]
    assert np.isnan(shares[2]) and shares[3] < 0.01


def test_evidence_is_one_half_at_its_line_and_zero_if_it_is_missing() -> None:
    values = grade(np.array([0.0, 0.5, 1.0, 2.0, np.nan, np.inf, -3.0], np.float32))
    assert values.tolist() == pytest.approx([0, 0.2, 0.5, 0.8, 0, 1, 0], abs=1e-6)


def test_u_alone_ranks_but_never_flags() -> None:
    u = np.array([0.1, 0.9, 1.0, 0.2], np.float32)
    ambiguity = combine_evidence(u, [np.array([0, 0, 0, 0.7], np.float32)])
    assert ambiguity.tolist() == pytest.approx([0.05, 0.45, 0.499, 0.7])


def test_a_small_corpus_needs_twenty_items_that_fit() -> None:
    """A single pair fits all of its corpus, and all its captions contain its words: neither is evidence."""
    one, twenty = np.ones(1, np.float32), np.full(1, 20, np.float32)
    readable = np.ones(1, bool)
    assert max(part[0] for part in grade_captions(one, 1, one, 1, None, readable)) < 0.05
    assert max(part[0] for part in grade_captions(twenty, 20, one, 20, None, readable)) == pytest.approx(0.5)


def test_the_encoder_is_not_asked_about_captions_that_it_cannot_read() -> None:
    many, readable = np.full(2, 500, np.float32), np.array([True, False])
    parts = grade_captions(many, 1000, np.zeros(2, np.float32), 1000, np.ones(2, np.float32), readable)
    assert (np.max(parts, axis=0) >= 0.5).tolist() == [True, False]


def test_blank_and_blurred_pictures_are_ambiguous_at_any_size_of_the_encoder() -> None:
    contrast = np.array([CONTRAST / 3, 0.2, 0.2, np.nan, 0.08], np.float32)
    for size in (64, 224):
        sharpness = np.array([0.4, 0.9 * EDGE / size, 0.4, np.nan, 1.2 * EDGE / size], np.float32)
        parts = grade_media(np.ones(5, np.float32), 1000, contrast, sharpness, size, None, np.ones(5, bool))
        assert (np.max(parts, axis=0) >= 0.5).tolist() == [True, True, False, False, True]


def make_clips(scenes: int, count: int = 30, frames: int = 12) -> MediaVectors:
    """Clips of frames near one of 30 directions per scene; the last frames of each clip are masked."""
    generator = np.random.default_rng(scenes)
    directions = np.stack([generator.permutation(30)[:scenes] for _ in range(count)])  # (N, S)
    numbers = directions[:, np.arange(frames) * scenes // frames]  # (N, J)
    vectors = normalize_rows(np.eye(30)[numbers] + 0.02 * generator.normal(size=(count, frames, 30)))
    mask = np.ones((count, frames), bool)
    vectors[:, -1], mask[:, -1] = 0, False
    return MediaVectors(normalize_rows(vectors.sum(axis=1)), vectors.astype(np.float32), mask)


def test_the_distance_of_frames_tells_clips_of_several_scenes() -> None:
    single, several = make_clips(1), make_clips(3)
    frames = several.frames[0][several.mask[0]]  # type: ignore[index]
    naive = 1 - (frames @ frames.T)[np.triu_indices(len(frames), 1)].mean()
    assert measure_frame_distance(several)[0] == pytest.approx(naive, abs=1e-5)
    distance = estimate_clip_distance(single)
    assert distance == pytest.approx(1, abs=0.05)
    for clips, is_ambiguous in ((single, False), (several, True)):
        scenes, clear = measure_frame_distance(clips) / distance, np.full(30, 0.2, np.float32)
        parts = grade_media(np.ones(30, np.float32), 300, clear, clear, 224, scenes, np.ones(30, bool))
        assert ((np.max(parts, axis=0) >= 0.5) == is_ambiguous).all()
    assert estimate_clip_distance(make_clips(1, count=10)) is None
    assert np.isnan(measure_frame_distance(MediaVectors(np.eye(3, dtype=np.float32)))).all()


def test_real_captions_that_fit_much_of_the_corpus_find_their_photo_less_often(shared: Path) -> None:
    """The purpose of the flag. (Shortening captions to 'A man' changes neither u nor this count: see the benchmark.)"""
    pytest.importorskip("torch")
    from tests.bench.flickr8k import load_photos

    photos = load_photos(shared, limit=200)
    media = MediaVectors(photos.visual[photos.media])
    ref = ReferenceSample(media, photos.text, photos.media, scale=photos.scale)
    matches = measures_of(ref).matches_text
    hit = (photos.text @ photos.visual.T).argmax(axis=1) == photos.media
    clear = matches <= np.median(matches)
    assert hit[clear].mean() > hit[~clear].mean() + 0.1


def test_on_real_photos_swapping_captions_moves_p_mismatch_and_no_uncertainty(shared: Path) -> None:
    """u depends on one side only: a swapped caption and its photo keep their u; only the pair changes."""
    torch = pytest.importorskip("torch")
    from model.fit_prototypes import fit_prototypes
    from model.prototypes import HeadConfig
    from model.retrieval_target import FitPairs
    from tests.bench.flickr8k import load_photos

    photos = load_photos(shared, limit=200)
    pairs = FitPairs(torch.from_numpy(photos.visual), torch.from_numpy(photos.text))
    head = fit_prototypes(pairs, HeadConfig(dim=photos.text.shape[1]))
    swapped = np.arange(len(photos.text))
    chosen = np.random.default_rng(0).choice(len(swapped), 200, replace=False)
    swapped[chosen] = np.roll(chosen, 1)
    with torch.inference_mode():
        before = head.uncertainty_text(torch.from_numpy(photos.text)).numpy()
        after = head.uncertainty_text(torch.from_numpy(photos.text[swapped])).numpy()
    assert np.allclose(after, before[swapped], atol=1e-6)
    mixed = ReferenceSample(
        MediaVectors(photos.visual[photos.media]), photos.text[swapped], photos.media, scale=photos.scale
    )
    p = p_mismatch(mixed)
    strayed = photos.media[swapped] != photos.media
    assert p[strayed].mean() > 0.6
    assert p[~strayed].mean() < 0.15
    assert abs(np.corrcoef(after, strayed)[0, 1]) < 0.1  # u is independent of the swap
