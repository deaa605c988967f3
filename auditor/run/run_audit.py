"""An audit from corpus to summary: sweep what is not swept yet, score everything, account for every key.

`run_audit` is the whole of `auditor audit` and of jobs/audit.py; they differ only in the engine that places the work.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from auditor.audit_folder.extra_columns import remove_shard
from auditor.audit_folder.folder import Folder
from auditor.audit_folder.lock import exclusive
from auditor.audit_folder.manifest import NAME, Manifest
from auditor.console import Progress
from auditor.corpus.open_corpus import Corpus, CorpusOptions, open_corpus
from auditor.errors import AuditError, resumable
from auditor.run.distinct_shard_uids import separate_shards
from auditor.run.engine import Engine, LocalEngine
from auditor.run.output_folder import check_place, how_to_resume
from auditor.run.scoring import encode_captions, finish, keep_head, look_for_faults, score_corpus
from auditor.score.corpus_statistics import ScoreConfig
from auditor.sweep.embeddings_writer import ShardReport
from auditor.sweep.sweep import SweepConfig
from auditor.sweep.vector_sweep import (
    LOGIT_SCALE,
    StoredModel,
    publish_carried,
    stored_model,
)
from model.backbone import Backbone, BackboneError
from model.checkpoint import Loaded, load_head, load_model
from model.prototypes import PrototypeHead

DEFAULT_MODEL = "ViT-B-32@laion2b_s34b_b79k"
ENOUGH = 200  # rows before an error rate means anything


@dataclass(frozen=True)
class AuditConfig:
    """What `auditor audit` was asked to do."""

    corpus: str
    out: str
    model: str | None = None
    options: CorpusOptions = field(default_factory=CorpusOptions)
    sweep: SweepConfig = field(default_factory=SweepConfig)
    score: ScoreConfig = field(default_factory=ScoreConfig)
    logit_scale: float = LOGIT_SCALE  # of stored embeddings, whose files do not tell
    device: str = "cpu"
    max_error_rate: float = 0.5
    allow_random_weights: bool = False
    force: bool = False  # write into a folder that others have files in
    quiet: bool = False


MakeEngine = Callable[[Folder, Backbone | StoredModel, AuditConfig], Engine]


def local_engine(folder: Folder, backbone: Backbone | StoredModel, config: AuditConfig) -> Engine:
    return LocalEngine(folder, backbone, config.sweep)


def run_audit(config: AuditConfig, make_engine: MakeEngine = local_engine, device: str | None = None) -> Manifest:
    """Audit a corpus, or finish an audit that was interrupted. The manifest says what became of it.

    `device` is where this process itself loads the model, where that differs from where the engine encodes.
    """
    folder = Folder(config.out)
    check_place(folder, config.corpus, force=config.force)
    corpus = open_corpus(config.corpus, config.options)
    backbone, head = find_model(config, corpus, device or config.device)
    with exclusive(folder), resumable(lambda: how_to_resume(folder, len(corpus.shards))):
        manifest = begin(folder, corpus, backbone, config)
        engine = make_engine(folder, backbone, config)
        reports = distinct(folder, sweep_corpus(folder, corpus, engine, config, manifest), engine)
        account(corpus, reports, manifest)
        manifest.state = "scoring"
        manifest.save(folder)
        swept = [report.shard for report in reports if report.failure is None]
        encode = None if isinstance(backbone, StoredModel) else partial(encode_captions, backbone)
        context = score_corpus(folder, swept, engine, head, manifest, config.score, config.quiet, encode)
        keep_head(folder, context.head, manifest)
        finish(manifest, folder)
        look_for_faults(folder, engine)
    return manifest


def find_model(config: AuditConfig, corpus: Corpus, device: str) -> tuple[Backbone | StoredModel, PrototypeHead | None]:
    """What encodes the corpus, or stands for what did; and the PAU head that was given, if any."""
    stored = stored_model(corpus, config.logit_scale)
    if stored is None:
        loaded = load_for_audit(config, device)
        return loaded.backbone, loaded.head
    head = load_head(config.model) if config.model else None
    if head is not None and head.config.dim != stored.dim:
        raise AuditError(f"{config.model} is a head for vectors of {head.config.dim} numbers, these have {stored.dim}")
    return stored, head


def load_for_audit(config: AuditConfig, device: str) -> Loaded:
    """The model that was asked for; refuses one whose weights are random, which can measure nothing."""
    try:
        loaded = load_model(config.model or DEFAULT_MODEL, device)
    except BackboneError as error:
        if config.model is None:
            raise AuditError(
                f"no --model was given and the default {DEFAULT_MODEL} cannot be fetched: pass a PAU checkpoint "
                f"folder, or an open_clip model such as local-dir:PATH ({error})"
            ) from error
        raise
    if not loaded.backbone.pretrained and not config.allow_random_weights:
        raise AuditError(
            f"{config.model} names an architecture without weights; add a pretrained tag, for example "
            f"{config.model}@laion2b_s34b_b79k"
        )
    return loaded


def model_facts(backbone: Backbone | StoredModel, config: AuditConfig) -> dict[str, Any]:
    """What the manifest says of the model; `spec` is empty where only its vectors are known."""
    if isinstance(backbone, StoredModel):
        facts = {"spec": "", "origin": backbone.origin, "pixels": None, "frames": 1, "exact_pixels": True}
        facts |= {"precision": "float32"}
        same = {"fingerprint": backbone.fingerprint, "dim": backbone.dim, "logit_scale": backbone.logit_scale}
        return {**facts, **same}
    return {
        "spec": backbone.spec,
        "fingerprint": backbone.fingerprint,
        "dim": backbone.dim,
        "logit_scale": backbone.logit_scale,
        "pixels": backbone.pixels.to_dict(),
        "frames": config.sweep.frames,
        "exact_pixels": config.sweep.exact_pixels,
        "precision": config.sweep.precision,
    }


def begin(folder: Folder, corpus: Corpus, backbone: Backbone | StoredModel, config: AuditConfig) -> Manifest:
    """The manifest of a new audit, or of the one to go on with; refuses to mix what must not be mixed."""
    fresh = Manifest(
        corpus={"spec": corpus.spec, "root": corpus.root, "shards": len(corpus.shards), **asdict(config.options)},
        model=model_facts(backbone, config),
        settings={"sweep": asdict(config.sweep), "score": asdict(config.score), "device": config.device},
    )
    if folder.exists(NAME):
        old = Manifest.load(folder)
        refuse_other(folder, old, fresh)
        fresh.created = old.created
    folder.sweep_temporary("", "embeddings", "samples", "head")
    fresh.save(folder)
    publish_carried(folder, corpus)
    return fresh


def refuse_other(folder: Folder, old: Manifest, new: Manifest) -> None:
    """An audit is of one corpus by one model; anything else belongs into another folder."""
    for name in ("spec", "captions", "shard_size", "encoding", "delimiter", "header", "carry"):
        _refuse(folder, f"corpus {name}", old.corpus.get(name) or None, new.corpus[name] or None)
    refuse_other_model(folder, old, new.model)


def refuse_other_model(folder: Folder, old: Manifest, new: dict[str, Any]) -> None:
    """Embeddings of two models, or of other pixels or frames, must not meet in one audit."""
    for name in ("fingerprint", "pixels", "frames"):
        before, after = old.model.get(name), new[name]
        if name == "fingerprint" and before != after:
            before, after = (f"{of['spec'] or of.get('origin', '')} ({of[name]:.8})" for of in (old.model, new))
        _refuse(folder, "model" if name == "fingerprint" else name, before, after)
    exact = old.model.get("exact_pixels", True)  # audits older than this setting have exact pixels
    if exact != new["exact_pixels"]:
        raise AuditError(
            f"{folder.url} was made {'with' if exact else 'without'} --exact-pixels: "
            f"{'add' if exact else 'leave out'} that option, or use another --out"
        )
    precision = old.model.get("precision", "float32")
    if precision != new["precision"]:
        raise AuditError(f"{folder.url} was encoded in {precision}: pass --precision {precision}, or use another --out")


def _refuse(folder: Folder, what: str, old: object, new: object) -> None:
    if plain_json(old) != plain_json(new):
        raise AuditError(f"{folder.url} was made with {what} {old}, not {new}: use another --out, or remove it")


def plain_json(value: Any) -> Any:
    """A value as it comes back from JSON: tuples are lists."""
    if isinstance(value, dict):
        return {key: plain_json(item) for key, item in value.items()}
    return [plain_json(item) for item in value] if isinstance(value, list | tuple) else value


def sweep_corpus(
    folder: Folder, corpus: Corpus, engine: Engine, config: AuditConfig, manifest: Manifest
) -> list[ShardReport]:
    """Sweep every shard that has no finished file yet; returns a report for each shard of the corpus."""
    remove_strangers(folder, corpus)
    reports: list[ShardReport] = []
    rows = 0
    gauge = ErrorGauge(config.max_error_rate)
    with Progress("sweep", None, quiet=config.quiet) as progress:

        def watch(rows: int, errors: int) -> None:
            gauge.add(rows, errors)
            progress.advance(rows, errors=gauge.errors)

        try:
            for report in engine.sweep(corpus.shards, watch):
                reports.append(report)
                rows += report.rows
                progress.total = round(rows / len(reports) * len(corpus.shards))  # guessed from what is done
                progress.advance(0, shards=f"{len(reports)}/{len(corpus.shards)}")
        except TooManyErrorsError:
            manifest.state = "failed"
            manifest.save(folder)
            raise
    return sorted(reports, key=lambda report: report.shard)


def distinct(
    folder: Folder, reports: Sequence[ShardReport], engine: Engine, first: Sequence[str] = ()
) -> list[ShardReport]:
    """The reports after every uid that stands in two shards was left to one; those of `first` keep theirs."""
    named = [report.shard for report in reports if report.own_uids]
    changed = separate_shards(folder, sorted(named, key=lambda shard: (shard not in first, shard)), engine.each)
    return [changed.get(report.shard, report) for report in reports]


class TooManyErrorsError(AuditError):
    """The run goes wrong: most likely a wrong corpus or a broken decoder, not bad data."""


@dataclass
class ErrorGauge:
    """Stops a run in which too large a share of the rows fails."""

    limit: float
    rows: int = 0
    errors: int = 0

    def add(self, rows: int, errors: int) -> None:
        self.rows += rows
        self.errors += errors
        if self.rows >= ENOUGH and self.errors > self.limit * self.rows:
            raise TooManyErrorsError(
                f"{self.errors:,} of the first {self.rows:,} rows failed, more than --max-error-rate {self.limit:g}: "
                "look at what is wrong, or raise the limit and run the same command to go on"
            )


def remove_strangers(folder: Folder, corpus: Corpus) -> None:
    """Drop files of shards that the corpus no longer has: their rows would count as its own."""
    names = {shard.name for shard in corpus.shards}
    for part in ("embeddings", "samples", "duplicates"):
        for name in folder.names(part, ".parquet"):
            if name not in names:
                folder.remove(f"{part}/{name}.parquet")
                remove_shard(folder, name)


def account(corpus: Corpus, reports: Sequence[ShardReport], manifest: Manifest) -> None:
    """Every shard of the corpus has exactly one report; their sums go into the manifest."""
    expected, reported = {shard.name for shard in corpus.shards}, Counter(report.shard for report in reports)
    if set(reported) != expected or max(reported.values()) > 1:
        missing = sorted(expected - set(reported))[:3]
        raise AuditError(f"{len(expected)} shards but {len(reports)} reports (missing: {', '.join(missing) or 'none'})")
    status: Counter[str] = Counter()
    for report in reports:
        status.update(report.status)
    manifest.counts = {"keys": sum(r.keys for r in reports), "rows": status.total(), "status": dict(status)}
    manifest.shards = {r.shard: r.rows for r in reports if r.failure is None}
    manifest.failed_shards = [{"shard": r.shard, "message": r.failure} for r in reports if r.failure is not None]
    manifest.shard_problems = [{"shard": r.shard, "message": m} for r in reports for m in r.problems]
