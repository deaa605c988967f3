"""The state of a run on disk: `last/` is a checkpoint with the state of the optimizer and of the loaders beside it.

Tensors are safetensors, the rest JSON. A new `last/` is written whole and then put in its place; a kill at any moment
leaves at least one whole state, which `recover_last` finds.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from model.atomic_folder import recover
from model.checkpoint import BACKBONE, load_head, read_tensors, save_checkpoint, save_tensors, write_json
from model.model_errors import ModelError
from model.training.objective import Learner
from model.training.training_config import TrainConfig, from_saved

LAST, BEST = "last", "best"
TENSORS, STATE = "trainer.safetensors", "trainer.json"
METRICS = "metrics.jsonl"


class StateError(ModelError):
    """A folder that holds no run, another run, or a damaged one."""


@dataclass
class RunState:
    """Where a run is, apart from its tensors."""

    step: int = 0  # steps of the optimizer done
    best: float | None = None  # validation score of best/
    validation: dict[str, Any] | None = None  # of best/
    loaders: list[dict[str, Any]] | None = None  # by rank
    scaler: dict[str, Any] | None = None  # of mixed precision


def check_folder(out: Path) -> None:
    """Refuse to write into a folder that is not a run's."""
    if not out.is_dir():
        raise StateError(f"{out} is a file; --out is the folder of a run")
    known = {BEST, LAST, METRICS, "metrics.part", "config.toml"}
    strange = sorted(path.name for path in out.iterdir() if path.name not in known and not path.name.startswith("."))
    if strange:
        raise StateError(f"{out} is not the folder of a run (it holds {strange[0]}): choose another --out")


def recover_last(out: Path) -> Path | None:
    """The whole last state of a run, put back in place if a kill came while it was being replaced."""
    for name in (LAST, BEST):
        recover(out / name)
    return out / LAST if (out / LAST / STATE).is_file() else None


def save_last(
    out: Path, config: TrainConfig, learner: Learner, optimizer: torch.optim.Optimizer, state: RunState
) -> None:
    def beside(draft: Path) -> None:
        save_tensors({**optimizer_tensors(learner, optimizer), **target_tensors(learner)}, draft / TENSORS)
        write_json({"config": config.to_dict(), **vars(state)}, draft / STATE)

    save_weights(out / LAST, config, learner, {"step": state.step}, beside)


def save_weights(
    folder: Path,
    config: TrainConfig,
    learner: Learner,
    extra: Mapping[str, Any],
    beside: Callable[[Path], None] | None = None,
) -> None:
    """A checkpoint of the weights as they are; with the encoders unless they are somebody else's and untouched."""
    stored = config.train != "prototypes" or not learner.backbone.pretrained
    settings = {"train": config.to_dict(), **extra}
    save_checkpoint(folder, learner.head, learner.backbone, with_backbone=stored, extra=settings, beside=beside)


def parameters_by_name(learner: Learner) -> dict[str, Tensor]:
    """Every weight that learns: those of the encoders, then those of the head."""
    named = {f"backbone.{name}": p for name, p in learner.backbone.model.named_parameters() if p.requires_grad}
    return {**named, **{f"head.{name}": p for name, p in learner.head.named_parameters()}}


def optimizer_tensors(learner: Learner, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    return {
        f"optimizer/{name}/{key}": torch.as_tensor(value)
        for name, parameter in parameters_by_name(learner).items()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def target_tensors(learner: Learner) -> dict[str, Tensor]:
    return {} if learner.target is None else {f"target/{k}": v for k, v in learner.target.state_dict().items()}


def read_state(last: Path) -> tuple[TrainConfig, RunState]:
    try:
        record = json.loads((last / STATE).read_text(encoding="utf-8"))
        return from_saved(record.pop("config")), RunState(**record)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise StateError(f"{last / STATE} is damaged ({error}); start again in another folder") from error


def load_last(last: Path, learner: Learner, optimizer: torch.optim.Optimizer) -> None:
    """Put the tensors of a saved run into the learner and its optimizer."""
    device = learner.backbone.device
    if (last / BACKBONE).is_file():
        learner.backbone.model.load_state_dict(read_tensors(last / BACKBONE))
        learner.backbone.__dict__.pop("fingerprint", None)  # was of the weights before
    learner.head.load_state_dict(load_head(last, str(device)).state_dict())
    tensors = read_tensors(last / TENSORS)
    if learner.target is not None:
        learner.target.load_state_dict({k.removeprefix("target/"): v for k, v in tensors.items() if k[:7] == "target/"})
    named = parameters_by_name(learner)
    for full, tensor in tensors.items():
        if full.startswith("optimizer/"):
            _, name, key = full.split("/")
            if name not in named:
                raise StateError(f"{last / TENSORS} has a weight {name} that does not learn in this run")
            optimizer.state[named[name]][key] = tensor if key == "step" else tensor.to(device)


class Metrics:
    """metrics.jsonl: one line a step, one a validation. What a resumed run will write again is cut off first."""

    def __init__(self, out: Path, step: int) -> None:
        self.path = out / METRICS
        kept = []
        if self.path.is_file():
            for line in self.path.read_text(encoding="utf-8").splitlines(keepends=True):
                # A kill may leave half a line at the end.
                if line.endswith("\n") and json.loads(line)["step"] <= step:
                    kept.append(line)
        draft = self.path.with_suffix(".part")
        draft.write_text("".join(kept), encoding="utf-8")
        draft.replace(self.path)

    def write(self, record: Mapping[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
