"""Groups that differ are calibrated by themselves; all others as if there were no groups."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from auditor.audit_folder import arrow_schema
from auditor.audit_folder.extra_columns import CARRIED, ColumnSource, publish_source
from auditor.audit_folder.folder import Folder
from auditor.errors import AuditorError
from auditor.score.calibration_groups import (
    REST,
    CalibrationGroups,
    check_column,
    choose_groups,
    fit_groups,
    read_candidates,
    read_columns,
)
from auditor.score.statistics.mismatch import MismatchModel, fit_mismatch
from auditor.score.statistics.mismatch_statistic import compute_statistic
from auditor.score.statistics.rivals import ReferenceSample, measure_pairs
from tests.bench.mismatch_flickr8k import auroc
from tests.score.statistics.test_group_difference import move_group
from tests.support.pairs import make_planted_pairs


def fit(sample: ReferenceSample) -> MismatchModel | None:
    return fit_mismatch(sample, bootstraps=0, draws=10_000)


def estimate(sample: ReferenceSample, model: MismatchModel | None) -> tuple[np.ndarray, np.ndarray]:
    assert model is not None and model.statistic is not None
    score = compute_statistic(model.statistic, sample, measure_pairs(sample, sample))
    return score.astype(float), model.p(score)


def make_facts(rows: int, **columns: list[str | None]) -> pa.Table:
    arrays = [pa.array(columns.get(f.name, [None] * rows), f.type) for f in arrow_schema.FACTS]
    return pa.Table.from_arrays(arrays, schema=arrow_schema.FACTS)


@pytest.mark.parametrize("rate", [0.0, 0.2])
def test_a_group_with_another_geometry_is_calibrated_by_itself(rate: float) -> None:
    corpus = make_planted_pairs(1000, rate, seed=2)
    members = np.arange(1000) % 2 == 0
    reference = move_group(corpus.reference, members)
    names = ["new" if member else "old" for member in members]
    groups = fit_groups(reference, {"language": ["en"] * 1000, "origin": names}, "auto", fit)
    assert groups.column == "origin" and {"new", "old"} <= set(groups.calibrations)
    together = estimate(reference, fit(reference))
    assert (together[1][members & ~corpus.spoiled] >= 0.5).mean() > 0.2  # one curve for all is wrong
    for name, rows in (("new", np.flatnonzero(members)), ("old", np.flatnonzero(~members))):
        part = groups.calibrations[name]
        score, p = estimate(reference.take(rows), part.mismatch)
        spoiled = corpus.spoiled[rows]
        assert (p[~spoiled] >= 0.5).mean() < 0.02
        assert abs(p.mean() - spoiled.mean()) < 0.03
        if rate:
            assert auroc(score, spoiled) >= auroc(together[0][rows], spoiled)


def test_captions_swapped_across_a_gap_are_found() -> None:
    corpus = make_planted_pairs(1000, 0.0, seed=3, dim=128)
    members, source = np.arange(1000) % 2 == 0, np.arange(1000)
    source[:200] = np.roll(source[:200], 1)  # a caption of the other group for each
    moved = move_group(corpus.reference, members, strength=1.5)
    reference, wrong = replace(moved, text=moved.text[source]), np.arange(1000) < 200
    names: list[str | None] = ["new" if member else "old" for member in members]
    groups = fit_groups(reference, {"origin": names}, "auto", fit)
    for name, rows in (("new", np.flatnonzero(members)), ("old", np.flatnonzero(~members))):
        part = groups.calibrations[name]
        sample = part.prepare(reference.take(rows))
        assert part.mismatch is not None and part.mismatch.statistic is not None
        score = compute_statistic(part.mismatch.statistic, sample, measure_pairs(sample, part.reference))
        p = part.mismatch.p(score)
        assert auroc(score.astype(float), wrong[rows]) > 0.97
        assert (p[~wrong[rows]] >= 0.5).mean() < 0.02 and abs(p.mean() - 0.2) < 0.03


def test_groups_that_are_alike_change_nothing() -> None:
    reference = make_planted_pairs(600, 0.2, seed=1).reference
    names = [("en", "de", None)[row % 3] for row in range(600)]
    groups = fit_groups(reference, {"language": names}, "auto", fit)
    whole = fit(reference)
    assert groups.column == "" and set(groups.calibrations) == {REST} and groups.calibrations[REST].excess == 0
    assert groups.mismatch is not None and whole is not None
    assert groups.mismatch.to_dict() == whole.to_dict() and "groups" not in whole.to_dict()


def test_a_chosen_column_calibrates_large_groups_and_no_small_ones() -> None:
    reference = make_planted_pairs(600, 0.2, seed=1).reference
    names: list[str | None] = [
        "big" if row < 300 else "small" if row < 340 else "tiny" if row < 350 else None for row in range(600)
    ]
    column, groups = choose_groups(reference, {"language": [], "shard": names}, "shard")
    assert column == "shard" and set(groups) == {"big"}
    assert choose_groups(reference, {"shard": names}, "kind") == ("", {})
    assert choose_groups(reference, {"shard": ["one"] * 600}, "shard")[1] == {}


def test_other_pairs_without_a_model_of_their_own_are_judged_like_all_pairs() -> None:
    reference = make_planted_pairs(400, 0.2, seed=1).reference
    group = np.where(np.arange(400) < 360, np.arange(400), 360 + np.arange(400) % 4)  # captions of four media
    reference = replace(reference, group=group)
    names = ["big" if row < 360 else None for row in range(400)]
    groups = fit_groups(reference, {"shard": names}, "shard", fit)
    assert groups.mismatch is not None and groups.calibrations[REST].mismatch is not None
    assert len(groups.calibrations[REST].reference) == 400


def test_the_other_pairs_keep_a_model_and_hold_those_of_the_groups() -> None:
    corpus = make_planted_pairs(900, 0.3, seed=5)
    members = np.arange(900) < 200
    reference = move_group(corpus.reference, members)
    names = ["new" if member else None for member in members]
    groups = fit_groups(reference, {"shard": names}, "shard", fit)
    assert isinstance(groups, CalibrationGroups) and set(groups.calibrations) == {REST, "new"}
    model = groups.mismatch
    assert model is not None and len(groups.calibrations[REST].reference) == 700
    other, own = model.groups[REST], model.groups["new"]
    assert model.pairs == 900 and model.pi0 == pytest.approx((7 * other.pi0 + 2 * own.pi0) / 9)
    assert model.observed.sum() == pytest.approx(1) and model.null.sum() == pytest.approx(1)
    middle = (model.edges[1:] + model.edges[:-1]) / 2
    mean = [float(m.observed @ (m.edges[1:] + m.edges[:-1]) / 2) for m in (other, own)]
    assert float(model.observed @ middle) == pytest.approx((7 * mean[0] + 2 * mean[1]) / 9, abs=0.05)
    again = MismatchModel.from_dict(json.loads(json.dumps(model.to_dict())))
    assert again.column == "shard" and again.of_group("new").p([0.3]) == own.p([0.3])
    assert again.of_group(None).p([0.3]) == again.of_group("unknown").p([0.3]) == other.p([0.3])
    facts = make_facts(3, shard=["new", "unknown", None])
    assert groups.assign(facts).tolist() == ["new", REST, REST]


def test_values_come_from_facts_and_from_carried_columns() -> None:
    carried = ['{"origin": "alt", "score": 0.5}', '{"origin": null}', None]
    facts = make_facts(3, language=["en", None, "de"], carried=carried)
    assert read_columns(facts, ["language", "origin"]) == {
        "language": ["en", None, "de"],
        "origin": ["alt", None, None],
    }
    assert set(read_candidates(facts, "auto")) == {"language"}  # no other column has two large groups
    many = make_facts(100, carried=[json.dumps({"origin": "ab"[row % 2], "id": row}) for row in range(100)])
    assert set(read_candidates(many, "auto")) == {"language", "origin"}
    assert set(read_candidates(many, "kind")) == {"language"}
    with pytest.raises(AuditorError, match="'id' has 100 values in a sample of 100 pairs"):
        read_candidates(many, "id")


def test_a_column_that_cannot_name_groups_is_refused(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    publish_source(folder, ColumnSource(CARRIED, {"origin": "string", "score": "float64"}))
    for column in ("auto", "kind", "language", "caption_source", "shard", "origin", "nsfw"):
        check_column(folder, ["nsfw"], column)
    for column, words in (("key", "with few values"), ("score", "of this corpus"), ("orign", "of this corpus")):
        with pytest.raises(AuditorError, match=f"{column}' is no column {words}; choose from auto, kind, .* origin"):
            check_column(folder, ["nsfw"], column)
