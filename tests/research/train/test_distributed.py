"""Two gloo processes against one: the same gradient over the global batch, and runs whose copies stay equal."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file

from auditor.research.train.train_model import synchronize_gradients, train
from auditor.research.train.training_run import build_learner
from model.training.objective import TrainingPairs, add_gradient
from model.training.training_config import load_config
from model.training.training_processes import ProcessGroup, current_processes
from model.training.training_state import collect_parameters
from tests.model.training.test_objective import gradients, make_pairs
from tests.research.train.test_train_model import same
from tests.support.training import make_tiny_config, run_in_processes, write_shards


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def worker(rank: int, folder: str, port: int) -> None:
    """The body of one of two processes: first a gradient, then a whole run, then its resumption."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    home = Path(folder)
    config = load_config({}, file=home / "run.toml")
    for target in ("corpus", "paper", "retrieval", "released"):
        learner = build_learner(replace(config, target=target, temporal_layers=2 * (target == "released")))
        whole = make_pairs(learner)
        mine = slice(5 * rank, 5 * rank + 5)
        # Rank 0 has clips of up to three frames, rank 1 padding that no other process knows of.
        pairs = TrainingPairs(
            whole.pixels[mine], whole.mask[mine], whole.tokens[mine], whole.numbers[mine], whole.weights[mine]
        )
        add_gradient(learner, pairs, current_processes(), seed=1, chunk=2)
        synchronize_gradients(learner, current_processes())
        found = {name: p.grad for name, p in collect_parameters(learner).items() if p.grad is not None}
        save_file(found, home / f"{target}-{rank}.safetensors")
    result = train(config)
    save_file(dict(build_state(result.last)), home / f"run-{rank}.safetensors")
    assert result.validation is not None and result.steps == 8
    dist.destroy_process_group()


def build_state(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "open_clip_model.safetensors")


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    val = write_shards(folder, count=1, size=7, name="val")
    config = make_tiny_config(folder, val=val)
    (folder / "run.toml").write_text(config.to_toml())
    port = free_port()
    assert run_in_processes(worker, *((rank, str(folder), port) for rank in range(2))) == [0, 0]
    return folder


@pytest.mark.parametrize("target", ["corpus", "paper", "retrieval", "released"])
def test_the_gradient_is_that_of_one_process_with_the_whole_batch(together: Path, target: str) -> None:
    config = load_config({}, file=together / "run.toml")
    learner = build_learner(replace(config, target=target, temporal_layers=2 * (target == "released")))
    alone = gradients(learner, make_pairs(learner), chunk=0)
    for rank in range(2):
        found = load_file(together / f"{target}-{rank}.safetensors")
        assert found.keys() == alone.keys()
        for name, expected in alone.items():
            torch.testing.assert_close(found[name], expected, rtol=1e-3, atol=2e-6, msg=name)


def test_both_processes_read_their_share_and_the_run_goes_on_alike(together: Path) -> None:
    from model.training.training_state import read_state

    _, state = read_state(together / "run" / "last")
    assert state.step == 8 and state.loaders is not None and len(state.loaders) == 2
    assert [loader["position"] for loader in state.loaders] == [[3, 16], [3, 16]]


def test_a_world_of_one_gathers_itself() -> None:
    x = torch.ones(3, requires_grad=True)
    assert ProcessGroup().gather(x) is x
    assert ProcessGroup().share("a") == ["a"]


def test_a_run_of_two_processes_does_not_go_on_in_one(together: Path) -> None:
    from model.training.training_state import StateError

    with pytest.raises(StateError, match="a run of 2 processes, not 1"):
        train(load_config({}, file=together / "run.toml"))


# ---------------------------------------------------------------------------------------------------------- Ray


def start_job(folder: Path, *more: str) -> subprocess.Popen[str]:
    """Run `python jobs/train.py` as a user does, with its log in job.log."""
    command = [sys.executable, str(Path(__file__).parents[3] / "jobs" / "train.py"), "--config", "run.toml"]
    with (folder / "job.log").open("w") as log:
        return subprocess.Popen(
            [*command, "--workers", "2", "--address", "local", *more],
            cwd=folder,
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
        )


def wait_for_steps(folder: Path, steps: int, job: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 300
    metrics = folder / "run" / "metrics.jsonl"
    while not metrics.is_file() or metrics.read_text().count('"loss"') < steps:
        assert job.poll() is None and time.monotonic() < deadline, (folder / "job.log").read_text()
        time.sleep(0.02)


@pytest.mark.cluster
def test_a_worker_is_killed_and_the_job_ends_with_the_same_weights(tmp_path: Path) -> None:
    config = make_tiny_config(
        tmp_path, val=write_shards(tmp_path, count=1, size=7, name="val"), epochs=15, save_every=5
    )
    (tmp_path / "run.toml").write_text(config.to_toml())
    job = start_job(tmp_path)
    try:
        wait_for_steps(tmp_path, 12, job)
        pids = dict(re.findall(r"rank (\d) of 2: pid (\d+)", (tmp_path / "job.log").read_text()))
        os.kill(int(pids["1"] if "1" in pids else pids["0"]), signal.SIGKILL)
        assert job.wait(timeout=400) == 0, (tmp_path / "job.log").read_text()
    finally:
        job.kill()
    steps = [json.loads(line)["step"] for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert sorted(set(steps)) == list(range(1, 61)) and len(steps) == 60 + 15  # none lost, none twice, 15 validations
    assert len(set(re.findall(r"rank \d of 2: pid (\d+)", (tmp_path / "job.log").read_text()))) > 2  # restarted
    (tmp_path / "straight.toml").write_text(replace(config, out=str(tmp_path / "straight")).to_toml())
    port = free_port()
    assert run_in_processes(undisturbed, *((rank, str(tmp_path), port) for rank in range(2))) == [0, 0]
    assert same(tmp_path / "run" / "last", tmp_path / "straight" / "last")
    assert same(tmp_path / "run" / "best", tmp_path / "straight" / "best")


def undisturbed(rank: int, folder: str, port: int) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)  # as Ray gives one CPU to a worker
    dist.init_process_group("gloo", rank=rank, world_size=2)
    train(load_config({}, file=Path(folder) / "straight.toml"))
    dist.destroy_process_group()


@pytest.mark.cluster
def test_a_job_that_cannot_train_fails_in_one_line(tmp_path: Path) -> None:
    """The error comes at once, without retries, even for paths that are relative to the driver's folder."""
    config = make_tiny_config(tmp_path, lr_encoders=1e30, clip_norm=0.0, warmup=0.0)
    (tmp_path / "run.toml").write_text(replace(config, corpus="train/*.tar", model="tiny.json", out="run").to_toml())
    job = start_job(tmp_path)
    assert job.wait(timeout=400) == 1
    log = (tmp_path / "job.log").read_text()
    complaints = [line for line in log.splitlines() if line.startswith("auditor: ")]
    assert len(complaints) == 1 and "at step 2" in complaints[0], log
    assert "starting again" not in log
    assert not Path(config.out).exists()


def test_a_job_complains_before_it_starts_a_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from auditor.cli import run_command_line
    from jobs.train import main

    assert run_command_line([str(tmp_path), "--out", str(tmp_path / "run")], main) == 1
    assert "no tar, no image or video" in capsys.readouterr().err
