"""Train PAU on a corpus: `train(config)` is the whole run, in one process or as one of several.

Run it with `auditor train CORPUS --val CORPUS --out DIR`, or on a cluster with `python jobs/train.py ...`. A run that
was stopped, even by kill -9, goes on from its last checkpoint when it is started again with the same settings, and
ends with the same weights as if nothing had happened.
"""

import math
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from auditor.audit_folder.folder import Folder
from auditor.audit_folder.lock import exclusive
from auditor.errors import resumable
from auditor.research.train.training_loader import Batch
from auditor.research.train.training_run import Run, TrainError, prepare
from auditor.research.train.validation import validate
from model.training.objective import Learner, ObjectiveError, Pairs, Terms, add_gradient, derive_seed
from model.training.schedule import multiplier
from model.training.trainable import tokenize
from model.training.training_config import TrainConfig
from model.training.training_processes import ProcessGroup, current_processes
from model.training.training_state import BEST, LAST, Metrics, parameters_by_name, read_state, save_last, save_weights

__all__ = ["StepReport", "TrainConfig", "TrainError", "TrainResult", "train"]


@dataclass(frozen=True, slots=True)
class StepReport:
    """Handed to `progress` after every step; `validation` only where an epoch ends."""

    step: int  # done so far
    steps: int
    epoch: int  # counted from 1
    epochs: int
    pairs: int  # of this step
    terms: dict[str, float]
    validation: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class TrainResult:
    """What a run has given. `failures` counts samples that were left out, by reason."""

    best: Path
    last: Path
    steps: int
    resumed_from: int | None
    validation: dict[str, Any] | None  # of best/
    terms: dict[str, float] | None  # of the last step; None where nothing was left to do
    failures: dict[str, int]
    examples: list[str]  # of failures, "shard: key: message"
    problems: list[str]  # of shards
    pairs_per_second: float
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "best": str(self.best), "last": str(self.last)}


Progress = Callable[[StepReport], None]


def train(config: TrainConfig, progress: Progress | None = None, processes: ProcessGroup | None = None) -> TrainResult:
    """Train, or go on with training, and return what came of it. Every process calls its `progress` after each step."""
    processes = processes or current_processes()
    out = Path(config.out)
    fresh = not out.exists()
    with torch.random.fork_rng(), alone(config, processes):
        try:
            run = prepare(config, processes)
            with run.pool, resumable(lambda: how_to_resume(run, out)):
                return work(run, out, progress or (lambda report: None))
        except BaseException:
            if fresh and processes.first and out.exists() and not (out / LAST).exists():
                shutil.rmtree(out, ignore_errors=True)  # nothing half-written
            raise


def how_to_resume(run: Run, out: Path) -> str:
    """After Ctrl-C: from which step the same command goes on."""
    if not (out / LAST).exists():
        return "no state was saved yet (--save-every): the same command starts over"
    kept = read_state(out / LAST)[1].step
    return f"{out / LAST} is of step {kept:,} of {run.steps:,}: the same command again goes on from there"


def alone(config: TrainConfig, processes: ProcessGroup) -> AbstractContextManager[None]:
    """Two runs in one folder would mix their metrics and delete each other's files."""
    return exclusive(Folder(config.out)) if processes.first and "://" not in config.out else nullcontext()


def work(run: Run, out: Path, progress: Progress) -> TrainResult:
    """The run from where it is to its end."""
    began, first = time.monotonic(), run.state.step
    metrics = start_folder(run, out)
    terms: Terms | None = None
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
                checkpoint(run, out)
            progress(report(run, terms, measured))
    run.processes.wait()
    return result(run, out, first, terms, time.monotonic() - began)


def report(run: Run, terms: Terms, validation: dict[str, Any] | None) -> StepReport:
    epoch = math.ceil(run.state.step / run.per_epoch)
    size = run.pairs_per_step
    return StepReport(run.state.step, run.steps, epoch, run.config.epochs, size, asdict(terms), validation)


def optimizer_step(run: Run, batches: Iterator[Batch]) -> Terms:
    """One step: the gradient of `accumulate` contrastive batches, then the optimizer. Moves the state forward."""
    config, learner, processes = run.config, run.learner, run.processes
    factor = run.scaler.get_scale() / config.accumulate
    run.optimizer.zero_grad(set_to_none=True)
    reported = []
    for part in range(config.accumulate):
        seed = derive_seed(config.seed, run.state.step, part, processes.rank)
        pairs = to_device(run, next(batches))
        with naming_step(run.state.step + 1):
            reported.append(add_gradient(learner, pairs, processes, seed=seed, chunk=config.chunk, factor=factor))
    share_gradients(learner, processes)
    run.scaler.unscale_(run.optimizer)
    limit = config.clip_norm or math.inf
    norm = torch.nn.utils.clip_grad_norm_(parameters_by_name(learner).values(), limit)
    if not run.scaler.is_enabled() and not bool(torch.isfinite(norm)):
        raise TrainError(f"the gradient is not finite at step {run.state.step + 1}; lower the learning rates")
    rate = multiplier(run.state.step, run.steps, config.warmup, config.schedule)
    for group in run.optimizer.param_groups:
        group["lr"] = rate * group["peak"]
    run.scaler.step(run.optimizer)
    run.scaler.update()
    with torch.no_grad():
        learner.log_scale.clamp_(max=math.log(config.max_logit_scale))
    run.state.step += 1
    return mean_terms(reported)


@contextmanager
def naming_step(step: int) -> Iterator[None]:
    try:
        yield
    except ObjectiveError as error:
        raise TrainError(f"{error} at step {step}; lower the learning rates, or warm up for longer") from error


def to_device(run: Run, batch: Batch) -> Pairs:
    device = run.learner.backbone.device
    weights = run.weights.of(batch.draws) if run.weights else [1.0] * len(batch)
    return Pairs(
        pixels=batch.pixels,
        mask=batch.mask,
        tokens=tokenize(run.learner.backbone, batch.captions, run.config.tokens),
        numbers=torch.tensor(batch.numbers, device=device),
        weights=torch.tensor(weights, device=device),
    )


def share_gradients(learner: Learner, processes: ProcessGroup) -> None:
    """Encoders: the sum over processes, each of which has the part of its own pairs. What the loss itself holds (the
    prototypes, the scale) has its whole gradient everywhere; the mean keeps the copies equal to the last bit."""
    if processes.size == 1:
        return
    named = parameters_by_name(learner)
    processes.sum_gradients(named.values())
    for name, parameter in named.items():
        if name.startswith("head.") or name in ("backbone.logit_scale", "backbone.logit_bias"):
            assert parameter.grad is not None
            parameter.grad.div_(processes.size)
    processes.average([b for b in learner.backbone.model.buffers() if b.is_floating_point()])


def mean_terms(terms: Iterable[Terms]) -> Terms:
    rows = [asdict(t) for t in terms]
    return Terms(**{name: sum(row[name] for row in rows) / len(rows) for name in rows[0]})


def start_folder(run: Run, out: Path) -> Metrics | None:
    if not run.processes.first:
        return None
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.toml").write_text(run.config.to_toml(), encoding="utf-8")
    return Metrics(out, run.state.step)


def finish_epoch(run: Run, out: Path, metrics: Metrics | None) -> dict[str, Any] | None:
    """Validate, and keep the weights if they are the best so far; without validation the last are the best."""
    found = validate(run.learner, run.validation, run.config.tokens, run.processes) if run.validation else None
    score = found.rsum if found else float(run.state.step)
    measured = found.to_dict() if found else None
    if metrics and measured:
        metrics.write({"step": run.state.step, "epoch": run.state.step // run.per_epoch, "validation": measured})
    if run.state.best is None or score > run.state.best:
        run.state.best, run.state.validation = score, measured
        if run.processes.first:
            save_weights(out / BEST, run.config, run.learner, {"step": run.state.step, "validation": measured})
    return measured


def checkpoint(run: Run, out: Path) -> None:
    """Everything that is needed to go on from here."""
    run.state.loaders = run.processes.share(run.pairs.state())
    run.state.scaler = run.scaler.state_dict() or None
    if run.processes.first:
        save_last(out, run.config, run.learner, run.optimizer, run.state)


def result(run: Run, out: Path, first: int, terms: Terms | None, seconds: float) -> TrainResult:
    mine = list(run.pairs.failures.values())
    if run.validation:
        mine += run.validation.failures.values()
    failures = [failure for part in run.processes.share(mine) for failure in part]
    left_out = sum((corpus.left_out for corpus in run.corpora), Counter(failure.reason for failure in failures))
    examples = [f"{failure.shard}: {failure.key}: {failure.message}" for failure in failures]
    examples += [example for corpus in run.corpora for example in corpus.examples]
    rate = (run.state.step - first) * run.pairs_per_step / max(seconds, 1e-9)
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
        pairs_per_second=rate,
        seconds=seconds,
    )
