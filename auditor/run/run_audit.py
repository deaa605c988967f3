"""Runs an audit from corpus to manifest: sweeps the shards that are not swept yet, scores them, accounts for every key.

`auditor audit` and jobs/audit.py both call `run_audit`; they differ only in the engine.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from auditor.audit_folder.confirmed_places import ConfirmedPlaces, confirm_places
from auditor.audit_folder.extra_columns import remove_shard_columns
from auditor.audit_folder.folder import Folder
from auditor.audit_folder.lock import REMOTE_LOCK, hold_folder_lock
from auditor.audit_folder.manifest import MANIFEST_NAME, Manifest
from auditor.console import Progress
from auditor.corpus.corpus_files import make_path_absolute
from auditor.corpus.corpus_spec import find_corpus_folder
from auditor.corpus.open_corpus import Corpus, open_corpus
from auditor.errors import AuditError, explain_interrupt
from auditor.run.audit_config import AuditConfig
from auditor.run.encoder_competence import warn_if_blind
from auditor.run.engine import AuditEngine, LocalEngine
from auditor.run.scoring import choose_text_encoder, finish_manifest, save_audit_head, score_corpus, write_found_faults
from auditor.score.calibration_groups import check_column
from auditor.sweep.corpus_model import CorpusModel
from auditor.sweep.distinct_uids import separate_shards
from auditor.sweep.sampled_shards import draw_shards
from auditor.sweep.sweep_events import ShardReport
from auditor.sweep.vector_sweep import find_stored_model, list_carried_names, publish_carried_columns
from auditor.workers.background_work import import_in_background
from model.model_names import BackboneError

if TYPE_CHECKING:
    from model.checkpoint import LoadedModel
    from model.prototypes import PrototypeHead

DEFAULT_MODEL = "ViT-B-32@laion2b_s34b_b79k"
FIXED_OPTIONS = (  # of a corpus, once its audit has begun
    *("spec", "captions", "caption_column", "caption_fields", "shard_size", "encoding", "delimiter", "header", "carry"),
)
MIN_ROWS = 200  # before the error rate can stop a run
SAMPLE_KEYS = 10_000  # of --sample

MakeEngine = Callable[[Folder, CorpusModel, AuditConfig], AuditEngine]


def make_local_engine(folder: Folder, model: CorpusModel, config: AuditConfig) -> AuditEngine:
    return LocalEngine(folder, model, config.sweep)


def run_audit(
    config: AuditConfig,
    make_engine: MakeEngine = make_local_engine,
    device: str | None = None,
    corpus: Corpus | None = None,
) -> Manifest:
    """Audit a corpus, or finish an interrupted audit; this process loads the model on `device`, if not the engine's.

    `corpus` is that of the configuration, if it is already open.
    """
    folder = Folder(config.out)
    check_output_folder(folder, config.corpus, force=config.force)
    corpus = corpus or open_corpus(config.corpus, config.options)
    sample: dict[str, float] = {}
    if config.sample:
        corpus, sample = draw_shards(corpus, config.limit or SAMPLE_KEYS, config.score.seed)
    elif config.limit:
        raise AuditError("--limit is the size of a random sample: add --sample, or leave it out to audit everything")
    model, head = load_audit_model(config, corpus, device or config.device)
    with hold_folder_lock(folder), explain_interrupt(lambda: describe_progress(folder, len(corpus.shards))):
        manifest = begin_manifest(folder, corpus, model, config, sample)
        if not model.encodes_media:  # scoring needs torch, whose import takes as long as the sweep of 30,000 vectors
            import_in_background("auditor.score.fit_audit")
        engine = make_engine(folder, model, config)
        reports = separate_uids(folder, sweep_corpus(folder, corpus, engine, config, manifest), engine)
        account_for_shards(corpus, reports, manifest)
        manifest.state = "scoring"
        manifest.save(folder)
        encode = choose_text_encoder(model)
        shards = list(manifest.shards)
        context = score_corpus(folder, shards, engine, head, manifest, config.score, config.quiet, encode)
        save_audit_head(folder, context.head, manifest)
        finish_manifest(manifest, folder)
        write_found_faults(folder, engine)
    return manifest


def check_output_folder(folder: Folder, corpus: str, *, force: bool = False) -> None:
    """Refuse a folder inside the corpus, which the next audit would read as data, and a folder with other files."""
    if corpus_folder := find_corpus_folder(corpus, folder.url):
        raise AuditError(
            f"--out {folder.url} lies in the corpus {corpus_folder}, which would then hold its own audit: "
            "choose a folder outside of it"
        )
    if force or folder.exists(MANIFEST_NAME):
        return
    if other_files := sorted(name for name in folder.entries() if not name.startswith((".", REMOTE_LOCK))):
        raise AuditError(
            f"{folder.url} is not an audit and has other files in it, such as {other_files[0]}: choose a folder of its "
            "own, or write beside them with --force"
        )


def describe_progress(folder: Folder, shards: int) -> str:
    """After Ctrl-C: say how many shards are swept, and that the same command continues."""
    swept = len(folder.names("embeddings", ".parquet"))
    return f"{swept:,} of {shards:,} shards are swept and stay so: the same command again goes on from there"


def load_audit_model(config: AuditConfig, corpus: Corpus, device: str) -> "tuple[CorpusModel, PrototypeHead | None]":
    """Load the model that encodes the corpus, and the PAU head that the user passed.

    A corpus of stored embeddings needs only the record of its model.
    """
    stored = find_stored_model(corpus, config.logit_scale)
    if stored is None:
        loaded = load_trained_model(config, device)
        return loaded.backbone, loaded.head
    return stored, load_matching_head(config.model, stored.dim) if config.model else None


def load_matching_head(checkpoint: str, dim: int) -> "PrototypeHead":
    """Load a head for stored embeddings, whose model is unknown."""
    from model.checkpoint import load_prototype_head

    head = load_prototype_head(checkpoint)
    if head.config.dim != dim:
        raise AuditError(f"{checkpoint} is a head for vectors of {head.config.dim} numbers, these have {dim}")
    return head


def load_trained_model(config: AuditConfig, device: str) -> "LoadedModel":
    """Load the requested model; refuse random weights, with which nothing can be measured."""
    from model.checkpoint import load_model

    try:
        loaded = load_model(config.model or DEFAULT_MODEL, device)
    except BackboneError as error:
        if config.model:
            raise
        raise AuditError(
            f"no --model was given and the default {DEFAULT_MODEL} cannot be fetched: pass a PAU checkpoint "
            f"folder, or an open_clip model such as local-dir:PATH ({error})"
        ) from error
    if not loaded.backbone.pretrained and not config.allow_random_weights:
        raise AuditError(
            f"{config.model} names an architecture without weights; add a pretrained tag, for example "
            f"{config.model}@laion2b_s34b_b79k"
        )
    if loaded.backbone.temporal is not None:
        loaded.backbone.temporal.check_frame_count(config.sweep.frames)  # before a cluster starts
    return loaded


def describe_audit_model(model: CorpusModel, config: AuditConfig) -> dict[str, Any]:
    """Return the model's part of the manifest; `spec` is empty for stored embeddings."""
    settings = {name: getattr(config.sweep, name) for name in ("frames", "exact_pixels", "precision")}
    return {**settings, **model.describe()}


def begin_manifest(
    folder: Folder, corpus: Corpus, model: CorpusModel, config: AuditConfig, sample: dict[str, float]
) -> Manifest:
    """Write the manifest of a new or resumed audit; refuse a folder with the audit of another corpus or model."""
    fresh = Manifest(
        corpus={"spec": corpus.spec, "root": corpus.root, "shards": len(corpus.shards), **asdict(config.options)},
        model=describe_audit_model(model, config),
        settings={"sweep": asdict(config.sweep), "score": asdict(config.score), "device": config.device},
        sample=sample,
    )
    if folder.exists(MANIFEST_NAME):
        old = Manifest.load(folder)
        for name in FIXED_OPTIONS:
            _refuse_difference(folder, f"corpus {name}", old.corpus.get(name) or None, fresh.corpus[name] or None)
        refuse_other_model(folder, old, fresh.model)
        if not sample.items() <= old.sample.items():
            raise AuditError(f"{folder.url} has another sample, or the whole corpus: use another --out")
        fresh.created, fresh.id = old.created, old.id
    check_column(folder, [*config.options.carry, *list_carried_names(corpus)], config.score.calibrate_by)
    folder.sweep_temporary("", "embeddings", "samples", "head")
    fresh.save(folder)
    roots = corpus.root, *map(make_path_absolute, config.options.media_root)
    confirm_places(fresh.id, ConfirmedPlaces(roots, config.options.follow_links, fresh.model["spec"]))
    publish_carried_columns(folder, corpus)
    return fresh


def refuse_other_model(folder: Folder, old: Manifest, new: dict[str, Any]) -> None:
    """Refuse to mix embeddings of two models, or of different pixels, frames or precision, in one audit."""
    names = [f"{m['spec'] or m.get('origin', '')} ({m['fingerprint']:.8})" for m in (old.model, new)]
    if old.model["fingerprint"] != new["fingerprint"]:
        _refuse_difference(folder, "model", *names)
    for name in ("pixels", "frames"):
        _refuse_difference(folder, name, old.model.get(name), new[name])
    exact, precision = old.model["exact_pixels"], old.model["precision"]
    if exact != new["exact_pixels"]:
        raise AuditError(
            f"{folder.url} was made {'with' if exact else 'without'} --exact-pixels: "
            f"{'add' if exact else 'leave out'} that option, or use another --out"
        )
    if precision != new["precision"]:
        raise AuditError(f"{folder.url} was encoded in {precision}: pass --precision {precision}, or use another --out")


def _refuse_difference(folder: Folder, name: str, old: object, new: object) -> None:
    if json.dumps(old, sort_keys=True) != json.dumps(new, sort_keys=True):  # in JSON, tuples equal lists
        raise AuditError(f"{folder.url} was made with {name} {old}, not {new}: use another --out, or remove it")


def sweep_corpus(
    folder: Folder, corpus: Corpus, engine: AuditEngine, config: AuditConfig, manifest: Manifest
) -> list[ShardReport]:
    """Sweep every shard that has no finished file yet; return a report for each shard of the corpus."""
    remove_obsolete_shards(folder, corpus)
    reports: list[ShardReport] = []
    total = 0  # rows of the finished shards
    tally: Counter[str] = Counter()
    with Progress("sweep", None, quiet=config.quiet) as progress:

        def watch(rows: int, errors: int) -> None:
            tally.update(rows=rows, errors=errors)
            if tally["rows"] >= MIN_ROWS and tally["errors"] > config.max_error_rate * tally["rows"]:
                manifest.state = "failed"
                manifest.save(folder)
                raise TooManyErrorsError(
                    f"{tally['errors']:,} of the first {tally['rows']:,} rows failed, more than --max-error-rate "
                    f"{config.max_error_rate:g}: look at what is wrong, or raise the limit and run the same command to "
                    "go on"
                )
            progress.advance(rows, errors=tally["errors"])

        tried = config.corpus if manifest.model["spec"] else None
        # Closed by the block: else an interrupt could be reported before the last file is in place.
        with closing(report for report in engine.sweep(corpus.shards, watch)) as swept:
            for report in warn_if_blind(swept, folder, tried):
                reports.append(report)
                total += report.rows
                progress.total = round(total / len(reports) * len(corpus.shards))  # estimated from the finished shards
                progress.advance(0, shards=f"{len(reports)}/{len(corpus.shards)}")
    return sorted(reports, key=lambda report: report.shard)


def separate_uids(
    folder: Folder, reports: Sequence[ShardReport], engine: AuditEngine, first: Sequence[str] = ()
) -> list[ShardReport]:
    """Make uids that occur in several shards distinct and return the new reports; the shards of `first` keep theirs."""
    shards = [report.shard for report in reports if report.own_uids]
    changed = separate_shards(folder, sorted(shards, key=lambda shard: (shard not in first, shard)), engine)
    return [changed.get(report.shard, report) for report in reports]


class TooManyErrorsError(AuditError):
    """Too many rows fail: most likely the corpus is wrong or a decoder is broken."""


def remove_obsolete_shards(folder: Folder, corpus: Corpus) -> None:
    """Remove the files of shards that the corpus no longer has; their rows would be counted."""
    names = {shard.name for shard in corpus.shards}
    for part in ("embeddings", "samples", "duplicates"):
        for name in folder.names(part, ".parquet"):
            if name not in names:
                folder.remove(f"{part}/{name}.parquet")
                remove_shard_columns(folder, name)


def account_for_shards(corpus: Corpus, reports: Sequence[ShardReport], manifest: Manifest) -> None:
    """Check that every shard of the corpus has exactly one report, and write their totals into the manifest."""
    expected, reported = {shard.name for shard in corpus.shards}, {report.shard for report in reports}
    if reported != expected or len(reports) > len(reported):
        missing = sorted(expected - reported)[:3]
        raise AuditError(f"{len(expected)} shards but {len(reports)} reports (missing: {', '.join(missing) or 'none'})")
    status: Counter[str] = Counter()
    for report in reports:
        status.update(report.status)
    manifest.counts = {"keys": sum(r.keys for r in reports), "rows": status.total(), "status": dict(status)}
    manifest.shards = {r.shard: r.rows for r in reports if r.failure is None}
    if manifest.sample:
        manifest.sample["seconds"] = sum(r.seconds for r in reports)
    manifest.failed_shards = [{"shard": r.shard, "message": r.failure} for r in reports if r.failure is not None]
    manifest.shard_problems = [{"shard": r.shard, "message": m} for r in reports for m in r.problems]
