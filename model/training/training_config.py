"""The settings of a training run, filled from a preset, then a TOML file, then flags; and the learning-rate schedules.

The module does not import torch, so `auditor train --help` starts quickly.
"""

import difflib
import json
import math
import tomllib
import types
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from model.model_errors import ModelError

PRESETS = Path(__file__).parent / "presets"

# Settings that may differ when a run is resumed.
INCIDENTAL = frozenset({"out", "save_every", "device", "decoders"})


class ConfigError(ModelError):
    """Settings that are unknown, of the wrong type, or incompatible."""


def option(default: Any, help: str) -> Any:
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """The settings of a run. `batch_size` counts the pairs of one contrastive loss, over all processes."""

    corpus: str = field(metadata={"help": "training corpus: anything `auditor audit` reads; separate several with ::"})
    out: str = field(metadata={"help": "folder of the run: best/, last/, metrics.jsonl, config.toml"})
    val: str | None = option(None, "validation corpus; without it best/ holds the last weights")

    model: str = option("ViT-B-32@openai", "open_clip model, checkpoint folder, or a .json config for random weights")
    head: str | None = option(None, "start from the prototypes of this checkpoint folder")
    train: Literal["all", "layers", "projections", "text", "prototypes"] = option(
        "all", "weights to train; layers: all but the first of each tower (embeddings, patches)"
    )
    temporal_layers: int = option(
        0, "layers of a transformer over the frames of a clip, 4 in the released program; 0: their mean, as the paper"
    )
    device: str = option("auto", "cpu, cuda, cuda:1, ... or auto")
    precision: Literal["auto", "fp32", "bf16", "fp16"] = option("auto", "auto: mixed on CUDA, fp32 on the CPU")

    prototypes: int = option(8, "prototypes per modality (K)")
    init: Literal["xavier", "kaiming_uniform", "kaiming_normal", "orthogonal"] = option(
        "xavier", "initialization of the prototypes"
    )
    evidence: Literal["exp", "softplus", "relu"] = option("exp", "evidence function")
    tau: float = option(5.0, "temperature of the exponential evidence")
    evidence_scale: float = option(100.0, "factor of the similarities to prototypes before the evidence function")

    target: Literal["corpus", "paper", "retrieval", "released"] = option(
        "corpus",
        "target of u: h over the corpus, the paper's h in the batch, or retrieval entropy in the batch; "
        "released: the whole loss as in the authors' video program",
    )
    target_momentum: float = option(0.95, "momentum of the running means that standardize the target")
    weight_uncertainty: float = option(1.0, "weight of L_uct (equation 6)")
    weight_diversity: float = option(1.0, "weight of L_div (equation 7)")
    weights: str | None = option(
        None, "weights of pairs: an audit, the output of `auditor weigh`, or Parquet with key, caption_index, weight"
    )

    optimizer: Literal["adam", "adamw", "bertadam"] = option(
        "adamw", "optimizer; bertadam (the released program's) decays all weights but biases, and corrects no bias"
    )
    lr_encoders: float = option(1e-5, "peak learning rate of the backbone")
    lr_other: float = option(1e-3, "peak learning rate of the prototypes and of a temporal transformer")
    weight_decay: float = option(0.2, "weight decay of the matrices: decoupled (adamw) or L2 (adam)")
    beta2: float = option(0.98, "second-moment decay of the optimizer")
    epsilon: float = option(1e-6, "epsilon of the optimizer")
    clip_norm: float = option(1.0, "clip the gradient to this norm; 0: do not clip")
    max_logit_scale: float = option(100.0, "clamp logit_scale to the logarithm of this")
    schedule: Literal["cosine", "clip4clip", "constant"] = option("cosine", "shape of the learning rate after warm-up")
    warmup: float = option(0.1, "warm-up: below 1 a share of all steps, else a number of steps")
    epochs: int = option(5, "number of epochs")
    batch_size: int = option(128, "pairs in one contrastive loss, over all processes")
    accumulate: int = option(1, "contrastive batches per optimizer step; their gradients are averaged")
    chunk: int = option(0, "pairs that each process encodes at a time: same gradient, less memory; 0: all at once")

    frames: int = option(12, "frames sampled from a video")
    each_second: bool = option(
        False, "sample frames a second apart, fewer of short videos (the released program), not in equal segments"
    )
    tokens: int = option(77, "tokens of a caption, begin and end included")
    captions: Literal["all", "one", "best", "join"] = option(
        "all",
        "captions in an epoch: all, one for each medium, the best one by the audit in weights, or all of a medium "
        "joined to one paragraph",
    )
    shuffle: int = option(2000, "samples in the shuffle buffer of each process")
    decoders: int = option(0, "decoder processes of each training process; 0: its share of the cores")
    cache: bool = option(False, "keep decoded pixels in memory after the first pass")
    cache_gb: float = option(4.0, "size of the cache in GB, for each training process")
    seed: int = option(0, "random seed of initialization, order and dropout")
    save_every: int = option(500, "steps between checkpoints; a checkpoint also follows each epoch")

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for f in fields(self):
            check_type(f.name, getattr(self, f.name), hints[f.name])
        for name in ("prototypes", "epochs", "batch_size", "accumulate", "frames", "shuffle", "save_every"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, not {getattr(self, name)}")
        rates = ("lr_encoders", "lr_other", "weight_decay", "clip_norm", "warmup", "cache_gb")
        for name in ("chunk", "decoders", "temporal_layers", *rates):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} must not be negative, but is {getattr(self, name)}")
        if self.batch_size < 2:
            raise ConfigError("a contrastive batch needs at least 2 pairs: raise batch_size")
        if self.captions == "best" and not self.weights:
            raise ConfigError('captions = "best" needs weights: an audit, or a table of `auditor weigh`')
        if self.tokens < 3:
            raise ConfigError(f"{self.tokens} tokens leave no room for a word between begin and end")
        if not 0 <= self.target_momentum < 1:
            raise ConfigError(f"target_momentum lies in [0, 1), not {self.target_momentum}")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def to_toml(self) -> str:
        """The settings as a file that `--config` reads, without the unset ones."""
        lines = [f"{name} = {format_toml_value(value)}" for name, value in self.to_dict().items() if value is not None]
        return "\n".join(lines) + "\n"

    def differences(self, other: "TrainConfig") -> list[str]:
        """Names of the settings that differ from `other` and make this a different run."""
        return [n for n, value in self.to_dict().items() if n not in INCIDENTAL and value != getattr(other, n)]


def format_toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value)  # JSON's escapes are TOML's
    return repr(value)


def check_type(name: str, value: Any, hint: Any) -> None:
    allowed = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    if value is None and type(None) in allowed:
        return
    kind = next(t for t in allowed if t is not type(None))
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise ConfigError(f"{name} is one of {', '.join(get_args(kind))}, not {value!r}")
    elif not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        description = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}[kind]
        raise ConfigError(f"{name} must be {description}, not {value!r}")
    elif kind is float and not math.isfinite(value):
        raise ConfigError(f"{name} must be a finite number, not {value}")


def list_presets() -> list[str]:
    return sorted(path.stem for path in PRESETS.glob("*.toml"))


def read_toml(path: str | Path) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error


def load_config(flags: Mapping[str, Any], *, preset: str | None = None, file: str | Path | None = None) -> TrainConfig:
    """Settings of a preset, overridden by a TOML file, overridden by the flags that are not None."""
    values: dict[str, Any] = {}
    if preset:
        if preset not in list_presets():
            raise ConfigError(f"no preset {preset!r}; there are {', '.join(list_presets())}")
        values.update(check_setting_names(read_toml(PRESETS / f"{preset}.toml"), f"preset {preset}"))
    if file:
        values.update(check_setting_names(read_toml(file), str(file)))
    values.update(check_setting_names({name: value for name, value in flags.items() if value is not None}, "the flags"))
    for f in fields(TrainConfig):
        if f.default is MISSING and f.name not in values:
            raise ConfigError(f"{f.name} is missing: {f.metadata['help']}")
    return TrainConfig(**values)


def check_setting_names(values: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Refuse unknown names; return the settings with whole numbers converted for settings of type float."""
    hints = get_type_hints(TrainConfig)
    for name in values:
        if name not in hints:
            matches = difflib.get_close_matches(name, hints, n=1, cutoff=0.0)
            raise ConfigError(f"unknown setting {name!r} in {source}; did you mean {matches[0]!r}?")
    return {n: float(value) if hints[n] is float and type(value) is int else value for n, value in values.items()}


def load_saved_config(values: Mapping[str, Any]) -> TrainConfig:
    return TrainConfig(**check_setting_names(values, "the saved run"))


def scale_learning_rate(step: int, steps: int, warmup: float, schedule: str = "cosine") -> float:
    """Multiplier of the peak learning rate, in [0, 1], at `step` (counted from 0) of `steps`.

    Below 1, `warmup` is a share of all steps; else it is a number of steps.
    """
    if schedule == "clip4clip":  # the cosine also runs during the warm-up, so the rate drops a little at its end
        progress, share = step / steps, warmup if warmup < 1 else warmup / steps
        return progress / share if progress < share else cosine_decay(progress)
    first = min(steps, round(warmup * steps) if warmup < 1 else round(warmup))
    if step < first:
        return (step + 1) / first
    return 1.0 if schedule == "constant" else cosine_decay((step - first) / max(1, steps - first))


def cosine_decay(progress: float) -> float:
    """Half a cosine wave from 1 at progress 0 to 0 at progress 1."""
    return 0.5 * (1.0 + math.cos(math.pi * min(progress, 1.0)))
