"""Decisions of the jobs outside a cluster: paths, refusals, resources, retries."""

import sys
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.exceptions import AuthenticationError

from auditor.cli import run_command_line
from auditor.corpus.corpus_spec import make_corpus_absolute
from auditor.corpus.open_corpus import ShardError, open_corpus
from auditor.errors import AuditorError
from auditor.research.train.training_shards import TrainError
from auditor.run.ray_engine import Placement, WorkerError
from jobs import audit, cluster, evaluate, train, worker_options
from model.model_errors import ModelError
from model.training.training_config import ConfigError, TrainConfig
from tests.support.training import make_tiny_config

SUBMITTED = "RAY_JOB_CONFIG_JSON_ENV_VAR"  # what `ray job submit` sets


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if a test connects to Ray: everything here must be decided before."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a cluster was asked for")

    monkeypatch.setattr(ray, "init", refuse)
    monkeypatch.delenv(SUBMITTED, raising=False)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


def nodes(monkeypatch: pytest.MonkeyPatch, *resources: dict[str, float]) -> None:
    monkeypatch.setattr(ray, "nodes", lambda: [{"Alive": True, "Resources": has} for has in resources])


@pytest.mark.parametrize("job", [audit, evaluate])
def test_a_job_prints_its_usage_under_its_own_name(
    job: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"jobs/{Path(job.__file__).name}"
    monkeypatch.setattr(sys, "argv", [name])
    assert run_command_line(["-h"], job.command) == 0
    assert capsys.readouterr().out.startswith(f"Usage: python {name} [OPTIONS]")


# -------------------------------------------------------------------------------------------------------- paths


def test_workers_in_another_folder_find_what_the_driver_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = make_tiny_config(tmp_path)
    (tmp_path / "head").mkdir()
    monkeypatch.chdir(tmp_path)
    relative = TrainConfig(
        corpus="train/*.tar::train/{000..001}.tar",
        val="./train",
        out="run",
        model="tiny.json",
        head="head",
        weights="w",
    )
    config = train.make_paths_absolute(relative, workers=2)
    monkeypatch.chdir("/")
    assert open_corpus(config.corpus).shards == open_corpus(there.corpus).shards
    assert config.val == there.corpus
    assert (config.out, config.model) == (there.out, there.model)
    assert (config.head, config.weights) == (str(tmp_path / "head"), str(tmp_path / "w"))


def test_only_local_paths_are_made_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for spec in ("s3://b/{00..11}.tar", "/a/*.tar::gs://b/x", "coco:/a/c.json::s3://b/images"):
        assert make_corpus_absolute(spec) == spec
    assert make_corpus_absolute("{s3://a,b}/0.tar") == f"s3://a/0.tar::{tmp_path}/b/0.tar"
    assert (
        make_corpus_absolute("{a,/b}/0.tar:: c/{0,1}.tar") == f"{tmp_path}/a/0.tar::/b/0.tar::{tmp_path}/c/{{0,1}}.tar"
    )
    assert make_corpus_absolute("coco:c.json::images/") == f"coco:{tmp_path}/c.json::{tmp_path}/images"
    (tmp_path / "model").mkdir()
    assert worker_options.make_model_absolute("model") == f"{tmp_path}/model"
    assert worker_options.make_model_absolute("local-dir:model") == f"local-dir:{tmp_path}/model"
    for name in ("ViT-B-32@openai", "hf-hub:a/b", "missing.json", None):
        assert worker_options.make_model_absolute(name) == name


# ----------------------------------------------------------------------------------------------------- refusals


def complaint(capsys: pytest.CaptureFixture[str], command: Any, *arguments: str) -> str:
    assert run_command_line(arguments, command) == 1
    [line] = capsys.readouterr().err.splitlines()
    return line


def test_a_run_is_refused_before_a_cluster_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = make_tiny_config(tmp_path).corpus
    assert "every process can access, not s3://b/run" in complaint(capsys, train.main, corpus, "--out", "s3://b/run")
    uneven = (corpus, "--out", str(tmp_path / "run"), "--batch-size", "16", "--workers", "3")
    assert "batch_size 16 cannot be divided among 3 processes" in complaint(capsys, train.main, *uneven)
    assert not list(tmp_path.glob("s3:*"))


def test_results_of_a_submitted_job_may_not_vanish_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SUBMITTED, "{}")
    jobs = (
        (audit.command, ["corpus"]),
        (train.main, [make_tiny_config(tmp_path).corpus]),
        (evaluate.command, ["coco", "--data", "d", "--model", "m"]),
    )
    for command, arguments in jobs:
        assert "--out here would be lost with the job" in complaint(capsys, command, *arguments, "--out", "here")
    for out in ("/shared//here", "s3://bucket/here"):
        worker_options.refuse_lost_output(out)


# -------------------------------------------------------------------------------------------------------- room


def test_ray_that_was_started_here_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes(monkeypatch, {"CPU": 4.0})
    wish = Placement(cpus=1, gpus=1)
    with pytest.raises(WorkerError, match=r"no room for a worker with 1 CPUs and 1 GPUs: .* --address"):
        cluster.check_cluster_room(wish, started=True)
    with pytest.raises(WorkerError, match="no room for 5 workers"):
        cluster.check_cluster_room(Placement(5), started=True, count=5)
    cluster.check_cluster_room(Placement(4), started=True, count=4)
    assert capsys.readouterr().err == ""
    cluster.check_cluster_room(wish, started=False)
    assert "waiting for nodes with room for a worker with 1 CPUs and 1 GPUs" in capsys.readouterr().err


@pytest.mark.parametrize("command", [audit.command, evaluate.command, train.main])
def test_a_gpu_that_is_not_there_is_one_line(
    command: Any, tmp_path: Path, random_model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[dict[str, Any]] = []
    monkeypatch.setattr(ray, "init", lambda *_, **settings: started.append(settings))
    nodes(monkeypatch, {"CPU": 4.0})
    corpus = make_tiny_config(tmp_path).corpus
    given = {
        audit.command: [corpus, "--out", str(tmp_path / "audit")],
        evaluate.command: ["coco", "--data", corpus, "--model", random_model, "--out", str(tmp_path / "r.json")],
        train.main: [corpus, "--out", str(tmp_path / "run")],
    }
    said = complaint(capsys, command, *given[command], "--gpus-per-worker", "1", "--address", "local")
    assert said.startswith("auditor: this machine has no room for a worker with ")
    assert len(started) == 1 and "num_gpus" not in started[0]


def test_a_cluster_on_this_machine_is_joined_and_not_called_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def init(address: str | None, **settings: Any) -> None:
        asked.append(settings)
        if "resources" in settings:  # as Ray does where `ray start` was before
            raise ValueError("When connecting to an existing cluster, resources must not be provided.")

    monkeypatch.setattr(ray, "init", init)
    assert not cluster.connect(None, cpus=8)
    assert [settings.get("num_cpus") for settings in asked] == [8, None]
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    assert not cluster.connect(None, cpus=8)
    assert len(asked) == 3 and "num_cpus" not in asked[2]


def test_a_cluster_that_asks_for_a_token_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray reports a wrong token like a cluster that is down; a missing token has an error of its own."""
    for variable in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))

    def said(error: Exception) -> str:
        def fail(*_: Any, **__: Any) -> None:
            raise error

        monkeypatch.setattr(ray, "init", fail)
        with pytest.raises(WorkerError) as caught:
            cluster.connect("head:6379")
        assert "\n" not in str(caught.value)
        return str(caught.value)

    missing = said(AuthenticationError("Token authentication is enabled but no authentication token was found"))
    assert missing.startswith("the Ray cluster at head:6379 requires a token: put the cluster's token into")
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("secret")
    dead = said(ConnectionError("Failed to connect to Ray cluster at head:6379"))
    assert "no Ray cluster at head:6379" in dead and "set RAY_AUTH_MODE=token: the token of " in dead
    assert "secret" not in dead and "token" not in said(ValueError("no such address"))


# ------------------------------------------------------------------------------------------------------- retries


@pytest.mark.parametrize(
    ("failure", "tries"),
    [
        (TrainError("the gradient is not finite at step 2"), 1),
        (ConfigError("tokens"), 1),
        (ShardError("0", "cannot read s3://b/0.tar: timed out"), 3),
        (RuntimeError("killed"), 3),
    ],
)
def test_only_what_may_pass_is_tried_again(
    failure: Exception, tries: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[TrainConfig] = []

    def attempt(config: TrainConfig, placement: Placement) -> None:
        attempts.append(config)
        raise ray.train.WorkerGroupError("trace", {0: RuntimeError("connection closed by peer"), 1: failure})

    monkeypatch.setattr(train, "run_attempt", attempt)
    with pytest.raises(ray.train.WorkerGroupError) as raised:
        train.train_with_retries(make_tiny_config(tmp_path), Placement(2), retries=2)
    assert len(attempts) == tries
    if isinstance(failure, AuditorError | ModelError):
        assert train.explain_failure(raised.value) == str(failure)
