"""The studies on small generated features: noise gets low weights, tables have their rows, files are written."""

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

import auditor.research.evaluate.reproduce
from auditor.commands.train_and_evaluate.reproduce import TABLES, command, describe_data, round_row, show_paper_figures
from auditor.research.evaluate import studies
from auditor.research.evaluate.benchmark_splits import EvaluationError, find_split_shards
from auditor.research.evaluate.complexity import study_complexity
from auditor.research.evaluate.projection_training import FeaturePairs, ProjectionTraining, train_projections
from auditor.research.evaluate.reproduce import (
    PAPER_DATA,
    STUDIES,
    ReproduceConfig,
    build_results,
    explain_incomparable,
    prepare_study,
    reproduce,
    write_results,
)
from auditor.research.evaluate.studies import BASELINE, Study, StudyFindings, shuffle_captions
from auditor.research.evaluate.trunk_features import FeatureEncoder, FeatureShard
from auditor.research.retrieval.analyses import compute_auroc
from auditor.research.retrieval.protocols import PROTOCOLS, read_paper_figures
from auditor.research.retrieval.recall import EmbeddingSet, compute_recall
from auditor.vectors import MediaVectors
from model.backbone import load_backbone
from tests.support.corpora import make_sample, write_tar

COUNTED_ONCE = cache(study_complexity)
QUICK = ProjectionTraining(dim=16, epochs=3, batch=64)


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

    return EmbeddingSet(MediaVectors(unit(pairs.visual)), unit(pairs.text), np.arange(len(pairs.visual)), pairs.owners)


@pytest.fixture(scope="module")
def study() -> Study:
    learn, validation, test = feature_pairs(150, seed=1), feature_pairs(30, seed=2), feature_pairs(60, seed=3)
    captions = [f"item {i} of {owner}" for i, owner in enumerate(test.owners)]
    return Study(learn, validation, test, as_embeddings(test), as_embeddings(learn), captions, seeds=1, settings=QUICK)


def test_training_learns_and_repeats_itself(study: Study) -> None:
    untrained = compute_recall(train_projections(study.train, replace(QUICK, epochs=0)).embed(study.test))
    learned = [
        compute_recall(train_projections(study.train, replace(QUICK, epochs=12)).embed(study.test)) for _ in "ab"
    ]
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
    plain = compute_recall(train_projections(noisy, config).embed(study.test))
    weighed = compute_recall(train_projections(noisy, config, 1.0 - wrong).embed(study.test))
    assert weighed.rsum > plain.rsum + 5


def test_cross_fitting_finds_the_shuffled_pairs_also_against_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    noisy, wrong = shuffle_captions(feature_pairs(400, seed=5), 0.4, seed=0)
    config = replace(QUICK, epochs=12, **BASELINE)
    whole, pi0 = studies.cross_fit_mismatch(noisy, config)
    assert ((whole >= 0) & (whole <= 1)).all() and 0.25 < pi0 < 0.6
    assert compute_auroc(whole, wrong.astype(float)) > 0.85
    monkeypatch.setattr(studies, "REFERENCE_PAIRS", 200)
    p, pi0 = studies.cross_fit_mismatch(noisy, config)
    assert not np.array_equal(p, whole) and 0.2 < pi0 < 0.6
    assert compute_auroc(p, wrong.astype(float)) > 0.8


def test_a_sample_of_pairs_has_whole_media_and_small_data_is_all_of_it() -> None:
    owners = np.random.default_rng(0).permutation(np.repeat(np.arange(100), 5))
    assert studies.sample_media_pairs(owners, 500, seed=0).tolist() == list(range(500))
    rows = studies.sample_media_pairs(owners, 52, seed=0)
    assert len(rows) == 50 and (np.bincount(owners[rows], minlength=100) % 5 == 0).all()
    assert set(owners[rows]) != set(owners[studies.sample_media_pairs(owners, 52, seed=1)])


@pytest.mark.parametrize("name", ["removal", "deciles", "trust"])
def test_curves_are_means_over_the_seeds(study: Study, name: str) -> None:
    both = replace(study, seeds=2)
    rows = STUDIES[name](both).rows

    def alone(seed: int) -> Study:
        """A study with one seed that uses the models of `seed`."""
        trained = {replace(config, seed=0): model for config, model in both.trained.items() if config.seed == seed}
        return replace(study, seeds=1, trained=trained)

    first, second = (STUDIES[name](alone(seed)).rows for seed in range(2))
    assert first != second
    for row, a, b in zip(rows, first, second, strict=True):
        assert {k: v for k, v in row.items() if isinstance(v, float)} == pytest.approx(
            {k: (a[k] + b[k]) / 2 for k, v in row.items() if isinstance(v, float)}
        )


def test_deviation_of_two_seeds_is_that_of_a_sample(study: Study) -> None:
    pair = replace(study, seeds=2)
    results = [compute_recall(model.embed(pair.test)) for model in pair.models()]
    difference = abs(results[0].rsum - results[1].rsum)
    assert difference and studies.average_recalls(results)["sd"] == pytest.approx(difference / np.sqrt(2))
    assert round_row({"sd": studies.average_recalls(results[:1])["sd"]}) == {"sd": None}


def encoded(split: str, media: int, frames: int = 1, failed: int = 0) -> FeatureShard:
    pairs = feature_pairs(media)
    return FeatureShard(
        keys=np.array([f"{split}{i}" for i in range(media)]),
        captions=np.array(["a dog"] * len(pairs.text)),
        owners=pairs.owners,
        counts=np.full(media, frames),
        video=np.full(media, frames > 1),
        frames=np.repeat(as_embeddings(pairs).visual, frames, axis=0),
        text=as_embeddings(pairs).text,
        visual_features=np.repeat(pairs.visual, frames, axis=0),
        text_features=pairs.text,
        failed=np.array([f"bad{i}: truncated" for i in range(failed)], dtype=np.str_),
    )


def prepared(monkeypatch: pytest.MonkeyPatch, train: FeatureShard, test: FeatureShard) -> Study:
    shards = {"train": train, "test": test}
    monkeypatch.setattr(auditor.research.evaluate.reproduce, "find_split_shards", lambda data, split: [split])
    config = ReproduceConfig(("pearson",), data="anywhere")
    return prepare_study(config, lambda names: iter([shards[str(name)] for name in names]))


def test_cached_shards_are_used_and_equal(tmp_path: Path, random_model: str) -> None:
    write_tar(tmp_path / "test-0.tar", ((f"{i}", make_sample(i, captions=2)) for i in range(4)))
    backbone, [shard] = load_backbone(random_model), find_split_shards(str(tmp_path), "test")
    with FeatureEncoder(backbone, decoders=1, cache=tmp_path / "cache") as encoder:
        first = encoder.encode(shard)
    assert len(list(tmp_path.rglob("*.npz"))) == 1 and not list(tmp_path.rglob(".part*"))
    with FeatureEncoder(backbone, decoders=1, cache=tmp_path / "cache") as encoder:
        encoder.pool.close()  # a closed pool cannot decode: the second reading comes from the cache
        second = encoder.encode(shard)
    for name in FeatureShard.__slots__:
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))


def test_the_text_tower_and_the_image_projection_are_trained(
    tmp_path: Path, random_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They start as the backbone, which stays as it is, and end closer to the training pairs."""
    for split, first in (("train", 0), ("test", 100)):
        write_tar(tmp_path / f"{split}-0.tar", ((f"{i}", make_sample(i)) for i in range(first, first + 24)))
    backbone = load_backbone(random_model)
    before = backbone.compute_fingerprint()
    studies_seen: list[Study] = []

    def keep_study(study: Study) -> StudyFindings:
        studies_seen.append(study)
        return StudyFindings([])

    for name in ("removal", "trust"):
        monkeypatch.setitem(STUDIES, name, keep_study)
    config = ReproduceConfig(("removal", "trust"), data=str(tmp_path), train="text")
    with FeatureEncoder(backbone, decoders=1) as encoder:
        removal, trust = reproduce(config, encoder, backbone)
    study = studies_seen[0]
    assert [removal["table"], trust["table"]] == ["removal", "trust"] and studies_seen[1] is study
    assert "text tower" in removal["data"]["media_and_captions"]["trained"] and study.settings.rate == 1e-4
    settings = ProjectionTraining(epochs=0, batch=20)
    start = train_projections(study.train, settings).embed(study.test)
    np.testing.assert_allclose(start.text, study.frozen.text, atol=1e-5)
    np.testing.assert_allclose(start.visual, study.frozen.visual, atol=1e-5)
    trained = train_projections(study.train, replace(settings, epochs=8, **BASELINE)).embed(study.train)
    untrained = train_projections(study.train, settings).embed(study.train)
    assert np.abs(trained.text - untrained.text).max() > 0.01
    margins = [
        data.media.take(data.text_groups).own_similarity(data.text).mean() - data.scores().mean()
        for data in (untrained, trained)
    ]
    assert margins[1] > margins[0] + 0.005
    assert backbone.compute_fingerprint() == before


def test_betas_are_fitted_on_a_bounded_part(monkeypatch: pytest.MonkeyPatch) -> None:
    found = prepared(monkeypatch, encoded("train", 60), encoded("test", 20))
    assert [len(part.visual) for part in (found.train, found.validation, found.test)] == [50, 10, 20]
    monkeypatch.setattr(auditor.research.evaluate.reproduce, "VALIDATION_MEDIA", 4)
    found = prepared(monkeypatch, encoded("train", 60), encoded("test", 20))
    assert [len(part.visual) for part in (found.train, found.validation)] == [56, 4]


def test_media_that_failed_are_named_and_too_many_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    found = prepared(monkeypatch, encoded("train", 200, failed=2), encoded("test", 20))
    stored = build_results(ReproduceConfig(()), "pearson", StudyFindings([]), None, found)["data"]["media_and_captions"]
    assert stored["failed"] == {"train": ["bad0: truncated", "bad1: truncated"], "test": []}
    assert any(note.startswith("left out of train: 2 media") for note in describe_data(stored))
    with pytest.raises(EvaluationError, match="1 of 21 media of test cannot be used"):
        prepared(monkeypatch, encoded("train", 60), encoded("test", 20, failed=1))
    with pytest.raises(EvaluationError, match="3 of 63 media of train"):
        prepared(monkeypatch, encoded("train", 60, failed=3), encoded("test", 20))


def test_videos_keep_their_frames_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for frames, similarity in ((1, "cosine"), (3, "mean of the whole clip and its best frame")):
        found = prepared(monkeypatch, encoded("train", 60, frames), encoded("test", 20, frames))
        stored = build_results(ReproduceConfig(()), "pearson", StudyFindings([]), None, found)["data"][
            "media_and_captions"
        ]
        assert stored["similarity"] == similarity and "from scratch" in stored["trained"]
        assert any("best frame" in note for note in describe_data(stored)) == (frames > 1)
        assert (found.test.frames is None) == (found.frozen.media.frames is None) == (frames == 1)


def test_the_best_frame_counts_in_training_and_ranking() -> None:
    """Videos with one matching frame of three: projections that use frames find it, those of the mean hardly do."""
    pairs = feature_pairs(240)
    noise = np.random.default_rng(0).permutation(len(pairs.visual))
    other = np.random.default_rng(1).permutation(len(pairs.visual))
    frames = np.stack([pairs.visual[noise], pairs.visual, pairs.visual[other]], axis=1)
    mask = np.ones(frames.shape[:2], dtype=bool)
    videos = FeaturePairs(frames.mean(axis=1), pairs.text, pairs.owners, frames, mask)
    settings = ProjectionTraining(epochs=6, dim=32, batch=64)
    by_frame = train_projections(videos, settings).embed(videos)
    by_mean = train_projections(replace(videos, frames=None, mask=None), settings).embed(
        replace(videos, frames=None, mask=None)
    )
    assert by_frame.media.frames is not None and by_frame.media.frames.shape == (240, 3, 32)
    assert compute_recall(by_frame).rsum > compute_recall(by_mean).rsum


def test_a_video_of_equal_frames_is_an_image() -> None:
    pairs = feature_pairs(80)
    frames = np.repeat(pairs.visual[:, None], 2, axis=1)
    videos = replace(pairs, frames=frames, mask=np.ones((80, 2), dtype=bool))
    settings = ProjectionTraining(epochs=2, dim=16, batch=32)
    first, second = train_projections(pairs, settings).embed(pairs), train_projections(videos, settings).embed(videos)
    np.testing.assert_allclose(first.visual, second.visual, atol=1e-4)
    assert compute_recall(first) == compute_recall(second)


@pytest.mark.parametrize("name", sorted(STUDIES))
def test_every_study_gives_rows_that_can_be_stored(
    study: Study, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Cross-fitting takes long and has its own test.
    monkeypatch.setattr(studies, "cross_fit_mismatch", lambda pairs, _: (np.full(len(pairs.owners), 0.1), 0.1))
    findings = STUDIES[name](study)
    assert findings.rows and all(row.keys() == findings.rows[0].keys() for row in findings.rows)
    paths = write_results(build_results(ReproduceConfig((name,)), name, findings, None, study), tmp_path)
    assert json.loads(paths[0].read_text())["table"] == name
    ElementTree.fromstring(paths[1].read_text())


def test_ablation_has_the_rows_of_table_5(study: Study) -> None:
    rows = studies.study_ablation(study).rows
    printed = read_paper_figures("ablation")
    columns = ("L_uct", "L_div", "re-rank")
    for target in ("h", "retrieval"):
        terms = [[row[c] for c in columns] for row in rows if row["target"] == target]
        assert terms == [[row[c] for c in columns] for row in printed]
    assert all(row["beta_visual"] == row["beta_text"] == 0 for row in rows if not row["re-rank"])


def test_variants_are_those_of_the_paper(study: Study) -> None:
    for name in ("prototypes", "evidence"):
        assert [row["setting"] for row in STUDIES[name](study).rows] == [
            row["setting"] for row in read_paper_figures(name)
        ]


def test_every_table_is_described_and_has_a_study() -> None:
    assert set(TABLES) == {*STUDIES, "complexity"} and set(PAPER_DATA) <= set(STUDIES)


@pytest.fixture
def counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditor.research.evaluate.reproduce, "study_complexity", COUNTED_ONCE)


@pytest.mark.usefixtures("counted_once")
def test_complexity_command_needs_no_data(tmp_path: Path) -> None:
    result = CliRunner().invoke(command, ["complexity", "--out", str(tmp_path), "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["paper"][0]["parameters (M)"] == 84.2
    assert (tmp_path / "complexity.svg").exists()


def test_no_seed_is_a_usage_error() -> None:
    result = CliRunner().invoke(command, ["ablation", "--seeds", "0"])
    assert result.exit_code == 2 and "--seeds" in result.output


def test_a_table_without_data_says_what_it_needs() -> None:
    from auditor.cli import run_command_line

    assert run_command_line(["reproduce", "ablation"]) == 1


def test_findings_without_series_draw_nothing(tmp_path: Path) -> None:
    paths = write_results(
        build_results(ReproduceConfig(()), "pearson", StudyFindings([{"a": 1}]), None, None), tmp_path
    )
    assert [path.name for path in paths] == ["pearson.json"]


@pytest.mark.usefixtures("counted_once")
def test_nothing_is_written_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(command, ["complexity"])
    assert result.exit_code == 0 and "84.2" in result.output and "written" not in result.output
    assert not list(tmp_path.iterdir())


def test_figures_of_another_split_are_not_to_be_compared(capsys: pytest.CaptureFixture[str]) -> None:
    few = SimpleNamespace(test=SimpleNamespace(visual=np.zeros((50, 2))))
    why = explain_incomparable(PROTOCOLS["coco"], few)  # type: ignore[arg-type]
    assert why == "this test split has 50 media, that of coco 5,000"
    show_paper_figures([{"R@1": 63.6}], why)
    printed = "".join(capsys.readouterr().out.split())  # the table wraps its title
    assert "thepaper'sfigures(notcomparablewiththoseabove)" in printed and printed.endswith(why.replace(" ", ""))
    whole = SimpleNamespace(test=SimpleNamespace(visual=np.zeros((5000, 2))))
    assert explain_incomparable(PROTOCOLS["coco"], whole) is None  # type: ignore[arg-type]
    show_paper_figures([{"R@1": 63.6}], None)
    assert "not comparable" not in capsys.readouterr().out
