"""The studies on small made-up features: noise is found and weighed down, tables have their rows, files are written."""

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from auditor import studies
from auditor.commands.reproduce import TABLES, command
from auditor.line_chart import line_chart
from auditor.reproduce import PAPER_DATA, ReproduceConfig, described, write
from auditor.studies import BASELINE, STUDIES, Findings, Study
from model.benchmarks import paper
from model.benchmarks.heads import FeaturePairs, HeadTraining, shuffle_captions, train
from model.retrieval import EmbeddingSet, recall_from_embeddings

QUICK = HeadTraining(dim=16, epochs=3, batch=64)


def feature_pairs(media: int, captions: int = 3, seed: int = 0) -> FeaturePairs:
    """Two noisy linear views of the same hidden vectors; the views are the same for every seed."""
    world = np.random.default_rng(99)
    to_visual, to_text = world.normal(size=(12, 24)), world.normal(size=(12, 20))
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=(media, 12))
    owners = np.repeat(np.arange(media), captions)
    visual = hidden @ to_visual + rng.normal(size=(media, 24))
    text = (hidden[owners] + 0.4 * rng.normal(size=(len(owners), 12))) @ to_text
    return FeaturePairs(visual.astype(np.float32), text.astype(np.float32), owners)


def as_embeddings(pairs: FeaturePairs) -> EmbeddingSet:
    def unit(x: np.ndarray) -> np.ndarray:
        return x[:, :16] / np.linalg.norm(x[:, :16], axis=1, keepdims=True)

    return EmbeddingSet(unit(pairs.visual), unit(pairs.text), np.arange(len(pairs.visual)), pairs.owners)


@pytest.fixture(scope="module")
def study() -> Study:
    learn, validation, test = feature_pairs(150, seed=1), feature_pairs(30, seed=2), feature_pairs(60, seed=3)
    return Study(learn, validation, test, as_embeddings(test), as_embeddings(learn), seeds=1, settings=QUICK)


def test_training_learns_and_repeats_itself(study: Study) -> None:
    untrained = recall_from_embeddings(train(study.train, replace(QUICK, epochs=0)).embed(study.test))
    learned = [recall_from_embeddings(train(study.train, replace(QUICK, epochs=12)).embed(study.test)) for _ in "ab"]
    assert learned[0] == learned[1]
    assert learned[0].rsum > untrained.rsum + 100


def test_shuffling_moves_the_share_it_says(study: Study) -> None:
    noisy, wrong = shuffle_captions(study.train, 0.5, seed=0)
    assert 0.47 < wrong.mean() <= 0.5  # a caption may land on its own medium
    assert sorted(noisy.owners) == sorted(study.train.owners)
    assert (noisy.owners[~wrong] == study.train.owners[~wrong]).all()
    assert not shuffle_captions(study.train, 0.0, seed=0)[1].any()


def test_pairs_of_weight_zero_teach_nothing(study: Study) -> None:
    noisy, wrong = shuffle_captions(study.train, 0.5, seed=0)
    config = replace(QUICK, epochs=12, **BASELINE)
    plain = recall_from_embeddings(train(noisy, config).embed(study.test))
    weighed = recall_from_embeddings(train(noisy, config, 1.0 - wrong).embed(study.test))
    assert weighed.rsum > plain.rsum + 5


def test_cross_fitting_finds_the_shuffled_pairs(study: Study) -> None:
    noisy, wrong = shuffle_captions(feature_pairs(400, seed=5), 0.4, seed=0)
    p, pi0 = studies.cross_fitted_mismatch(noisy, replace(QUICK, epochs=12, **BASELINE))
    assert ((p >= 0) & (p <= 1)).all() and 0.25 < pi0 < 0.6
    assert studies.auroc(p, wrong.astype(float)) > 0.85


@pytest.mark.parametrize("name", sorted(STUDIES))
def test_every_study_gives_rows_that_can_be_stored(study: Study, name: str, tmp_path: Path) -> None:
    findings = STUDIES[name](study)
    assert findings.rows and all(row.keys() == findings.rows[0].keys() for row in findings.rows)
    paths = write(described(ReproduceConfig(name), findings, None, study), tmp_path)
    assert json.loads(paths[0].read_text())["table"] == name
    assert len(paths) == 1 + bool(findings.series)


def test_ablation_has_the_rows_of_table_5(study: Study) -> None:
    rows = studies.ablation(study).rows
    printed = paper.of("ablation")
    columns = ("L_uct", "L_div", "re-rank")
    assert [[row[c] for c in columns] for row in rows] == [[row[c] for c in columns] for row in printed]


def test_variants_are_those_of_the_paper(study: Study) -> None:
    for name in ("prototypes", "evidence"):
        assert [row["setting"] for row in STUDIES[name](study).rows] == [row["setting"] for row in paper.of(name)]


def test_every_table_is_described_and_has_a_study() -> None:
    assert set(TABLES) == {*STUDIES, "complexity"} and set(PAPER_DATA) <= set(STUDIES)


def test_chart_is_well_formed_whatever_the_names() -> None:
    chart = line_chart("<b>&", "x", "y", {"a<script>": [(0.0, 1.0), (1.0, 1.0)], "b": []})
    root = ElementTree.fromstring(chart)
    assert len(root.findall("{http://www.w3.org/2000/svg}polyline")) == 2
    ElementTree.fromstring(line_chart("", "", "", {}))


def test_complexity_command_needs_no_data(tmp_path: Path) -> None:
    result = CliRunner().invoke(command, ["complexity", "--out", str(tmp_path), "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["paper"][0]["parameters (M)"] == 84.2


def test_a_table_without_data_says_what_it_needs() -> None:
    from auditor.cli import run

    assert run(["reproduce", "ablation"]) == 1


def test_findings_without_series_draw_nothing(tmp_path: Path) -> None:
    paths = write(described(ReproduceConfig("pearson"), Findings([{"a": 1}]), None, None), tmp_path)
    assert [path.name for path in paths] == ["pearson.json"]
