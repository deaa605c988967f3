"""Whether the encoder can judge a corpus and its parts: planted blindness, permuted pairs, sizes."""

from dataclasses import replace

import numpy as np
import pytest

from auditor.score.statistics.competence import CompetenceMap, measure_competence, select_distinct
from auditor.score.statistics.mismatch import fit_mismatch
from auditor.score.statistics.rivals import ReferenceSample
from auditor.score.statistics.siblings import collect_siblings
from auditor.vectors import Floats, MediaVectors
from tests.support.pairs import make_planted_pairs, normalize_rows

DIM = 48


def make_topical_pairs(pairs: int, seed: int = 0, topics: int = 12) -> ReferenceSample:
    """Pairs whose media and captions share things: a scene and several details out of a small world, plus noise."""
    generator = np.random.default_rng(seed)
    scenes, details = (
        normalize_rows(generator.normal(size=(topics, DIM))),
        normalize_rows(generator.normal(size=(40, DIM))),
    )
    chosen = generator.integers(0, 40, (pairs, 2))
    content = scenes[generator.integers(0, topics, pairs)] + details[chosen].sum(axis=1)
    visual, text = (normalize_rows(content + 1.5 * normalize_rows(generator.normal(size=content.shape))) for _ in "vt")
    captions = [f"caption {number}" for number in range(pairs)]
    return ReferenceSample(MediaVectors(visual), text, np.arange(pairs), captions, scale=30.0)


def rotate(vectors: Floats, seed: int = 5) -> Floats:
    """The vectors in another space: what an encoder makes of a language that it has never seen."""
    rotation = np.linalg.qr(np.random.default_rng(seed).normal(size=(vectors.shape[1],) * 2))[0]
    return np.asarray(vectors @ rotation, np.float32)


@pytest.mark.parametrize("pairs", [60, 200, 1000, 4096, 100_000])
def test_a_good_encoder_is_told_from_a_blind_one(pairs: int) -> None:
    good = make_topical_pairs(pairs)
    blind = replace(good, text=rotate(good.text))
    found, lost = measure_competence(good), measure_competence(blind)
    assert found.corpus is not None and not found.corpus.blind and found.find_judged(good).all()
    assert lost.corpus is not None and lost.corpus.blind and not lost.find_judged(blind).any()
    assert abs(lost.corpus.relatedness.value) < 0.15 < found.corpus.relatedness.value


@pytest.mark.parametrize("pairs", [200, 2000])
def test_permuted_captions_are_wrong_and_the_encoder_sees_that(pairs: int) -> None:
    good = make_topical_pairs(pairs)
    order = np.random.default_rng(1).permutation(pairs)
    wrong = replace(good, text=good.text[order], captions=[good.captions[row] for row in order])
    competence = measure_competence(wrong)
    assert competence.corpus is not None and abs(competence.corpus.separation.value) < 0.5
    assert competence.find_judged(wrong).mean() > 0.9
    model = fit_mismatch(wrong, bootstraps=10)
    assert model is not None and model.pi0 > 0.98  # a permutation leaves one or two in place


def test_pairs_without_any_relation_are_judged_by_their_distance_from_random_ones() -> None:
    reference = make_planted_pairs(400, 0.3).reference
    competence = measure_competence(reference)
    assert competence.corpus is not None and abs(competence.corpus.relatedness.value) < 0.1
    assert competence.corpus.separation.value > 2 and competence.find_judged(reference).all()


@pytest.mark.parametrize("share", [0.3, 0.6])
def test_a_part_that_the_encoder_cannot_read_does_not_spoil_the_rest(share: float) -> None:
    good = make_topical_pairs(1500)
    generator = np.random.default_rng(2)
    spoiled = generator.random(1500) < 0.2
    text = np.where(spoiled[:, None], good.text[generator.permutation(1500)], good.text)
    unread = generator.random(1500) < share
    offset = 1.5 * normalize_rows(generator.normal(size=DIM))  # an unknown language has its own corner of the space
    text = np.where(unread[:, None], normalize_rows(rotate(text) + offset), text).astype(np.float32)
    mixed = replace(good, text=text)
    competence = measure_competence(mixed)
    judged = competence.find_judged(mixed)
    assert judged[~unread].mean() > 0.9 and judged[unread].mean() < 0.1
    model = fit_mismatch(competence.keep_judged(mixed, np.flatnonzero(judged & ~unread)), bootstraps=0)
    assert model is not None and abs(model.pi0 - spoiled[~unread].mean()) < 0.05


def test_a_blind_language_is_found_by_its_name_even_without_a_corner_of_its_own() -> None:
    good = make_topical_pairs(600)
    german = np.arange(600) % 3 == 0
    mixed = replace(good, text=np.where(german[:, None], rotate(good.text), good.text).astype(np.float32))
    languages = {"language": ["de" if unread else "en" for unread in german]}
    competence = measure_competence(mixed, 0, languages)
    assert competence.groups["language"]["de"].blind and not competence.groups["language"]["en"].blind
    judged = competence.find_judged(mixed, languages)
    assert not judged[german].any() and judged[~german].mean() > 0.99


def test_siblings_in_a_blind_language_are_no_evidence() -> None:
    good = make_topical_pairs(400)
    text = np.concatenate([good.text, normalize_rows(rotate(good.text) + 2 * normalize_rows(np.ones(DIM)))])
    group, media = np.tile(np.arange(400), 2), MediaVectors(np.tile(good.visual, (2, 1)))
    captions = [*good.captions, *(f"Satz {number}" for number in range(400))]
    both = ReferenceSample(media, text, group, captions, collect_siblings(group, media, text), scale=30.0)
    competence = measure_competence(both)
    judged = competence.find_judged(both)
    assert judged[:400].mean() > 0.95 and judged[400:].mean() < 0.1
    rows = np.flatnonzero(judged[:400])
    kept = competence.keep_judged(both, rows).siblings
    assert both.siblings is not None and (kept is None or len(kept.owner) < 0.1 * len(rows))


def test_equal_captions_count_once_and_a_few_pairs_are_not_measured() -> None:
    good = make_topical_pairs(100)
    constant = replace(good, captions=["a photo"] * 100, text=np.repeat(good.text[:1], 100, axis=0))
    assert len(select_distinct(constant)) == 1 and measure_competence(constant).corpus is None
    assert measure_competence(make_topical_pairs(12)) == CompetenceMap(None)


def test_intervals_and_parts_are_in_the_manifest() -> None:
    saved = measure_competence(make_topical_pairs(500)).to_dict()
    assert saved["relatedness"]["low"] < saved["relatedness"]["value"] < saved["relatedness"]["high"]
    assert saved["blind"] is False and set(saved["parts"]) == {"text", "visual"}
    part = saved["parts"]["text"]["0"]
    assert part["pairs"] > 20 and part["example"].startswith("caption ")


@pytest.mark.parametrize("languages", [["en", None], ["en", "de"], [None, *["en"] * 29]])
def test_rows_of_an_unknown_language_are_not_judged_by_a_blind_encoder(languages: list[str | None]) -> None:
    good = make_topical_pairs(600)
    blind = replace(good, text=rotate(good.text))
    spoken = {"language": (languages * 600)[:600]}
    competence = measure_competence(blind, 0, spoken)
    assert not competence.find_judged(blind, spoken).any() and not competence.find_judged(blind).any()
    assert measure_competence(good, 0, spoken).find_judged(good, spoken).mean() > 0.99


def test_captions_of_a_single_medium_cannot_be_compared() -> None:
    good = make_topical_pairs(60)
    one = replace(good, media=MediaVectors(good.visual[:1].repeat(60, 0)), group=np.zeros(60, np.int64))
    assert measure_competence(one) == CompetenceMap(None)


@pytest.mark.parametrize(
    ("languages", "readable"),
    [
        (("en", "en", "en"), (True, True)),
        (("en", "en", "de"), (True, False)),  # a vague caption without a language could be in any of them
        ((None, None, None), (False, False)),
    ],
)
def test_a_cluster_of_vague_captions_is_readable_by_its_language(
    languages: tuple[str | None, ...], readable: tuple[bool, bool]
) -> None:
    """The encoder cannot judge their pairs, but it is not to blame: the captions fit everything."""
    good = make_topical_pairs(1500)
    vague = np.random.default_rng(2).random(1500) < 0.3
    corner = normalize_rows(np.random.default_rng(3).normal(size=DIM))
    text = np.where(vague[:, None], normalize_rows(rotate(good.text) + 1.5 * corner), good.text).astype(np.float32)
    spoken = [languages[0] if unclear else languages[row % 3] for row, unclear in enumerate(vague)]
    mixed = replace(good, text=text)
    competence = measure_competence(mixed, 0, {"language": spoken})
    assert competence.find_judged(mixed)[vague].mean() < 0.1
    assert (competence.is_readable_language(spoken)[vague] == readable[0]).all()
    assert competence.is_readable_language([None]).tolist() == [readable[1]]


def test_no_language_is_readable_to_a_blind_encoder() -> None:
    good = make_topical_pairs(600)
    competence = measure_competence(replace(good, text=rotate(good.text)), 0, {"language": ["en"] * 600})
    assert not competence.is_readable_language(["en", None]).any()
