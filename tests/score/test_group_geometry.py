"""Captions of another geometry are moved into that of their group; those of topics and of groups alike are not."""

from dataclasses import replace

import numpy as np

from auditor.score.group_geometry import fit_geometries
from auditor.score.statistics.rivals import ReferenceSample
from auditor.vectors import MediaVectors
from tests.score.statistics.test_group_difference import move_group
from tests.support.pairs import make_planted_pairs, normalize_rows

MEMBERS = np.arange(600) % 3 == 0


def divide(reference: ReferenceSample) -> dict[str, ReferenceSample]:
    return {"old": reference.take(np.flatnonzero(~MEMBERS)), "new": reference.take(np.flatnonzero(MEMBERS))}


def test_captions_of_another_geometry_are_moved_and_no_others() -> None:
    reference = move_group(make_planted_pairs(600, 0.0, dim=128).reference, MEMBERS, strength=1.5)
    groups = divide(reference)
    foreign = np.arange(40)  # of the new group have captions of the old one
    text = groups["new"].text.copy()
    text[foreign] = groups["old"].text[:40]
    groups["new"] = replace(groups["new"], text=text)
    geometries = fit_geometries(groups)
    assert set(geometries) == {"new"}  # captions of the new group are less similar to media of the old one
    moved = geometries["new"].move(groups["new"])
    changed = np.flatnonzero((moved.text != text).any(axis=1))
    assert changed.tolist() == foreign.tolist() and (groups["new"].text == text).all()
    target = move_group(make_planted_pairs(600, 0.0, dim=128).reference, np.ones(600, bool), strength=1.5)
    truth = target.text[np.flatnonzero(~MEMBERS)[:40]]
    assert (np.einsum("nd,nd->n", moved.text[foreign], truth)).mean() > 0.95
    assert np.allclose(np.linalg.norm(moved.text, axis=1), 1, atol=1e-5)
    sound = groups["new"].take(np.arange(40, 200))
    assert geometries["new"].move(sound) is sound


def test_groups_that_are_alike_and_groups_of_topics_are_left_alone() -> None:
    reference = make_planted_pairs(600, 0.2, dim=128).reference
    assert fit_geometries(divide(reference)) == {} and fit_geometries({"": reference}) == {}
    topic = 3 * normalize_rows(np.random.default_rng(1).normal(size=(128,)))
    shift = np.where(MEMBERS[:, None], topic, 0)
    topics = replace(
        reference,
        media=MediaVectors(normalize_rows(reference.visual + shift)),
        text=normalize_rows(reference.text + shift),
    )
    assert fit_geometries(divide(topics)) == {}
