"""Trains PAU on a corpus: `train(config)` is the whole run, in a single process or in each of several.

Run it with `auditor train CORPUS --val CORPUS --out DIR`, or on a cluster with `python jobs/train.py ...`. A run that
was stopped, even by kill -9, resumes from its last checkpoint when it is started again with the same settings. It ends
with the same weights as an uninterrupted run.
"""

import math
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from auditor.audit_folder.folder import Folder
from auditor.audit_folder.lock import hold_folder_lock
from auditor.console import Progress
from auditor.errors import explain_interrupt
from auditor.research.retrieval.recall import DIRECTIONS, EmbeddingSet, RetrievalResult, compute_recall
from auditor.research.train.training_loader import Batch, MediaLoader
from auditor.research.train.training_run import TrainingRun, prepare_run
from auditor.research.train.training_shards import TrainError
from auditor.sweep.shard_encoder import pool_media
from auditor.terminal import print_line
from auditor.vectors import concatenate_media
from model.backbone import evaluation_mode
from model.training.objective import Learner, LossTerms, ObjectiveError, TrainingPairs, add_gradient, derive_seed
from model.training.trainable import embed_frames, tokenize
from model.training.training_config import TrainConfig, scale_learning_rate
from model.training.training_processes import ProcessGroup, current_processes
from model.training.training_state import (
    BEST,
    LAST,
    MetricsFile,
    collect_parameters,
    read_state,
    save_last,
    save_weights,
)

TEXT_BATCH = 256  # captions encoded at a time in validation

__all__ = ["StepReport", "TrainConfig", "TrainError", "TrainResult", "train"]


@dataclass(frozen=True, slots=True)
class StepReport:
    """The argument of `progress` after every step; `validation` is set only at the end of an epoch."""

    step: int  # finished steps
    steps: int
    epoch: int  # counted from 1
    epochs: int
    pairs: int  # in this step
    terms: dict[str, float]
    validation: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class TrainResult:
    """The outcome of a run. `failures` counts the samples that were left out, by reason."""

    best: Path
    last: Path
    steps: int
    resumed_from: int | None
    validation: dict[str, Any] | None  # recall of best/
    terms: dict[str, float] | None  # loss of the last step; None if the run was already complete
    failures: dict[str, int]
    examples: list[str]  # failures as "shard: key: message"
    problems: list[str]  # damaged shards
    pairs_per_second: float
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "best": str(self.best), "last": str(self.last)}


StepHook = Callable[[StepReport], None]


class TrainProgress:
    """The progress bar of a run: pairs, rate, time left and loss terms; also prints a line for each validation."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet
        self.bar: Progress | None = None

    def __call__(self, report: StepReport) -> None:
        if self.bar is None:
            total = report.pairs * (report.steps - report.step + 1)
            self.bar = Progress("train", total, quiet=self.quiet).__enter__()
        fields = {"epoch": f"{report.epoch}/{report.epochs}", "loss": report.terms["loss"]}
        fields |= {name: report.terms[name] for name in ("info_nce", "uncertainty", "diversity")}
        self.bar.advance(report.pairs, **fields)
        if report.validation and not self.quiet:
            to_text, to_visual = (report.validation[way]["R@1"] for way in DIRECTIONS)
            recalls = f"R@1 visual to text {to_text:.1f}, text to visual {to_visual:.1f}"
            print_line(f"epoch {report.epoch}: {recalls}", err=True)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.__exit__()


def train(config: TrainConfig, progress: StepHook | None = None, processes: ProcessGroup | None = None) -> TrainResult:
    """Start or resume a run and return its result. Every process calls its `progress` after each step."""
    processes = processes or current_processes()
    out = Path(config.out)
    fresh = not out.exists()
    # Two runs in one folder would mix their metrics and delete each other's files.
    locked = processes.first and "://" not in config.out
    with torch.random.fork_rng(), hold_folder_lock(Folder(config.out)) if locked else nullcontext():
        try:
            run = prepare_run(config, processes)
            with run.pool, explain_interrupt(lambda: describe_saved_step(run, out)):
                return run_steps(run, out, progress or (lambda report: None))
        except BaseException:
            if fresh and processes.first and out.exists() and not (out / LAST).exists():
                shutil.rmtree(out, ignore_errors=True)  # leave no incomplete folder
            raise


def describe_saved_step(run: TrainingRun, out: Path) -> str:
    if not (out / LAST).exists():
        return "no checkpoint was saved yet (--save-every): the same command starts over"
    step = read_state(out / LAST)[1].step
    return f"{out / LAST} holds step {step:,} of {run.steps:,}: run the same command again to resume from there"


def run_steps(run: TrainingRun, out: Path, progress: StepHook) -> TrainResult:
    began, first = time.monotonic(), run.state.step
    metrics = None
    if run.processes.first:
        out.mkdir(parents=True, exist_ok=True)
        (out / "config.toml").write_text(run.config.to_toml(), encoding="utf-8")
        metrics = MetricsFile(out, first)
    terms: LossTerms | None = None
    with closing(iter(run.pairs)) as batches:
        while run.state.step < run.steps:
            terms = optimizer_step(run, batches)
            step = run.state.step
            ended = step % run.per_epoch == 0
            rate = (step - first) * run.pairs_per_step / max(time.monotonic() - began, 1e-9)
            if metrics:
                metrics.write({"step": step, "epoch": step / run.per_epoch, **asdict(terms), "pairs_per_second": rate})
            measured = finish_epoch(run, out, metrics) if ended else None
            if ended or step % run.config.save_every == 0:
                save_checkpoint_state(run, out)
            epoch, epochs = math.ceil(step / run.per_epoch), run.config.epochs
            progress(StepReport(step, run.steps, epoch, epochs, run.pairs_per_step, asdict(terms), measured))
    run.processes.wait()
    return make_train_result(run, out, first, terms, time.monotonic() - began)


def optimizer_step(run: TrainingRun, batches: Iterator[Batch]) -> LossTerms:
    """One step: add the gradients of `accumulate` contrastive batches, run the optimizer, and advance the state."""
    config, learner, processes = run.config, run.learner, run.processes
    factor = run.scaler.get_scale() / config.accumulate
    run.optimizer.zero_grad(set_to_none=True)
    reported: list[dict[str, float]] = []
    for part in range(config.accumulate):
        seed = derive_seed(config.seed, run.state.step, part, processes.rank)
        pairs = move_to_device(run, next(batches))
        try:
            terms = add_gradient(learner, pairs, processes, seed=seed, chunk=config.chunk, factor=factor)
        except ObjectiveError as error:
            advice = "lower the learning rates, or warm up for longer"
            raise TrainError(f"{error} at step {run.state.step + 1}; {advice}") from error
        reported.append(asdict(terms))
    synchronize_gradients(learner, processes)
    run.scaler.unscale_(run.optimizer)
    limit = config.clip_norm or math.inf
    norm = torch.nn.utils.clip_grad_norm_(collect_parameters(learner).values(), limit)
    if not run.scaler.is_enabled() and not bool(torch.isfinite(norm)):
        raise TrainError(f"the gradient is not finite at step {run.state.step + 1}; lower the learning rates")
    rate = scale_learning_rate(run.state.step, run.steps, config.warmup, config.schedule)
    for group in run.optimizer.param_groups:
        group["lr"] = rate * group["peak"]
    run.scaler.step(run.optimizer)
    run.scaler.update()
    with torch.no_grad():
        learner.log_scale.clamp_(max=math.log(config.max_logit_scale))
    run.state.step += 1
    return LossTerms(**{name: sum(part[name] for part in reported) / len(reported) for name in reported[0]})


def move_to_device(run: TrainingRun, batch: Batch) -> TrainingPairs:
    device = run.learner.backbone.device
    weights = run.weights.weigh_draws(batch.draws) if run.weights else [1.0] * len(batch)
    return TrainingPairs(
        pixels=batch.pixels,
        mask=batch.mask,
        tokens=tokenize(run.learner.backbone, batch.captions, run.config.tokens),
        numbers=torch.tensor(batch.numbers, device=device),
        weights=torch.tensor(weights, device=device),
    )


def synchronize_gradients(learner: Learner, processes: ProcessGroup) -> None:
    """Combine the gradients of all processes.

    Those of the encoders are summed: each process has the part of its own pairs. The parameters of the loss itself (the
    prototypes, the scale, the temporal transformer, which sees the clips of all processes) have the whole gradient in
    every process; their mean keeps the copies equal to the last bit.
    """
    if processes.size == 1:
        return
    parameters = collect_parameters(learner)
    processes.sum_gradients(parameters.values())
    for name, parameter in parameters.items():
        if name.startswith(("head.", "temporal.")) or name in ("backbone.logit_scale", "backbone.logit_bias"):
            assert parameter.grad is not None
            parameter.grad.div_(processes.size)
    processes.average([b for b in learner.backbone.model.buffers() if b.is_floating_point()])


def finish_epoch(run: TrainingRun, out: Path, metrics: MetricsFile | None) -> dict[str, Any] | None:
    """Validate, and save the weights if they are the best so far; without validation the last ones are the best."""
    recall = validate_learner(run.learner, run.validation, run.config.tokens, run.processes) if run.validation else None
    score = recall.rsum if recall else float(run.state.step)
    measured = recall.to_dict() if recall else None
    if metrics and measured:
        metrics.write({"step": run.state.step, "epoch": run.state.step // run.per_epoch, "validation": measured})
    if run.state.best is None or score > run.state.best:
        run.state.best, run.state.validation = score, measured
        if run.processes.first:
            save_weights(out / BEST, run.config, run.learner, {"step": run.state.step, "validation": measured})
    return measured


def save_checkpoint_state(run: TrainingRun, out: Path) -> None:
    run.state.loaders = run.processes.share(run.pairs.state())
    run.state.scaler = run.scaler.state_dict() or None
    if run.processes.first:
        save_last(out, run.config, run.learner, run.optimizer, run.state)


def make_train_result(run: TrainingRun, out: Path, first: int, terms: LossTerms | None, seconds: float) -> TrainResult:
    loaders = (run.pairs, run.validation) if run.validation else (run.pairs,)
    local_failures = [failure for loader in loaders for failure in loader.failures.values()]
    failures = [failure for part in run.processes.share(local_failures) for failure in part]
    left_out = sum((corpus.left_out for corpus in run.corpora), Counter(failure.reason for failure in failures))
    examples = [f"{failure.shard}: {failure.key}: {failure.message}" for failure in failures]
    examples += [example for corpus in run.corpora for example in corpus.examples]
    return TrainResult(
        best=out / BEST,
        last=out / LAST,
        steps=run.state.step,
        resumed_from=first or None,
        validation=run.state.validation,
        terms=asdict(terms) if terms else None,
        failures=dict(left_out),
        examples=examples[:5],
        problems=[problem for corpus in run.corpora for problem in corpus.problems],
        pairs_per_second=(run.state.step - first) * run.pairs_per_step / max(seconds, 1e-9),
        seconds=seconds,
    )


def validate_learner(learner: Learner, loader: MediaLoader, tokens: int, processes: ProcessGroup) -> RetrievalResult:
    """Recall over the validation media of all processes; every process gets the result."""
    parts = [part for part in processes.share(encode_validation_share(learner, loader, tokens)) if part is not None]
    if not parts:
        raise TrainError("no medium of the validation corpus could be decoded")
    return compute_recall(concatenate_embedding_sets(parts))


def concatenate_embedding_sets(parts: Sequence[EmbeddingSet]) -> EmbeddingSet:
    return EmbeddingSet(
        concatenate_media([part.media for part in parts]),
        np.concatenate([part.text for part in parts]),
        np.concatenate([part.visual_groups for part in parts]),
        np.concatenate([part.text_groups for part in parts]),
    )


def encode_validation_share(learner: Learner, loader: MediaLoader, tokens: int) -> EmbeddingSet | None:
    """Embed this process's share of the validation corpus; None if its share is empty."""
    parts: list[EmbeddingSet] = []
    with evaluation_mode(learner.backbone.model), learner.autocast():
        for batch in loader:
            captions = [caption for several in batch.captions for caption in several]
            owners = [n for n, several in zip(batch.numbers, batch.captions, strict=True) for _ in several]
            text = [
                learner.backbone.embed_tokens(tokenize(learner.backbone, captions[i : i + TEXT_BATCH], tokens)).cpu()
                for i in range(0, len(captions), TEXT_BATCH)
            ]
            frames = embed_frames(learner.backbone, batch.pixels, batch.mask).cpu()[batch.mask].numpy()
            counts = batch.mask.sum(dim=1).numpy()
            media = pool_media(learner.backbone, frames, counts, keep=bool((counts > 1).any()))
            parts.append(EmbeddingSet(media, torch.cat(text).numpy(), np.array(batch.numbers), np.array(owners)))
    return concatenate_embedding_sets(parts) if parts else None
