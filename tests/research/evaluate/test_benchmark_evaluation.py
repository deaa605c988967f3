"""Evaluation from shards to results: sweeping, splits, validation, Ray, and refusals."""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest
import torch
from click.testing import CliRunner

from auditor.commands.train_and_evaluate.evaluate import command, show_results
from auditor.corpus.open_corpus import Shard
from auditor.corpus.tar_shard import TarShard
from auditor.research.evaluate import benchmark_evaluation as evaluation
from auditor.research.evaluate.benchmark_evaluation import EvaluateConfig, evaluate_benchmark
from auditor.research.evaluate.benchmark_splits import (
    BenchmarkSplit,
    EvaluationError,
    SplitSweeper,
    find_split_shards,
    join_shards,
    list_failed_media,
    make_audit_config,
)
from auditor.research.evaluate.pack import PackConfig, pack
from auditor.research.retrieval import eccv
from auditor.research.retrieval.analyses import ItemScores
from auditor.research.retrieval.protocols import PROTOCOLS
from auditor.research.retrieval.recall import EmbeddingSet, RetrievalError, compute_recall
from auditor.research.retrieval.rerank import fit_beta
from auditor.sweep.sweep_events import ShardReport
from auditor.terminal import to_json
from auditor.vectors import MediaVectors
from model.backbone import Backbone, load_backbone
from model.pixels import decode_image, fit_image
from model.similarity import similarity_matrix
from tests.support.clips import make_clip
from tests.support.corpora import make_picture, make_sample, write_tar


@pytest.fixture(scope="module")
def backbone(random_model: str) -> Backbone:
    return load_backbone(random_model)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two test shards of ten pictures with six captions, and a validation shard."""
    folder = tmp_path_factory.mktemp("shards")
    for number in range(2):
        keys = range(number * 10, number * 10 + 10)
        write_tar(folder / f"test-{number:05d}.tar", ((f"{i:03d}", make_sample(i, captions=6)) for i in keys))
    write_tar(folder / "val-00000.tar", ((f"{i:03d}", make_sample(i, captions=5)) for i in range(50, 62)))
    return folder


@pytest.fixture(scope="module")
def sweep_split(tmp_path_factory: pytest.TempPathFactory, backbone: Backbone) -> SplitSweeper:
    return SplitSweeper(backbone, make_audit_config("", str(tmp_path_factory.mktemp("swept")), "", 4, decoders=1))


@pytest.fixture(scope="module")
def results(shards: Path, backbone: Backbone, sweep_split: SplitSweeper) -> dict:  # type: ignore[type-arg]
    return evaluate_benchmark(EvaluateConfig("flickr8k", str(shards)), backbone, None, sweep_split)


def test_tables_are_those_of_encoding_by_hand(shards: Path, backbone: Backbone, results: dict) -> None:  # type: ignore[type-arg]
    pixels = np.stack([fit_image(backbone.pixels, decode_image(make_picture(i))) for i in range(20)])
    captions = [line for i in range(20) for line in make_sample(i, captions=6)["txt"].decode().split("\n")[:5]]
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


def test_swept_shards_are_read_and_not_encoded_again(tmp_path: Path, shards: Path, backbone: Backbone) -> None:
    splits = find_split_shards(str(shards), "test")
    sweep_split = SplitSweeper(backbone, make_audit_config("", str(tmp_path), "", 4, decoders=1))
    first = list(sweep_split("test", splits))
    stored = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}
    assert len(stored) == 2 and not list(tmp_path.rglob(".part*"))
    second = list(sweep_split("test", splits))
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")} == stored
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one.media.visual, other.media.visual)
        np.testing.assert_array_equal(one.text, other.text)
        assert one.keys.tolist() == other.keys.tolist() and one.captions.tolist() == other.captions.tolist()


def test_shards_keep_their_order_and_a_failed_one_is_refused(
    tmp_path: Path, shards: Path, backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    splits = find_split_shards(str(shards), "test")
    config = make_audit_config("", str(tmp_path), "", 4, decoders=1)
    ordered = [part.keys.tolist() for part in SplitSweeper(backbone, config)("test", splits)]

    class Backwards:
        """An engine that reports the last shard first."""

        failure: str | None = None

        def sweep(self, shards: Sequence[Shard], watch: object) -> Iterator[ShardReport]:
            return (ShardReport(shard.name, failure=self.failure) for shard in reversed(shards))

    engine = Backwards()
    sweep_split = SplitSweeper(backbone, config, lambda folder, backbone, config: engine)  # type: ignore[arg-type, return-value]
    assert [part.keys.tolist() for part in sweep_split("test", splits)] == ordered
    engine.failure = "the disk is gone"
    with pytest.raises(EvaluationError, match="shard test-00001 cannot be encoded: the disk is gone"):
        list(sweep_split("test", splits))


def test_a_medium_that_failed_is_named_once_and_each_span_by_its_times() -> None:
    rows = [
        ("a", 0, None, None, "corrupt", "no picture"),
        ("a", 1, None, None, "corrupt", "no picture"),
        ("a", 0, None, None, "duplicate_key", "seen before"),
        ("b", 0, None, None, "ok", None),
        ("c", 0, 0.0, 2.0, "ok", None),
        ("c", 1, 3.0, 4.5, "bad_span", "after the end"),
        ("c", 2, 3.0, 4.5, "bad_span", "after the end"),
    ]
    names = ("key", "caption_index", "start", "end", "status", "error_message")
    facts = pa.table({name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)})
    assert list_failed_media(facts) == ["a: no picture", "a: seen before", "c@3-4.5: after the end"]


def test_videos_score_by_mean_and_best_frame(tmp_path: Path, sweep_split: SplitSweeper) -> None:
    clips = [("a", make_clip("mp4", 24)), ("b", make_clip("webm", 12)), ("c", make_clip("mp4", 30, size=(48, 64)))]
    write_tar(tmp_path / "test-00000.tar", ((k, {"mp4": data, "txt": b"a dog\nin the sun"}) for k, data in clips))
    split = join_shards("test", list(sweep_split("test", find_split_shards(str(tmp_path), "test"))), None)
    data = split.data
    frames, mask = data.media.frames, data.media.mask
    assert frames is not None and mask is not None and frames.shape[:2] == (3, 4)
    expected = similarity_matrix(*(torch.from_numpy(x) for x in (data.visual, frames, mask, data.text)))
    np.testing.assert_allclose(data.scores(), expected.numpy(), atol=1e-6)
    assert split.captions.tolist() == ["a dog", "in the sun"] * 3


def test_splits_are_found_in_both_layouts(tmp_path: Path) -> None:
    write_tar(tmp_path / "one" / "test" / "0.tar", [("a", make_sample(1))])
    assert len(find_split_shards(str(tmp_path / "one"), "test")) == 1
    with pytest.raises(EvaluationError, match="no shards of the split 'val'"):
        find_split_shards(str(tmp_path / "one"), "val")


def test_validation_on_the_reported_split_is_refused(
    shards: Path, backbone: Backbone, sweep_split: SplitSweeper
) -> None:
    with pytest.raises(EvaluationError, match="may not be reported on test"):
        evaluate_benchmark(EvaluateConfig("flickr8k", str(shards), validation="test"), backbone, None, sweep_split)


def test_media_in_both_splits_are_refused(tmp_path: Path, backbone: Backbone, sweep_split: SplitSweeper) -> None:
    for split in ("test", "val"):
        write_tar(tmp_path / f"{split}-0.tar", ((f"{i}", make_sample(i)) for i in range(6)))
    with pytest.raises(RetrievalError, match="in the validation and the test"):
        evaluate_benchmark(EvaluateConfig("shards", str(tmp_path)), backbone, None, sweep_split)


def test_too_many_broken_media_are_refused_and_few_are_named(
    tmp_path: Path, backbone: Backbone, sweep_split: SplitSweeper
) -> None:
    good = [(f"{i}", make_sample(i)) for i in range(8)]
    write_tar(tmp_path / "test-0.tar", [*good, ("bad", {"jpg": b"no picture", "txt": b"a dog"})])
    with pytest.raises(EvaluationError, match=r"1 of 9 media of test .* such as bad: "):
        evaluate_benchmark(EvaluateConfig("shards", str(tmp_path)), backbone, None, sweep_split)
    config = EvaluateConfig("shards", str(tmp_path), max_failed=0.2)
    results = evaluate_benchmark(config, backbone, None, sweep_split)
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


@pytest.mark.filterwarnings("default")  # Ray Data's own
def test_ray_gives_the_same_tables(tmp_path: Path, shards: Path, random_model: str, results: dict) -> None:  # type: ignore[type-arg]
    ray = pytest.importorskip("ray")
    from auditor.cli import run_command_line
    from jobs.evaluate import command as job

    given = ["flickr8k", "--data", str(shards), "--model", random_model, "--out", str(tmp_path / "results.json")]
    try:
        assert run_command_line([*given, "--workers", "2", "--cpus-per-worker", "1", "--address", "local"], job) == 0
    finally:
        ray.shutdown()
    again = json.loads((tmp_path / "results.json").read_text())
    for key in ("tables", "removal", "deciles", "calibration", "pearson", "rerank"):
        assert again[key] == json.loads(to_json(results[key])), key


def test_top_is_a_full_sort_cut_off(sweep_split: SplitSweeper, shards: Path) -> None:
    data = join_shards("test", list(sweep_split("test", find_split_shards(str(shards), "test"))), 5).data
    scores = data.visual @ data.text.T
    np.testing.assert_array_equal(eccv.rank_top(data, texts=True, depth=7, step=6), np.argsort(-scores, axis=1)[:, :7])
    np.testing.assert_array_equal(eccv.rank_top(data, texts=False, depth=50, step=30), np.argsort(-scores.T, axis=1))


class Metrics:
    """A stand-in for the package: stores its arguments and looks up each of its queries, as the package does."""

    queries: tuple[int, ...] = ()
    seen: ClassVar[dict[str, dict[int, list[int]]]] = {}

    def compute_all_metrics(self, i2t, t2i, target_metrics, Ks):  # type: ignore[no-untyped-def]
        self.seen.update(i2t=i2t, t2i=t2i)
        for image in self.queries:
            i2t[image]
        return {name: {"i2t": 0.5, "t2i": 0.25} for name in target_metrics}


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> type[Metrics]:
    monkeypatch.setitem(sys.modules, "eccv_caption", SimpleNamespace(Metrics=Metrics))  # type: ignore[arg-type]
    monkeypatch.setattr(Metrics, "queries", ())
    return Metrics


def coco_split(folder: Path, images: int = 20) -> tuple[BenchmarkSplit, list[Shard]]:
    """COCO as `auditor pack` packs it from Karpathy's file, with random embeddings."""
    source = folder / "in"
    source.mkdir(parents=True)
    rows = []
    for i in range(images):
        (source / f"{i}.jpg").write_bytes(make_picture(i))
        sentences = [{"raw": f"caption {i} {n}", "sentid": 700_000 + 10 * i + n} for n in range(6)]
        rows.append({"filename": f"{i}.jpg", "split": "test", "cocoid": 1000 + i, "sentences": sentences})
    (source / "dataset_coco.json").write_text(json.dumps({"images": rows}))
    pack("coco", source, folder / "out", PackConfig(samples_per_shard=7))
    rng = np.random.default_rng(0)
    data = EmbeddingSet(
        MediaVectors(rng.normal(size=(images, 8)).astype(np.float32)),
        rng.normal(size=(5 * images, 8)),
        np.arange(images),
        np.arange(5 * images) // 5,
    )
    keys = np.array([str(1000 + i) for i in range(images)])
    return BenchmarkSplit("test", keys, np.array([]), data, []), find_split_shards(str(folder / "out"), "test")


def test_eccv_runs_on_karpathys_coco(tmp_path: Path, package: type[Metrics]) -> None:
    test, shards = coco_split(tmp_path)
    found = evaluation.compute_eccv_figures("coco", test, shards)
    assert found["eccv_caption"]["eccv_map_at_r"] == {"i2t": 0.5, "t2i": 0.25} and found["eccv_skipped"] is None
    best = int(np.argmax(test.data.visual[3] @ test.data.text.T))
    assert package.seen["i2t"][1003][0] == 700_000 + 10 * (best // 5) + best % 5
    assert len(package.seen["t2i"]) == 100 and len(package.seen["t2i"][700_194]) == 20
    assert evaluation.compute_eccv_figures("flickr8k", test, shards) == {"eccv_caption": None, "eccv_skipped": None}


def test_eccv_says_why_it_is_skipped(
    tmp_path: Path, package: type[Metrics], monkeypatch: pytest.MonkeyPatch, shards: Path
) -> None:
    test, packed = coco_split(tmp_path)

    def reason(split: BenchmarkSplit, shards: Sequence[Shard]) -> str:
        found = evaluation.compute_eccv_figures("coco", split, shards)
        assert found["eccv_caption"] is None
        return str(found["eccv_skipped"])

    named = np.array([f"{i:03d}" for i in range(20)])
    assert "has 5 captions and 0 caption ids" in reason(
        replace(test, keys=named), find_split_shards(str(shards), "test")
    )
    assert "has 5 captions and 0 caption ids" in reason(test, packed[:1])
    assert "remote" in reason(test, [TarShard("test-00000", "s3://bucket/test-00000.tar")])
    assert "cannot be read" in reason(test, [TarShard("gone", str(tmp_path / "gone.tar"))])
    ids = json.dumps({"caption_ids": ["sentid:1", "sentid:2"]}).encode()
    old = {"jpg": make_picture(0), "txt": b"a\nb", "json": ids}
    write_tar(tmp_path / "old" / "test-0.tar", [("1000", old)])
    one = test.data.take_visual(np.arange(1)).take_text(np.arange(2))
    assert "pack them again" in reason(
        replace(test, keys=test.keys[:1], data=one), find_split_shards(str(tmp_path / "old"), "test")
    )
    monkeypatch.setattr(package, "queries", (1003, 391895))
    assert "not all of its images and captions are in this split (first 391895)" in reason(test, packed)
    monkeypatch.setitem(sys.modules, "eccv_caption", None)
    assert "pip install eccv_caption" in reason(test, packed)


def test_ids_that_do_not_fit_the_embeddings_are_refused(tmp_path: Path, package: type[Metrics]) -> None:
    test, _ = coco_split(tmp_path)
    with pytest.raises(eccv.EccvError, match="20 images have 2 ids"):
        eccv.compute_eccv_metrics(test.data, [1, 2], range(100))


def test_the_command_prints_eccv_or_why_not(results: dict, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[type-arg]
    show_results(results, False)
    assert results["eccv_skipped"] is None and "ECCV" not in capsys.readouterr().out
    show_results({**results, "eccv_skipped": "the ids are gone"}, False)
    assert "no figures of ECCV Caption: the ids are gone" in capsys.readouterr().out
    show_results({**results, "eccv_caption": {"eccv_map_at_r": {"i2t": 0.321, "t2i": 0.3}}}, False)
    assert "ECCV Caption: mAP@R 32.1 v2t, 30.0 t2v" in capsys.readouterr().out


def test_folds_of_an_incomplete_coco_are_not_called_the_benchmarks() -> None:
    rng = np.random.default_rng(0)
    visual, text = rng.normal(size=(2, 5000, 4)).astype(np.float32)
    whole = EmbeddingSet(MediaVectors(visual), text, *[np.arange(5000)] * 2)
    names = np.array([str(i) for i in range(5000)])
    u = ItemScores(np.zeros(5000), np.zeros(5000))
    complete = BenchmarkSplit("test", names, names, whole, [])
    kept = np.arange(5000) != 1500
    broken = replace(complete, keys=names[kept], data=whole.take_visual(kept).take_text(kept), failed=["1500: broken"])

    def galleries(split: BenchmarkSplit) -> list[str]:
        return [row["gallery"] for row in evaluation.compute_recall_tables(PROTOCOLS["coco"], split, u, None)]

    assert galleries(complete) == ["COCO 5K", "COCO 1K"]
    assert galleries(broken) == ["COCO 4999", "COCO 4999, folds of 1000"]


def test_reranking_does_not_lower_r1_of_the_split_it_is_fitted_on(shards: Path, sweep_split: SplitSweeper) -> None:
    test = join_shards("test", list(sweep_split("test", find_split_shards(str(shards), "test"))), 5)
    u = ItemScores(np.linspace(0, 1, 20), np.linspace(1, 0, 100))
    rerank = fit_beta(test.keys.tolist(), test.data, u)
    plain, best = compute_recall(test.data), compute_recall(rerank.apply(["z"] * 20, test.data, u))
    assert best.text_to_visual.r1 >= plain.text_to_visual.r1 and best.visual_to_text.r1 >= plain.visual_to_text.r1
