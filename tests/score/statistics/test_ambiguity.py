"""Ambiguity is not mismatch: vague captions fit more of the corpus, swapped captions do not; default thresholds."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from auditor.score.statistics.ambiguity import (
    MISMATCH,
    AmbiguityScale,
    compute_absolute_thresholds,
    compute_share_thresholds,
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
    # the hubs depend slightly on the pairing
    assert np.corrcoef(before.entropy_text[swapped], after.entropy_text)[0, 1] > 0.95
    p = p_mismatch(mixed)
    assert p[:80].mean() > 0.8 and p[80:].mean() < 0.1


def test_the_requested_share_is_flagged() -> None:
    found = measures_of(sorts(vague=8))
    bits = np.full(200, 20.0, np.float32)
    scale = AmbiguityScale.fit(found, bits)
    ambiguity = scale.score_captions(found, bits)
    thresholds = compute_share_thresholds({"image": scale.score_media(found)}, {"image": ambiguity}, 0.05)
    assert thresholds["mismatch"] == MISMATCH
    flagged = ambiguity >= thresholds["ambiguity_text"]
    assert flagged[:8].all()
    assert flagged[8:].mean() < 0.05


def test_no_pairs_give_no_thresholds() -> None:
    assert compute_share_thresholds({}, {}, 0.05)["ambiguity_text"] is None
    assert compute_absolute_thresholds({}, {})["ambiguous_text"] is None


def test_an_uninformative_caption_is_ambiguous_whatever_its_embedding() -> None:
    found = measures_of(make_planted_pairs(200, 0.0).reference)
    captions = [f"a brown dog number{i % 40} catches the frisbee in park{i % 25}" for i in range(200)]
    captions[:10] = ["A dog"] * 10
    frequencies = WordFrequencies.count(captions)
    bits = frequencies.bits(captions)
    assert bits[:10].max() < bits[10:].min()
    scale = AmbiguityScale.fit(found, bits)
    cut = compute_share_thresholds({}, {"image": scale.score_captions(found, bits)}, 0.05)["ambiguity_text"]
    assert (scale.score_captions(found, bits) >= cut)[:10].all()


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
    cut = compute_absolute_thresholds({"image": 128}, {"image": 128})["caption_share"]
    assert (share[:96] >= cut).all() and share[:96].max() == pytest.approx(0.75**2)
    assert not (share[96:] >= cut).any()
    assert frequencies.bits(["zebra"])[0] == 7.0  # one of 128


def test_a_corpus_without_ambiguity_has_no_flags() -> None:
    shares = WordFrequencies.count(SIGHTS).share(SIGHTS)
    found = measures_of(sorts())
    cuts = compute_absolute_thresholds({"image": 200}, {"image": 200})
    assert not (shares >= cuts["caption_share"]).any()
    assert not (found.matches_text >= cuts["ambiguous_text"]).any()
    assert not (found.matches_visual >= cuts["ambiguous_visual"]).any()


def test_a_caption_without_words_says_nothing_but_other_scripts_have_no_share() -> None:
    shares = WordFrequencies.count(SIGHTS).share(["the", "1234", "狗", "一只狗在公园里接飞盘"])
    assert shares[:2].tolist() == [1.0, 1.0]
    assert np.isnan(shares[2]) and shares[3] < 0.01


def test_thresholds_grow_with_the_corpus_and_have_a_minimum() -> None:
    cuts = compute_absolute_thresholds({"image": 1000, "video": 20}, {"image": 5000, "video": 20})
    assert cuts["ambiguous_text"] == {"image": 200, "video": 10} and cuts["ambiguous_visual"]["image"] == 1000
    assert cuts["caption_share"] == 0.01 and compute_absolute_thresholds({}, {"image": 100})["caption_share"] == 0.1


def test_captions_without_words_change_nothing() -> None:
    found = measures_of(make_planted_pairs(50, 0.0).reference)
    for captions in (["一只狗在公园里接飞盘"] * 50, [""] * 50, ["123 !?"] * 50):
        bits = WordFrequencies.count(captions).bits(captions)
        scale = AmbiguityScale.fit(found, bits)
        assert np.allclose(scale.score_captions(found, bits), scale.text.z(found.entropy_text))


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
