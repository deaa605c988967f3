"""Prepares a run: checks settings and data, then builds the weights, the optimizer and the loaders, or restores them.

`prepare_run` reports every error in settings or data before anything is written.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from auditor.cores import count_cores
from auditor.research.train.pair_weights import PairWeights, read_audit_options
from auditor.research.train.training_loader import MediaLoader, PairLoader
from auditor.research.train.training_reader import LoaderConfig
from auditor.research.train.training_shards import CountedShards, TrainError, count_shards
from auditor.workers.decoder_pool import DecoderPool
from model.backbone import Backbone, resolve_device
from model.training.bert_adam import BertAdam
from model.training.objective import Learner
from model.training.trainable import add_temporal, mixes_samples, select_trainable_weights, start_backbone, start_head
from model.training.training_config import ConfigError, TrainConfig
from model.training.training_processes import ProcessGroup
from model.training.training_state import (
    RunState,
    StateError,
    check_folder,
    collect_parameters,
    load_last,
    read_state,
    recover_last,
)
from model.training.uncertainty_targets import CorpusTarget, RetrievalTarget, UncertaintyTarget

MOST_DECODERS = 8  # if the number is not set


@dataclass
class TrainingRun:
    """All parts of a run that is ready to start; nothing is written yet."""

    config: TrainConfig
    processes: ProcessGroup
    learner: Learner
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    pairs: PairLoader
    validation: MediaLoader | None
    weights: PairWeights | None
    state: RunState
    corpora: list[CountedShards]  # the training corpus and the validation corpus
    per_epoch: int  # steps
    pool: DecoderPool

    @property
    def steps(self) -> int:
        return self.per_epoch * self.config.epochs

    @property
    def pairs_per_step(self) -> int:
        return self.config.batch_size * self.config.accumulate


def check_settings(config: TrainConfig, processes: int) -> None:
    if config.batch_size % processes:
        raise ConfigError(f"batch_size {config.batch_size} cannot be divided among {processes} processes")
    if "://" in config.out:
        raise ConfigError(f"out must be a path that every process can access, not {config.out}")


def prepare_run(config: TrainConfig, processes: ProcessGroup) -> TrainingRun:
    check_settings(config, processes.size)
    out = Path(config.out)
    if out.exists():
        check_folder(out)
    shards = count_shards(config.corpus, processes, read_audit_options(config.weights))
    held_out = count_shards(config.val, processes) if config.val else None
    pairs, step_pairs = shards.pairs(config.captions), config.batch_size * config.accumulate
    if pairs < step_pairs:
        raise ConfigError(
            f"{config.corpus} has {pairs} pairs an epoch, "
            f"fewer than the {step_pairs} of one step: lower batch_size or accumulate"
        )
    last = find_saved_state(config, processes, out)
    learner = build_learner(config)
    optimizer = build_optimizer(config, learner)
    state = RunState()
    if last:
        _, state = read_state(last)
        load_last(last, learner, optimizer)
    backbone = learner.backbone
    scaled = choose_mixed_dtype(config, backbone.device) == torch.float16
    scaler = torch.amp.GradScaler(backbone.device.type, enabled=scaled)
    if state.scaler:
        scaler.load_state_dict(state.scaler)
    is_best = config.captions == "best"
    weights = PairWeights.read(config.weights, only_best=is_best) if config.weights else None
    reading = LoaderConfig(
        batch=config.batch_size // processes.size,
        captions=config.captions,
        find_best=weights.find_best_caption if weights and is_best else None,
        shuffle=config.shuffle,
        cache_bytes=int(config.cache_gb * 2**30) if config.cache else 0,
        seed=config.seed,
    )
    # By default this process's share of the cores, as if all processes were on this machine.
    decoders = config.decoders or max(1, min(MOST_DECODERS, count_cores() // processes.size))
    pool = DecoderPool(backbone.pixels, config.frames, decoders, each_second=config.each_second)
    position = state.loaders[processes.rank] if state.loaders else None
    return TrainingRun(
        config,
        processes,
        learner,
        optimizer,
        scaler,
        PairLoader(shards, reading, pool, processes, position),
        MediaLoader(held_out, reading, pool, processes) if held_out else None,
        weights,
        state,
        [shards, held_out] if held_out else [shards],
        pairs // step_pairs,
        pool,
    )


def find_saved_state(config: TrainConfig, processes: ProcessGroup, out: Path) -> Path | None:
    """The saved state to resume from; the first process looks for it, so that all agree."""
    last = processes.share(str(recover_last(out) or "") if processes.first and out.is_dir() else "")[0]
    if not last:
        return None
    saved, state = read_state(Path(last))
    if changed := config.differences(saved):
        name = changed[0]
        raise StateError(
            f"{out} holds a run with {name} = {getattr(saved, name)!r}, not {getattr(config, name)!r}: "
            "pass the same settings to resume it, or another --out"
        )
    if len(state.loaders or []) != processes.size:
        raise StateError(f"{out} holds a run of {len(state.loaders or [])} processes, not {processes.size}")
    return Path(last)


def build_learner(config: TrainConfig) -> Learner:
    try:
        backbone = start_backbone(config, resolve_device(config.device))
    except RuntimeError as error:  # the device does not exist
        raise TrainError(f"cannot use device {config.device}: {str(error).splitlines()[0]}") from error
    head = start_head(config, backbone)
    add_temporal(config, backbone)
    select_trainable_weights(backbone, config.train)
    head.train()
    if 0 < config.chunk < config.batch_size and mixes_samples(backbone.model):
        raise ConfigError(f"{config.model} uses batch normalization in training: chunk must be 0")
    dtype = choose_mixed_dtype(config, backbone.device)
    autocast: Callable[[], AbstractContextManager[None]] = nullcontext
    if dtype is not None:
        autocast = partial(torch.autocast, backbone.device.type, dtype)
    target = build_target(config, backbone)
    padded = config.frames if config.target == "released" else 0
    return Learner(backbone, head, target, config.weight_uncertainty, config.weight_diversity, autocast, padded)


def build_target(config: TrainConfig, backbone: Backbone) -> UncertaintyTarget | None:
    momentum = config.target_momentum
    if config.target in ("paper", "released"):
        return None
    target = RetrievalTarget(momentum) if config.target == "retrieval" else CorpusTarget(backbone.dim, momentum)
    return target.to(backbone.device)


def choose_mixed_dtype(config: TrainConfig, device: torch.device) -> torch.dtype | None:
    """The lower precision of mixed-precision training; None for fp32."""
    if device.type != "cuda" or config.precision == "fp32":
        if config.precision in ("bf16", "fp16"):
            raise ConfigError(f"precision {config.precision} needs CUDA; the CPU supports fp32 only")
        return None
    brain = config.precision == "bf16" or (config.precision == "auto" and torch.cuda.is_bf16_supported())
    return torch.bfloat16 if brain else torch.float16


def build_optimizer(config: TrainConfig, learner: Learner) -> torch.optim.Optimizer:
    """The optimizer; encoders have their own rate, and weight decay applies only to matrices, not to prototypes.

    BertAdam decays everything but biases, as the released program does.
    """
    everything = config.optimizer == "bertadam"
    groups: dict[tuple[float, float], list[Tensor]] = {}
    for name, parameter in collect_parameters(learner).items():
        peak = config.lr_encoders if name.startswith("backbone.") else config.lr_other
        decays = "bias" not in name if everything else parameter.ndim >= 2 and not name.startswith("head.")
        groups.setdefault((peak, config.weight_decay if decays else 0.0), []).append(parameter)
    options = [{"params": params, "weight_decay": decay, "peak": peak} for (peak, decay), params in groups.items()]
    rates: dict[str, Any] = {"lr": config.lr_encoders, "betas": (0.9, config.beta2), "eps": config.epsilon}
    if everything:
        return BertAdam(options, **rates)
    return (torch.optim.Adam if config.optimizer == "adam" else torch.optim.AdamW)(options, **rates, fused=True)
