"""The settings of a training run: one frozen dataclass, filled from a preset, then a TOML file, then flags.

No torch here, so that `auditor train --help` is quick.
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

# What may change between a run and its resumption without making it another run.
INCIDENTAL = frozenset({"out", "save_every", "device", "decoders"})


class ConfigError(ModelError):
    """Settings that are unknown, of the wrong type or impossible together."""


def setting(default: Any, help: str) -> Any:
    """A field whose help text the command line shows."""
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """One training run. `batch_size` is that of the contrastive loss: all pairs of all processes together."""

    corpus: str = field(metadata={"help": "what to train on: anything that `auditor audit` reads; lists with ::"})
    out: str = field(metadata={"help": "folder of the run: best/, last/, metrics.jsonl, config.toml"})
    val: str | None = setting(None, "what to validate on; without it the last weights are also the best")

    model: str = setting("ViT-B-32@openai", "open_clip spec, checkpoint folder, or a .json config for random weights")
    head: str | None = setting(None, "start from the prototypes of this checkpoint folder")
    train: Literal["all", "projections", "text", "prototypes"] = setting("all", "which weights learn")
    device: str = setting("auto", "cpu, cuda, cuda:1, ... or auto")
    precision: Literal["auto", "fp32", "bf16", "fp16"] = setting("auto", "auto: mixed on CUDA, fp32 on the CPU")

    prototypes: int = setting(8, "prototypes per modality (K)")
    init: Literal["xavier", "kaiming_uniform", "kaiming_normal", "orthogonal"] = setting("xavier", "of the prototypes")
    evidence: Literal["exp", "softplus", "relu"] = setting("exp", "evidence function")
    tau: float = setting(5.0, "temperature of the exponential evidence")
    evidence_scale: float = setting(100.0, "similarities to prototypes are multiplied by this before the evidence")

    target: Literal["corpus", "paper", "retrieval"] = setting(
        "corpus", "what u follows: h over the corpus, the paper's h in the batch, or how much of the batch fits"
    )
    target_momentum: float = setting(0.95, "of the running means that the target is standardised by")
    weight_uncertainty: float = setting(1.0, "weight of L_uct (equation 6)")
    weight_diversity: float = setting(1.0, "weight of L_div (equation 7)")
    weights: str | None = setting(
        None, "an audit, what `auditor weigh` wrote, or Parquet of key, caption_index, weight"
    )

    optimizer: Literal["adam", "adamw"] = setting("adamw", "optimizer")
    lr_encoders: float = setting(1e-5, "peak learning rate of the backbone")
    lr_other: float = setting(1e-3, "peak learning rate of the prototypes")
    weight_decay: float = setting(0.2, "decoupled (adamw) or L2 (adam); matrices of the backbone only")
    beta2: float = setting(0.98, "second-moment decay of the optimizer")
    epsilon: float = setting(1e-6, "epsilon of the optimizer")
    clip_norm: float = setting(1.0, "largest norm of the gradient; 0 leaves it as it is")
    max_logit_scale: float = setting(100.0, "logit_scale is clamped to the logarithm of this")
    schedule: Literal["cosine", "clip4clip", "constant"] = setting("cosine", "shape of the learning rate after warm-up")
    warmup: float = setting(0.1, "warm-up: a share of all steps below 1, else steps")
    epochs: int = setting(5, "epochs")
    batch_size: int = setting(128, "pairs in one contrastive loss, over all processes")
    accumulate: int = setting(1, "contrastive batches per step of the optimizer, gradients averaged")
    chunk: int = setting(0, "pairs encoded at a time by each process, same gradient in less memory; 0: all at once")

    frames: int = setting(12, "frames sampled from a video")
    tokens: int = setting(77, "tokens of a caption, begin and end included")
    captions: Literal["all", "one", "join"] = setting(
        "all", "an epoch sees every caption, one caption of each medium, or all of them as one paragraph"
    )
    shuffle: int = setting(2000, "samples in the shuffle buffer of each process")
    decoders: int = setting(0, "decoder processes of each training process; 0: its share of the cores")
    cache: bool = setting(False, "keep decoded pixels in memory after the first pass")
    cache_gb: float = setting(4.0, "budget of the cache, per training process")
    seed: int = setting(0, "seed of initialisation, order and dropout")
    save_every: int = setting(500, "steps between checkpoints; one is written after each epoch anyway")

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for f in fields(self):
            check_type(f.name, getattr(self, f.name), hints[f.name])
        for name in ("prototypes", "epochs", "batch_size", "accumulate", "frames", "shuffle", "save_every"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("chunk", "decoders", "lr_encoders", "lr_other", "weight_decay", "clip_norm", "warmup", "cache_gb"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} must not be negative, but is {getattr(self, name)}")
        if self.batch_size < 2:
            raise ConfigError("a contrastive batch needs at least 2 pairs: raise batch_size")
        if self.tokens < 3:
            raise ConfigError(f"{self.tokens} tokens leave no room for a word between begin and end")
        if not 0 <= self.target_momentum < 1:
            raise ConfigError(f"target_momentum lies in [0, 1), not {self.target_momentum}")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def to_toml(self) -> str:
        """The settings as a file that `--config` reads; what is unset is left out."""
        lines = [f"{name} = {toml_value(value)}" for name, value in self.to_dict().items() if value is not None]
        return "\n".join(lines) + "\n"

    def differences(self, other: "TrainConfig") -> list[str]:
        """Names of the settings that make this another run than `other`."""
        mine, theirs = self.to_dict(), other.to_dict()
        return [name for name in mine if name not in INCIDENTAL and mine[name] != theirs[name]]


def toml_value(value: Any) -> str:
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
        raise ConfigError(f"{name} must be {article(kind)}, not {value!r}")
    elif kind is float and not math.isfinite(value):
        raise ConfigError(f"{name} must be a finite number, not {value}")


def article(kind: type) -> str:
    return {int: "a whole number", float: "a number", bool: "true or false", str: "text"}[kind]


def preset_names() -> list[str]:
    return sorted(path.stem for path in PRESETS.glob("*.toml"))


def read_preset(name: str) -> dict[str, Any]:
    if name not in preset_names():
        raise ConfigError(f"no preset {name!r}; there are {', '.join(preset_names())}")
    return read_toml(PRESETS / f"{name}.toml")


def read_toml(path: str | Path) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error


def load_config(flags: Mapping[str, Any], *, preset: str | None = None, file: str | Path | None = None) -> TrainConfig:
    """Settings of a preset, overridden by a TOML file, overridden by flags (those that are not None)."""
    values: dict[str, Any] = {}
    if preset:
        values.update(known(read_preset(preset), f"preset {preset}"))
    if file:
        values.update(known(read_toml(file), str(file)))
    values.update(known({name: value for name, value in flags.items() if value is not None}, "the flags"))
    for f in fields(TrainConfig):
        if f.default is MISSING and f.name not in values:
            raise ConfigError(f"{f.name} is missing: {f.metadata['help']}")
    return TrainConfig(**values)


def known(values: Mapping[str, Any], source: str) -> dict[str, Any]:
    """The same settings with whole numbers as floats where floats are meant; unknown names are an error."""
    hints = get_type_hints(TrainConfig)
    for name in values:
        if name not in hints:
            near = difflib.get_close_matches(name, hints, n=1, cutoff=0.0)
            raise ConfigError(f"unknown setting {name!r} in {source}; did you mean {near[0]!r}?")
    return {
        name: float(value) if hints[name] is float and type(value) is int else value for name, value in values.items()
    }


def from_saved(values: Mapping[str, Any]) -> TrainConfig:
    """The config that a run has written."""
    return TrainConfig(**known(values, "the saved run"))
