"""A run killed at any file operation of a checkpoint resumes from a complete one: the new or the previous one."""

from pathlib import Path

import torch

from auditor.research.train.training_run import build_optimizer
from model.training.training_config import TrainConfig
from model.training.training_state import (
    BEST,
    LAST,
    RunState,
    load_last,
    read_state,
    recover_last,
    save_last,
    save_weights,
)
from tests.support.kill_points import kill_everywhere

STEPS = 2


def save_in_turn(place: str) -> int:
    """A minimal run: every step writes its number into a weight and saves; starts from the saved state."""
    from tests.support.tiny_learner import LEARNER

    out = Path(place) / "run"
    config = TrainConfig(corpus="none", out=str(out), model="none", device="cpu")
    optimizer = build_optimizer(config, LEARNER)
    weight = next(LEARNER.head.parameters())
    found = recover_last(out) if out.is_dir() else None
    done = 0
    if found is not None:
        done = read_state(found)[1].step
        load_last(found, LEARNER, optimizer)
        assert bool((weight == done).all()), "weights of another step than the state says"
    for step in range(done + 1, STEPS + 1):
        with torch.no_grad():
            weight.fill_(float(step))
        save_weights(out / BEST, config, LEARNER, {"step": step})
        save_last(out, config, LEARNER, optimizer, RunState(step=step))
    return 0


def test_every_kill_leaves_a_checkpoint_to_go_on_from(tmp_path: Path) -> None:
    (tmp_path / "template").mkdir()
    killed = kill_everywhere(
        tmp_path / "template", tmp_path / "work", "tests.research.train.test_killed_checkpoint:save_in_turn", "{}"
    )
    assert len(killed) > 20
    for one in killed:
        assert one.next_exit == 0, one
        assert read_state(one.folder / "run" / LAST)[1].step == STEPS
        assert sorted(path.name for path in (one.folder / "run").iterdir()) == [BEST, LAST], one
