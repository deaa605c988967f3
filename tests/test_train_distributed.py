"""Two gloo processes against one: the same gradient over the global batch, and runs whose copies stay equal."""

import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from safetensors.torch import load_file, save_file

from model.objective import Pairs, add_gradient
from model.train import share_gradients, train
from model.train_config import load_config
from model.train_run import build_learner
from model.trainer_state import parameters_by_name
from model.world import World, current_world
from tests.test_train import gradients, make_pairs
from tests.training import shards, tiny_config


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def worker(rank: int, folder: str, port: int) -> None:
    """The body of one of two processes: first a gradient, then a whole run, then its continuation."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    home = Path(folder)
    config = load_config({}, file=home / "run.toml")
    for target in ("corpus", "paper"):
        learner = build_learner(replace(config, target=target))
        whole = make_pairs(learner)
        mine = slice(5 * rank, 5 * rank + 5)
        # Rank 0 has clips of up to three frames, rank 1 padding that no other process knows of.
        pairs = Pairs(
            whole.pixels[mine], whole.mask[mine], whole.tokens[mine], whole.numbers[mine], whole.weights[mine]
        )
        add_gradient(learner, pairs, current_world(), seed=1, chunk=2)
        share_gradients(learner, current_world())
        found = {name: p.grad for name, p in parameters_by_name(learner).items() if p.grad is not None}
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
    val = shards(folder, count=1, size=7, name="val")
    config = tiny_config(folder, val=val)
    (folder / "run.toml").write_text(config.to_toml())
    mp.spawn(worker, args=(str(folder), free_port()), nprocs=2)  # type: ignore[no-untyped-call]
    return folder


@pytest.mark.parametrize("target", ["corpus", "paper"])
def test_the_gradient_is_that_of_one_process_with_the_whole_batch(together: Path, target: str) -> None:
    config = load_config({}, file=together / "run.toml")
    learner = build_learner(replace(config, target=target))
    alone = gradients(learner, make_pairs(learner), chunk=0)
    for rank in range(2):
        found = load_file(together / f"{target}-{rank}.safetensors")
        assert found.keys() == alone.keys()
        for name, expected in alone.items():
            torch.testing.assert_close(found[name], expected, rtol=1e-3, atol=2e-6, msg=name)


def test_both_processes_read_their_share_and_the_run_goes_on_alike(together: Path) -> None:
    from model.trainer_state import read_state

    _, state = read_state(together / "run" / "last")
    assert state.step == 8 and state.loaders is not None and len(state.loaders) == 2
    assert [loader["positions"] for loader in state.loaders] == [[[3, 16]], [[3, 16]]]


def test_a_world_of_one_gathers_itself() -> None:
    x = torch.ones(3, requires_grad=True)
    assert World().gather(x) is x
    assert World().share("a") == ["a"]


def test_a_run_of_two_processes_does_not_go_on_in_one(together: Path) -> None:
    from model.trainer_state import StateError

    with pytest.raises(StateError, match="a run of 2 processes, not 1"):
        train(load_config({}, file=together / "run.toml"))
