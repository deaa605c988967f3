"""The state of a run on disk: `last/` holds a checkpoint and the state of the optimizer and of the loaders.

Tensors are stored as safetensors, the rest as JSON. A new `last/` is written completely and then renamed. A kill at any
moment leaves at least one complete state, which `recover_last` finds.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from model.backbone import format_error_line
from model.checkpoint import (
    BACKBONE,
    check_backbone,
    load_prototype_head,
    read_checkpoint_config,
    read_tensors,
    recover_folder,
    save_checkpoint,
    save_tensors,
    write_json,
)
from model.model_errors import ModelError
from model.temporal import TEMPORAL
from model.training.objective import Learner
from model.training.training_config import TrainConfig, load_saved_config

LAST, BEST = "last", "best"
TENSORS, STATE = "trainer.safetensors", "trainer.json"
METRICS = "metrics.jsonl"


class StateError(ModelError):
    """A folder that holds no run, a different run, or a damaged one."""


@dataclass
class RunState:
    """The progress of a run, without its tensors."""

    step: int = 0  # finished steps of the optimizer
    best: float | None = None  # validation score of best/
    validation: dict[str, Any] | None = None  # recall of best/
    loaders: list[dict[str, Any]] | None = None  # state of each process's loader, by rank
    scaler: dict[str, Any] | None = None  # gradient scaler of mixed precision


def check_folder(out: Path) -> None:
    if not out.is_dir():
        raise StateError(f"{out} is a file; --out is the folder of a run")
    run_files = {BEST, LAST, METRICS, "metrics.part", "config.toml"}
    names = sorted(path.name for path in out.iterdir() if not path.name.startswith("."))
    if foreign_files := [name for name in names if name not in run_files]:
        raise StateError(f"{out} is not the folder of a run (it holds {foreign_files[0]}): choose another --out")


def recover_last(out: Path) -> Path | None:
    """The last complete state of a run; moves it back if a kill interrupted its replacement."""
    for name in (LAST, BEST):
        recover_folder(out / name)
    return out / LAST if (out / LAST / STATE).is_file() else None


def save_last(out: Path, config: TrainConfig, learner: Learner, optimizer: Optimizer, state: RunState) -> None:
    def write_state(draft: Path) -> None:
        target = {} if learner.target is None else learner.target.state_dict()
        tensors = {
            f"optimizer/{name}/{key}": torch.as_tensor(value)
            for name, parameter in collect_parameters(learner).items()
            for key, value in optimizer.state.get(parameter, {}).items()
        }
        save_tensors(tensors | {f"target/{name}": tensor for name, tensor in target.items()}, draft / TENSORS)
        digest = compute_file_digest(draft / TENSORS)
        write_json({"config": config.to_dict(), "digest": digest, **vars(state)}, draft / STATE)

    save_weights(out / LAST, config, learner, {"step": state.step}, write_state)


def save_weights(
    folder: Path,
    config: TrainConfig,
    learner: Learner,
    extra: Mapping[str, Any],
    write_extra: Callable[[Path], None] | None = None,
) -> None:
    """Save a checkpoint of the current weights, without the encoders if these are pretrained and were not trained."""
    stored = config.train != "prototypes" or not learner.backbone.pretrained
    settings = {"train": config.to_dict(), **extra}
    head, backbone = learner.head, learner.backbone
    if learner.padded_frames:  # the released program scales evidence with CLIP's own factor
        head.config = replace(head.config, scale=backbone.logit_scale, clip_evidence="mean")
    save_checkpoint(folder, head, backbone, with_backbone=stored, extra=settings, write_more=write_extra)


def collect_parameters(learner: Learner) -> dict[str, Tensor]:
    """Every weight that learns, by name: those of the encoders, of a temporal transformer and of the head."""
    modules = {"backbone": learner.backbone.model, "temporal": learner.backbone.temporal, "head": learner.head}
    return {
        f"{part}.{name}": parameter
        for part, module in modules.items()
        if module is not None
        for name, parameter in module.named_parameters()
        if parameter.requires_grad
    }


@contextmanager
def convert_state_errors(path: Path) -> Iterator[None]:
    """Convert the errors of reading a damaged state to StateErrors."""
    try:
        yield
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RuntimeError) as error:
        reason = format_error_line(error)
        raise StateError(f"{path} is damaged ({reason}); start again in another folder") from error


def read_state(last: Path) -> tuple[TrainConfig, RunState]:
    with convert_state_errors(last / STATE):
        record = json.loads((last / STATE).read_text(encoding="utf-8"))
        if record.pop("digest", None) not in (None, compute_file_digest(last / TENSORS)):
            raise ValueError(f"{TENSORS} is not the file it was written with")
        config, state = load_saved_config(record.pop("config")), RunState(**record)
        numbers = [state.step, *(number for loader in state.loaders or [] for number in loader["position"])]
        if any(type(number) is not int or number < 0 for number in numbers) or len(numbers) % 2 == 0:
            raise ValueError(f"step and positions are {str(numbers)[:80]}")
        return config, state


def compute_file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def load_last(last: Path, learner: Learner, optimizer: Optimizer) -> None:
    with convert_state_errors(last):
        _load_weights(last, learner, optimizer)


def _load_weights(last: Path, learner: Learner, optimizer: Optimizer) -> None:
    device = learner.backbone.device
    if (last / BACKBONE).is_file():
        learner.backbone.model.load_state_dict(read_tensors(last / BACKBONE))
        if learner.backbone.temporal is not None:
            learner.backbone.temporal.load_state_dict(read_tensors(last / TEMPORAL))
        learner.backbone.__dict__.pop("fingerprint", None)  # it belongs to the previous weights
        check_backbone(last, read_checkpoint_config(last), learner.backbone)
    learner.head.load_state_dict(load_prototype_head(last, str(device)).state_dict())
    parameters, target = collect_parameters(learner), {}
    for full, tensor in read_tensors(last / TENSORS).items():
        kind, name, *rest = full.split("/")
        if kind == "target":
            target[name] = tensor
        elif name in parameters:
            key = rest[0]
            if key != "step" and tensor.shape != parameters[name].shape:
                raise StateError(f"{last / TENSORS} has {full} in another shape than its weight")
            optimizer.state[parameters[name]][key] = tensor if key == "step" else tensor.to(device)
        else:
            raise StateError(f"{last / TENSORS} has a weight {name} that does not learn in this run")
    if learner.target is not None:
        learner.target.load_state_dict(target)


class MetricsFile:
    """metrics.jsonl: a line for each step and validation. A resumed run first removes the lines it will write again."""

    def __init__(self, out: Path, step: int) -> None:
        self.path = out / METRICS
        text = self.path.read_text(encoding="utf-8", errors="replace") if self.path.is_file() else ""
        lines = [line for line in text.splitlines(keepends=True) if line.endswith("\n")]  # a kill may leave half a line
        draft = self.path.with_suffix(".part")
        with convert_state_errors(self.path):
            draft.write_text("".join(line for line in lines if json.loads(line)["step"] <= step), encoding="utf-8")
        draft.replace(self.path)

    def write(self, record: Mapping[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
