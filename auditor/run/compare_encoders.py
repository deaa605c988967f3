"""Tries models on a random sample of a corpus, to find the one that can judge it: competence, speed, size.

The sample comes from a bounded number of shards, which stay open while the models are tried one after another. It is
swept into a temporary folder as in an audit; the pairs are those that the seed chooses, the same for every model and
on every machine.
"""

import heapq
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from auditor.audit_folder.folder import Folder
from auditor.console import Progress
from auditor.corpus.open_corpus import Corpus
from auditor.corpus.parquet_rows import compute_row_edges, open_parquet
from auditor.corpus.sample import Media, Sample
from auditor.corpus.shard import OpenShard, Shard, convert_shard_errors
from auditor.corpus.stored.vector_shard import VectorShard
from auditor.errors import AuditError, AuditorError
from auditor.run.audit_config import AuditConfig
from auditor.run.encoder_competence import SampleCompetence, measure_shards
from auditor.run.engine import make_sweeper
from auditor.run.run_audit import DEFAULT_MODEL, load_trained_model
from auditor.score.statistics.competence import SMALLEST_PART, WIDTH
from auditor.sweep.corpus_model import CorpusModel
from auditor.sweep.vector_sweep import find_stored_model
from model.backbone import Backbone
from model.model_errors import ModelError

SHARDS = 20  # shards that a sample comes from, or more if they are small
STRETCHES = 40  # ranges of rows that a sample of stored embeddings consists of
STORED = "stored"
NONE = (
    "none of these can judge this corpus, and p_mismatch would be empty for most pairs: try another model, such as one "
    "trained for this language or kind of media, or let people judge a sample with `auditor certify`"
)
Read = Callable[[Media], bytes]
Pair = tuple[Sample, int, Read]  # a sample, the index of its caption, and the reader of its medium


@dataclass(frozen=True, slots=True)
class EncoderTrial:
    """Competence, speed and size of one model, measured on the sample."""

    model: str
    competence: SampleCompetence
    pairs_per_second: float | None = None  # of reading, decoding and encoding; None for stored embeddings
    parameters: int | None = None
    weight_bytes: int | None = None
    width: int | None = None

    @property
    def interval(self) -> tuple[float, float]:
        """The competence that models are ranked by, 90%: separation and relatedness on what the model can judge."""
        parts = [self.competence.average(name) for name in ("separation", "relatedness")]
        value, error = sum(part.value for part in parts), sum(part.error**2 for part in parts) ** 0.5
        share = self.competence.judged_share
        return (value - WIDTH * error) * share, (value + WIDTH * error) * share

    def to_dict(self) -> dict[str, Any]:
        names = ("pairs_per_second", "parameters", "weight_bytes", "width")
        return {"model": self.model, **self.competence.to_dict(), **{name: getattr(self, name) for name in names}}


@dataclass(frozen=True, slots=True)
class SampledShard:
    """Samples of several shards as one shard."""

    name: str
    contents: OpenShard

    def fingerprint(self) -> str:
        return self.name

    def open(self) -> AbstractContextManager[OpenShard]:
        return nullcontext(self.contents)


def try_encoders(
    corpus: Corpus, config: AuditConfig, models: Sequence[str], count: int
) -> Iterator[tuple[str, EncoderTrial | None, str]]:
    """Yield each model with its trial or with the reason why it failed. Stored embeddings are tried as they are."""
    names = list_models(corpus, models)
    stored = find_stored_model(corpus, config.logit_scale)
    with ExitStack() as stack:
        shards = draw_sample(corpus, count, np.random.default_rng(config.score.seed), stack)
        for name in names:
            try:
                model = stored or load_trained_model(replace(config, model=name), config.device).backbone
                yield name, try_encoder(name, model, shards, config, count), ""
            except (AuditorError, ModelError, OSError) as error:
                yield name, None, str(error)


def list_models(corpus: Corpus, models: Sequence[str]) -> list[str]:
    """The models to try, each once; for stored embeddings only STORED."""
    if find_stored_model(corpus, 1.0):
        return [STORED]
    if not models:
        raise AuditError(f"name the models to try, for example --try {DEFAULT_MODEL} --try ViT-B-16@openai")
    return list(dict.fromkeys(models))


def try_encoder(
    name: str, model: CorpusModel, shards: Sequence[Shard], config: AuditConfig, count: int
) -> EncoderTrial:
    status: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as scratch, Progress(name, None, quiet=config.quiet) as progress:
        folder = Folder(scratch)
        with make_sweeper(model, folder, config.sweep) as sweeper:
            started = time.monotonic()
            reports = list(sweeper.sweep(shards, lambda rows, errors: progress.advance(rows)))
            seconds = time.monotonic() - started
        for report in reports:
            status.update(report.status if report.failure is None else {report.failure: 1})
        pairs = {report.shard: report.status.get("ok", 0) for report in reports}
        competence = measure_shards(folder, pairs, count, config.score.seed)
    if competence is None:
        reasons = "".join(f", {reason}: {number:,}" for reason, number in status.most_common(3) if reason != "ok")
        raise AuditError(
            f"only {status['ok']:,} pairs of the sample can be used{reasons}; a trial needs {SMALLEST_PART} of a kind, "
            "with different captions"
        )
    if not isinstance(model, Backbone):
        return EncoderTrial(name, competence, width=model.dim)
    weights = list(model.model.parameters())
    sizes = sum(part.numel() for part in weights), sum(part.nbytes for part in weights)
    return EncoderTrial(name, competence, round(status["ok"] / seconds, 2), *sizes, model.dim)


def draw_sample(corpus: Corpus, count: int, generator: np.random.Generator, stack: ExitStack) -> list[Shard]:
    """Random pairs of random shards; the shards stay open until `stack` closes."""
    failures: list[str] = []
    shuffled_shards = [corpus.shards[number] for number in generator.permutation(len(corpus.shards))]
    if any(isinstance(shard, VectorShard) for shard in shuffled_shards):
        size = max(1, count // STRETCHES)
        stretches = list(cut_stretches(shuffled_shards, count, size, failures))
        sample: list[Shard] = [stretches[i] for i in generator.permutation(len(stretches))[: -(-count // size)]]
    else:
        numbered = enumerate(list_pairs(shuffled_shards, count, stack, failures))
        keyed_pairs = heapq.nsmallest(count, ((generator.random(), number, pair) for number, pair in numbered))
        sample = join_pairs([pair for _, _, pair in sorted(keyed_pairs, key=lambda item: item[1])])
    if not sample:
        raise AuditError(failures[0] if failures else f"{corpus.spec}: it has no pair of a medium and a caption")
    return sample


def list_pairs(shards: Sequence[Shard], count: int, stack: ExitStack, failures: list[str]) -> Iterator[Pair]:
    """Open shards until there are enough of them and of their pairs, and yield the pairs."""
    pairs = 0
    for number, shard in enumerate(shards):
        if number >= SHARDS and pairs >= count:
            return
        try:
            opened = stack.enter_context(shard.open())
        except (AuditorError, OSError) as error:
            failures.append(str(error))
            continue
        for sample in opened.samples:
            if sample.problem is None:
                yield from ((sample, index, opened.read) for index in range(len(sample.captions)))
                pairs += len(sample.captions)


def join_pairs(pairs: Sequence[Pair]) -> list[Shard]:
    """The pairs as one shard, so that batches are as full as in an audit."""
    captions: dict[Sample, list[int]] = {}
    readers: dict[Media | None, Read] = {}
    for sample, index, read in pairs:
        captions.setdefault(sample, []).append(index)
        readers[sample.media] = read
    samples = [
        replace(
            sample,
            captions=tuple(sample.captions[index] for index in indices),
            spans=tuple(sample.spans[index] for index in indices) if sample.spans else (),
            uid=None,
            uids=(),
            carried=(),
        )
        for sample, indices in captions.items()
    ]
    contents = OpenShard(samples, [], lambda media: readers[media](media))
    return [SampledShard("sample", contents)] if samples else []


def cut_stretches(shards: Sequence[Shard], count: int, size: int, failures: list[str]) -> Iterator[VectorShard]:
    """Yield ranges of `size` rows of shards of stored embeddings, of as many shards as `list_pairs` opens."""
    rows = 0
    for number, shard in enumerate(shards):
        assert isinstance(shard, VectorShard)  # a corpus is of one kind
        if number >= SHARDS and rows >= count:
            return
        try:
            with convert_shard_errors(shard.name, shard.path), open_parquet(shard.path) as file:
                stop = compute_row_edges(file)[-1] if shard.stop is None else shard.stop
        except AuditorError as error:
            failures.append(str(error))
            continue
        for start in range(shard.start, stop, size):
            end = min(start + size, stop)
            yield replace(shard, name=f"{shard.name}-{start}", carried=(), start=start, stop=end)
        rows += stop - shard.start


def rank_trials(trials: Sequence[EncoderTrial]) -> tuple[list[EncoderTrial], str | None, str]:
    """Sort trials, best first. Returns them, the model to use (None if all are blind), and a sentence that says so.

    Models as competent as the best one, by their intervals, are sorted by speed.
    """
    candidates = [trial for trial in trials if not trial.competence.blind]
    best = max(candidates, key=lambda trial: sum(trial.interval), default=None)
    if best is None:
        return sorted(trials, key=lambda trial: -sum(trial.interval)), None, NONE

    def sort_key(trial: EncoderTrial) -> tuple[bool, bool, float]:
        is_weaker = trial.interval[1] < best.interval[0]
        return trial.competence.blind, is_weaker, -(sum(trial.interval) if is_weaker else trial.pairs_per_second or 0)

    ranked = sorted(trials, key=sort_key)
    choice = ranked[0]
    share = f"{choice.competence.judged_share:.0%} of the sampled pairs"
    if choice.model == STORED:
        return ranked, STORED, f"use these embeddings: with them, {share} can be judged"
    reason = f"it can judge {share}"
    if choice is not best:
        times = (choice.pairs_per_second or 0) / (best.pairs_per_second or 1)
        reason += f", as well as {best.model} within the error, and is {times:.1f} times as fast"
    elif len(trials) > 1:
        reason += " and tells captions best from random ones"
    return ranked, choice.model, f"use {choice.model}: {reason}"
