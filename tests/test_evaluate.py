"""Evaluation from shards to results: encoding, splits, validation, Ray, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from auditor import evaluate as evaluation
from auditor.benchmark_encoding import EncodedShard, Encoder, EvaluationError, split_shards
from auditor.commands.evaluate import command
from auditor.console import as_json
from auditor.evaluate import EvaluateConfig, evaluate, join
from model.backbone import Backbone, load_backbone
from model.benchmarks import eccv
from model.benchmarks.analyses import ItemScores
from model.pixels import decode_image, fit_to
from model.retrieval import recall_from_embeddings
from model.similarity import similarity_matrix
from tests.clips import clip
from tests.corpora import picture, sample, write_tar


@pytest.fixture(scope="module")
def backbone(random_model: str) -> Backbone:
    return load_backbone(random_model)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two test shards of ten pictures with six captions, and a validation shard."""
    folder = tmp_path_factory.mktemp("shards")
    for number in range(2):
        keys = range(number * 10, number * 10 + 10)
        write_tar(folder / f"test-{number:05d}.tar", ((f"{i:03d}", sample(i, captions=6)) for i in keys))
    write_tar(folder / "val-00000.tar", ((f"{i:03d}", sample(i, captions=5)) for i in range(50, 62)))
    return folder


@pytest.fixture(scope="module")
def results(shards: Path, backbone: Backbone) -> dict:  # type: ignore[type-arg]
    with Encoder(backbone, decoders=1) as encoder:
        return evaluate(EvaluateConfig("flickr8k", str(shards)), backbone, None, encoder)


def test_tables_are_those_of_encoding_by_hand(shards: Path, backbone: Backbone, results: dict) -> None:  # type: ignore[type-arg]
    pixels = np.stack([fit_to(backbone.pixels, decode_image(picture(i))) for i in range(20)])
    captions = [line for i in range(20) for line in sample(i, captions=6)["txt"].decode().split("\n")[:5]]
    visual, text = backbone.encode_images(pixels), backbone.encode_texts(captions)
    plain = results["tables"][0]
    assert plain["reranked"] is False and plain["gallery"] == "test"
    ranks = []
    for row in range(100):
        scores = (visual @ text[row]).double()
        own = scores[row // 5]
        ranks.append(1 + int((scores > own + 1e-6).sum()))
    assert plain["text_to_visual"]["MnR"] == pytest.approx(np.mean(ranks), abs=0.02)
    assert plain["text_to_visual"]["queries"] == 100 and plain["visual_to_text"]["queries"] == 20
    assert results["data"]["captions"] == 100 and results["data"]["complete"] is False


def test_results_hold_what_the_dashboard_shows(results: dict) -> None:  # type: ignore[type-arg]
    assert [row["reranked"] for row in results["tables"]] == [False, True]
    assert results["rerank"]["fitted_on"] == "val" and results["rerank"]["media"] == 12
    for direction in ("visual_to_text", "text_to_visual"):
        assert {"share", "uncertainty", "mean_similarity", "random"} <= set(results["removal"][direction][0])
        assert len(results["deciles"][direction]["uncertainty"]) == 10
        assert 0 <= results["calibration"][direction]["uncertainty"]["auroc"] <= 1
    assert set(results["pearson"]) == {"PCC_V", "PCC_T"}
    json.dumps(results)


def test_cached_shards_are_used_and_equal(tmp_path: Path, shards: Path, backbone: Backbone) -> None:
    shard = split_shards(str(shards), "test")[0]
    with Encoder(backbone, decoders=1, cache=tmp_path) as encoder:
        first = encoder.encode(shard)
    stored = list(tmp_path.rglob("*.npz"))
    assert len(stored) == 1 and not list(tmp_path.rglob(".part*"))
    with Encoder(backbone, decoders=1, cache=tmp_path) as encoder:
        encoder.pool.close()  # a closed pool cannot decode: the second reading comes from the cache
        second = encoder.encode(shard)
    for name in EncodedShard.__slots__:
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))


def test_videos_score_by_mean_and_best_frame(tmp_path: Path, backbone: Backbone) -> None:
    clips = [("a", clip("mp4", 24)), ("b", clip("webm", 12)), ("c", clip("mp4", 30, size=(48, 64)))]
    write_tar(tmp_path / "test-00000.tar", ((k, {"mp4": data, "txt": b"a dog\nin the sun"}) for k, data in clips))
    with Encoder(backbone, frames=4, decoders=1) as encoder:
        split = join("test", list(encoder(split_shards(str(tmp_path), "test"))), None)
    data = split.data
    assert data.frames is not None and data.mask is not None and data.frames.shape[:2] == (3, 4)
    expected = similarity_matrix(*(torch.from_numpy(x) for x in (data.visual, data.frames, data.mask, data.text)))
    np.testing.assert_allclose(data.scores(slice(None), slice(None)), expected.numpy(), atol=1e-6)
    assert split.captions.tolist() == ["a dog", "in the sun"] * 3


def test_splits_are_found_in_both_layouts(tmp_path: Path) -> None:
    write_tar(tmp_path / "one" / "test" / "0.tar", [("a", sample(1))])
    assert len(split_shards(str(tmp_path / "one"), "test")) == 1
    with pytest.raises(EvaluationError, match="no shards of the split 'val'"):
        split_shards(str(tmp_path / "one"), "val")


def test_validation_on_the_reported_split_is_refused(shards: Path, backbone: Backbone) -> None:
    with Encoder(backbone, decoders=1) as encoder, pytest.raises(EvaluationError, match="may not be reported on test"):
        evaluate(EvaluateConfig("flickr8k", str(shards), validation="test"), backbone, None, encoder)


def test_media_in_both_splits_are_refused(tmp_path: Path, backbone: Backbone) -> None:
    for split in ("test", "val"):
        write_tar(tmp_path / f"{split}-0.tar", ((f"{i}", sample(i)) for i in range(6)))
    with (
        Encoder(backbone, decoders=1) as encoder,
        pytest.raises(EvaluationError, match="in the validation and the test"),
    ):
        evaluate(EvaluateConfig("shards", str(tmp_path)), backbone, None, encoder)


def test_too_many_broken_media_are_refused_and_few_are_named(tmp_path: Path, backbone: Backbone) -> None:
    good = [(f"{i}", sample(i)) for i in range(8)]
    write_tar(tmp_path / "test-0.tar", [*good, ("bad", {"jpg": b"no picture", "txt": b"a dog"})])
    with Encoder(backbone, decoders=1) as encoder:
        with pytest.raises(EvaluationError, match=r"1 of 9 media of test .* such as bad: "):
            evaluate(EvaluateConfig("shards", str(tmp_path)), backbone, None, encoder)
        results = evaluate(EvaluateConfig("shards", str(tmp_path), max_failed=0.2), backbone, None, encoder)
    assert results["data"]["media"] == 8 and results["data"]["failed"][0].startswith("bad")
    assert results["rerank"] is None and [row["reranked"] for row in results["tables"]] == [False]


def test_command_writes_json_and_says_that_it_is_not_the_benchmark(
    tmp_path: Path, shards: Path, random_model: str
) -> None:
    out = tmp_path / "results.json"
    arguments = ["flickr8k", "--data", str(shards), "--model", random_model, "--out", str(out), "--decoders", "1"]
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 0, result.output
    assert "not the benchmark's own test split (1,000 media)" in result.output and "Pearson" in result.output
    assert json.loads(out.read_text())["benchmark"] == "flickr8k"


def test_ray_gives_the_same_tables(tmp_path: Path, shards: Path, random_model: str, results: dict) -> None:  # type: ignore[type-arg]
    ray = pytest.importorskip("ray")
    from auditor.cli import run
    from jobs.evaluate import command as job

    given = ["flickr8k", "--data", str(shards), "--model", random_model, "--out", str(tmp_path / "results.json")]
    try:
        assert run([*given, "--workers", "2", "--cpus-per-worker", "1", "--address", "local"], job) == 0
    finally:
        ray.shutdown()
    again = json.loads((tmp_path / "results.json").read_text())
    for key in ("tables", "removal", "deciles", "calibration", "pearson", "rerank"):
        assert again[key] == json.loads(as_json(results[key])), key


def test_top_is_a_full_sort_cut_off(backbone: Backbone, shards: Path) -> None:
    with Encoder(backbone, decoders=1) as encoder:
        data = join("test", list(encoder(split_shards(str(shards), "test"))), 5).data
    scores = data.visual @ data.text.T
    np.testing.assert_array_equal(eccv.top(data, texts=True, depth=7, step=6), np.argsort(-scores, axis=1)[:, :7])
    np.testing.assert_array_equal(eccv.top(data, texts=False, depth=50, step=30), np.argsort(-scores.T, axis=1))


def test_eccv_needs_its_package_and_cocos_ids(
    monkeypatch: pytest.MonkeyPatch, backbone: Backbone, shards: Path
) -> None:
    seen = {}

    class Metrics:
        def compute_all_metrics(self, i2t, t2i, target_metrics, Ks):  # type: ignore[no-untyped-def]
            seen["i2t"], seen["t2i"] = i2t, t2i
            return {"eccv_map_at_r": {"i2t": 0.5, "t2i": 0.5}}

    package = type("package", (), {"Metrics": Metrics})
    monkeypatch.setattr(eccv.importlib, "import_module", lambda name: package)
    with Encoder(backbone, decoders=1) as encoder:
        data = join("test", list(encoder(split_shards(str(shards), "test"))), 5).data
    assert eccv.evaluate(data, [1, 2], range(100)) is None
    found = eccv.evaluate(data, range(1000, 1020), range(5000, 5100))
    assert found == {"eccv_map_at_r": {"i2t": 0.5, "t2i": 0.5}}
    best = int(np.argmax(data.visual[3] @ data.text.T))
    assert seen["i2t"][1003][0] == 5000 + best and len(seen["t2i"][5099]) == 20


def test_reranking_weights_are_equation_8(results: dict, shards: Path, backbone: Backbone) -> None:  # type: ignore[type-arg]
    with Encoder(backbone, decoders=1) as encoder:
        test = join("test", list(encoder(split_shards(str(shards), "test"))), 5)
    u = ItemScores(np.linspace(0, 1, 20), np.linspace(1, 0, 100))
    rerank = evaluation.fit_rerank(_Fixed(u), test)  # type: ignore[arg-type]
    other = evaluation.EncodedSplit("x", np.array(["z"] * 20), test.captions, test.data, *[test.data.visual] * 2, [])
    weights = evaluation.weights(rerank, other, u)
    np.testing.assert_allclose(weights.visual, np.exp(-rerank.beta_visual * u.visual))
    plain = recall_from_embeddings(test.data)
    best = recall_from_embeddings(test.data, visual_weight=weights.visual, text_weight=weights.text)
    assert best.text_to_visual.r1 >= plain.text_to_visual.r1 and best.visual_to_text.r1 >= plain.visual_to_text.r1


class _Fixed:
    """A head with given uncertainties."""

    def __init__(self, u: ItemScores):
        self.u = u

    def uncertainty_visual(self, _: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(self.u.visual)

    def uncertainty_text(self, _: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(self.u.text)
