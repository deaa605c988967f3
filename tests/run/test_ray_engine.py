"""Our part of an audit on a cluster, tested without one: a worker's rules, and the accounting of its answers."""

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import ray

from auditor.audit_folder.embeddings import name_embeddings_file
from auditor.audit_folder.folder import Folder
from auditor.corpus.open_corpus import Shard, open_corpus
from auditor.run import ray_engine
from auditor.run.ray_engine import Outcome, Placement, RayEngine, SweepWorker, WorkerError, summarize_error
from auditor.sweep.sweep_config import SweepConfig
from auditor.sweep.sweep_events import ShardReport
from auditor.sweep.vector_sweep import StoredModel
from jobs import cluster
from model.checkpoint import load_model
from tests.support.corpora import write_corpus
from tests.support.stored import make_pairs, write_datacomp


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus"), shards=3, size=4)


def ask(worker: SweepWorker, shards: Sequence[Shard]) -> list[tuple[ShardReport, bool]]:
    """The reports of a worker, and whether each shard was swept now."""
    made = worker({"item": [pickle.dumps((shard.name, shard)) for shard in shards]})
    reports = []
    for name, result, failure in map(pickle.loads, made["outcome"]):
        report, fresh, _ = result or (ShardReport(name, failure=failure), True, "")
        reports.append((replace(report, problems=tuple(report.problems)), fresh))
    return reports


def test_a_worker_skips_what_is_done_and_survives_what_cannot_be_read(
    corpus: Path, random_model: str, tmp_path: Path
) -> None:
    shards = list(open_corpus(str(corpus)).shards)
    (tmp_path / "bad.tar").write_bytes(b"")
    bad = open_corpus(str(tmp_path / "bad.tar")).shards[0]
    print_of = load_model(random_model).backbone.fingerprint
    worker = SweepWorker(Folder(tmp_path / "out"), random_model, print_of, "cpu", SweepConfig(frames=2, decoders=1), 1)
    with worker.sweeper:
        first = ask(worker, [shards[0], bad, shards[1]])
        assert [fresh for _, fresh in first] == [True, True, True]
        assert [report.rows for report, _ in first] == [4, 0, 4]
        assert "is empty" in (first[1][0].failure or "")
        again = ask(worker, shards)
        assert {report.shard: fresh for report, fresh in again} == {"00000": False, "00001": False, "00002": True}
        assert again[0][0] == first[0][0]


def test_a_worker_sweeps_stored_embeddings(tmp_path: Path) -> None:
    shards = list(open_corpus(f"datacomp:{write_datacomp(tmp_path / 'corpus', l14_txt=make_pairs(299)[1])}").shards)
    model = StoredModel("l14_img/l14_txt", 16, 100.0)
    worker = SweepWorker(Folder(tmp_path / "out"), model, model.fingerprint, "cpu", SweepConfig(), 1)
    (bad, _), (good, fresh) = ask(worker, shards)
    assert "299 rows" in (bad.failure or "") and fresh and good.rows == 300
    assert ask(worker, shards[1:]) == [(good, False)]


def test_a_worker_with_another_model_does_not_start(random_model: str, tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match="another model here"):
        SweepWorker(Folder(tmp_path), random_model, "0" * 32, "cpu", SweepConfig(), 1)


class Script:
    """A fake pool of workers: returns prepared answers and records the requests."""

    def __init__(self, *passes: list[Outcome]):
        self.passes = list(passes)
        self.asked: list[tuple[list[str], bool]] = []

    def __call__(self, worker: type, items: Sequence[bytes], *_: Any, alone: bool, **__: Any) -> Iterator[Outcome]:
        if not items:
            return
        self.asked.append(([pickle.loads(item)[0] for item in items], alone))
        yield from self.passes.pop(0) if self.passes else []


def answer(report: ShardReport, fresh: bool = True, node: str = "n1") -> Outcome:
    return report.shard, (report, fresh, node), report.failure or ""


@pytest.fixture
def engine(tmp_path: Path) -> RayEngine:
    folder = Folder(tmp_path / "out")
    for name in ("00000", "00001", "00002"):
        folder.write_json(name_embeddings_file(name), {})
    return RayEngine(folder, {}, Placement(2))


def good(shard: str) -> ShardReport:
    return ShardReport(shard, 4, {"ok": 3, "corrupt": 1})


def test_every_shard_ends_in_one_report(corpus: Path, engine: RayEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(
        [
            answer(good("00000"), fresh=False),
            answer(ShardReport("00001", failure="the network was away")),
            answer(good("00000")),
        ],
        [answer(good("00001"))],
    )
    monkeypatch.setattr(ray_engine, "stream_outcomes", script)
    watched: list[tuple[int, int]] = []
    shards = open_corpus(str(corpus)).shards
    reports = list(engine.sweep(shards, lambda rows, errors: watched.append((rows, errors))))
    assert script.asked == [
        (["00000", "00001", "00002"], False),
        (["00001", "00002"], False),
        (["00002"], True),
        (["00002"], True),
    ]
    assert [report.shard for report in reports] == ["00000", "00001", "00002"]
    assert [report.failure is None for report in reports] == [True, True, False]
    assert "its worker died 4 times" in (reports[2].failure or "")
    assert watched == [(4, 1)]  # what was done before is not counted again


def test_a_failure_that_stays_is_told_in_its_own_words(
    corpus: Path, engine: RayEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = answer(ShardReport("00002", failure="00002: not a tar"))
    script = Script([answer(good("00000")), answer(good("00001")), lost], [lost])
    monkeypatch.setattr(ray_engine, "stream_outcomes", script)
    reports = list(engine.sweep(open_corpus(str(corpus)).shards, lambda *_: None))
    assert len(script.asked) == 2  # the same answer twice is enough
    assert reports[2] == ShardReport("00002", failure="00002: not a tar")


def test_a_node_that_writes_elsewhere_is_found_out_at_once(
    corpus: Path, engine: RayEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        ray_engine, "stream_outcomes", Script([answer(good("00000"), node="n1"), answer(good("00001"), node="n2")])
    )
    engine.folder.remove(name_embeddings_file("00001"))
    reports = engine.sweep(open_corpus(str(corpus)).shards, lambda *_: None)
    assert next(reports).shard == "00000"
    with pytest.raises(WorkerError, match="storage that all nodes share"):
        next(reports)


def test_scoring_finishes_the_rest_and_names_what_failed(engine: RayEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "put", lambda value: value)
    answers: list[Outcome] = [("a", 5, ""), ("b", None, "the disk is full")]
    script = Script(answers, answers[1:])
    monkeypatch.setattr(ray_engine, "stream_outcomes", script)
    scored = list(engine.score(["a", "b"], None))  # type: ignore[arg-type]
    assert scored == [("a", 5, ""), ("b", 0, "the disk is full")]
    assert script.asked == [(["a", "b"], False), (["b"], False)]


def test_room_is_counted_by_node(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [
        {"Alive": True, "Resources": {"CPU": 16.0, "GPU": 2.0}},
        {"Alive": True, "Resources": {"CPU": 6.0, "GPU": 1.0}},
        {"Alive": True, "Resources": {"CPU": 64.0}},
        {"Alive": False, "Resources": {"CPU": 64.0, "GPU": 8.0}},
    ]
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    assert Placement(cpus=4, gpus=1).room() == 2 + 1
    assert Placement(cpus=4, gpus=0.5).room() == 4 + 1
    assert Placement(cpus=4).room() == 4 + 1 + 16
    assert Placement(cpus=128).room() == 0
    assert cluster.choose_worker_cpus(1) == 6  # of the node with the fewest CPUs per GPU
    assert cluster.choose_worker_cpus(0.5) == 3
    assert cluster.choose_worker_cpus(0) == 4


def test_errors_of_workers_fit_into_one_line() -> None:
    assert summarize_error(WorkerError("no room")) == "no room"
    assert summarize_error(ValueError("first\nsecond")) == "ValueError: first"
    assert summarize_error(ray.exceptions.RayError("trace\n  more\nKeyError: 'x'\n")) == "KeyError: 'x'"
