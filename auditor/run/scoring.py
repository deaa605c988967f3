"""The cheap pass of an audit: scores every shard, finds faults, and writes the complete manifest."""

import contextlib
import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from auditor.audit_folder.fault_records import FILE as FAULTS
from auditor.audit_folder.fault_records import write_faults
from auditor.audit_folder.folder import Folder
from auditor.audit_folder.manifest import Manifest, format_current_time, read_versions
from auditor.console import Progress
from auditor.errors import AuditError
from auditor.keep.thresholds import NOTHING, ThresholdError, compute_cuts, count_pairs
from auditor.query.database import AuditDatabase
from auditor.query.sandbox import Limits, quote_literal
from auditor.report.sampled_shares import estimate_intervals
from auditor.run.engine import AuditEngine
from auditor.schema import FLAG_THRESHOLD, FLAGS
from auditor.score.corpus_statistics import ScoreContext, prepare_context
from auditor.score.pair_sample import NothingEncodedError
from auditor.score.prototype_uncertainty import PrototypeBanks
from auditor.score.score import samples_file
from auditor.score.score_config import ScoreConfig
from auditor.score.shard_priors import find_priors
from auditor.score.vocabulary import EncodeText
from auditor.sweep.corpus_model import CorpusModel
from auditor.vectors import Floats
from auditor.workers.blas_threads import use_one_blas_thread
from auditor.workers.process_pool import SERIAL, Engine

if TYPE_CHECKING:
    from model.backbone import Backbone
    from model.prototypes import PrototypeHead


@use_one_blas_thread()
def score_corpus(
    folder: Folder,
    shards: Sequence[str],
    engine: AuditEngine,
    head: "PrototypeHead | None",
    manifest: Manifest,
    config: ScoreConfig,
    quiet: bool,
    encode: EncodeText | None = None,
) -> ScoreContext:
    """Score all shards and write the corpus-wide numbers into the manifest. `encode` is the text tower, if loaded."""
    try:
        context = prepare_context(folder, shards, head, manifest.model, config, encode=encode, engine=engine)
    except NothingEncodedError as error:
        manifest.state = "failed"
        manifest.save(folder)
        raise AuditError(f"{error} ({describe_row_status(manifest)})") from error
    manifest.statistics, manifest.thresholds = context.statistics, dict.fromkeys(FLAGS, FLAG_THRESHOLD)
    manifest.duplicates = context.duplicates
    manifest.fitted_on, manifest.drift = None, []
    manifest.model["head"] = "given" if head else "fitted"
    manifest.model["head_fingerprint"] = context.head.fingerprint
    manifest.model["head_settings"] = dict(context.head.settings)
    manifest.settings["words"] = context.words
    score_shards(context, shards, engine, manifest, quiet)
    manifest.shard_priors = find_priors(
        folder, {shard: samples_file(shard) for shard in shards}, context.excess, engine
    )
    if manifest.shard_priors:
        context = replace(context, priors=manifest.shard_priors)
        score_shards(context, sorted(manifest.shard_priors), engine, manifest, quiet=True)
    return context


@use_one_blas_thread()
def load_context(folder: Folder, manifest: Manifest, fitted: Sequence[str], engine: Engine = SERIAL) -> ScoreContext:
    """Return the corpus-wide numbers of the last full scoring, with the shards that it was fitted on."""
    head, config = load_audit_head(folder), ScoreConfig.from_manifest(manifest.settings)
    return prepare_context(folder, fitted, head, manifest.model, config, keep=False, engine=engine)


@use_one_blas_thread()
def score_shards(
    context: ScoreContext, shards: Sequence[str], engine: AuditEngine, manifest: Manifest, quiet: bool
) -> None:
    with Progress("score", manifest.counts["rows"], quiet=quiet) as progress:
        for shard, count, failure in engine.score(shards, context):
            progress.advance(count)
            if failure:
                manifest.failed_shards.append({"shard": shard, "message": f"not scored: {failure}"})


def choose_text_encoder(model: CorpusModel) -> EncodeText | None:
    """The text tower that encodes words and examples; None for stored embeddings."""
    if not model.encodes_media:
        return None
    from model.backbone import Backbone

    assert isinstance(model, Backbone)
    return partial(encode_captions, model)


def encode_captions(backbone: "Backbone", captions: Sequence[str], batch: int = 256) -> Floats:
    batches = [captions[start : start + batch] for start in range(0, len(captions), batch)]
    vectors = [backbone.encode_texts(texts).float().cpu().numpy() for texts in batches]
    return np.concatenate([np.zeros((0, backbone.dim), np.float32), *vectors])


def describe_row_status(manifest: Manifest) -> str:
    if manifest.failed_shards and not manifest.counts["rows"]:
        first = manifest.failed_shards[0]
        return f"{len(manifest.failed_shards)} shards failed, such as {first['shard']}: {first['message']}"
    return ", ".join(f"{count:,} {status}" for status, count in manifest.counts["status"].items()) or "no rows"


def save_audit_head(folder: Folder, banks: PrototypeBanks, manifest: Manifest) -> None:
    """Write head/: the PAU head that scored the audit, to explain scores and to use elsewhere."""
    from auditor.score.fit_audit import rebuild_head
    from model.checkpoint import save_checkpoint

    spec, fingerprint = manifest.model["spec"], manifest.model["fingerprint"]
    with tempfile.TemporaryDirectory() as scratch:
        head = rebuild_head(banks)
        saved = save_checkpoint(Path(scratch) / "head", head, backbone_spec=spec, backbone_print=fingerprint)
        for file in sorted(saved.iterdir()):
            with folder.writing(f"head/{file.name}") as local:
                local.write_bytes(file.read_bytes())


def load_audit_head(folder: Folder) -> "PrototypeHead":
    from model.checkpoint import CONFIG, HEAD, load_prototype_head

    with tempfile.TemporaryDirectory() as scratch:
        for name in (CONFIG, HEAD):
            (Path(scratch) / name).write_bytes(folder.read_bytes(f"head/{name}"))
        return load_prototype_head(scratch)


@use_one_blas_thread()
def write_found_faults(folder: Folder, engine: AuditEngine) -> None:
    """Write faults.parquet: the patterns in a finished audit, if it has enough rows."""
    from auditor.faults.corpus_window import FaultsError
    from auditor.faults.find_faults import find_faults

    folder.remove(FAULTS)
    with contextlib.suppress(FaultsError), AuditDatabase(folder.url, limits=Limits(seconds=None)) as database:
        write_faults(folder, find_faults(database, engine=engine))


def settle_shares(manifest: Manifest, folder: Folder) -> None:
    """Make the mean p_mismatch of each kind its estimated share, with the interval that `thresholds` shows.

    The same holds for each calibration group. The model's own share is that of the reference sample; everything that
    shows a share shows this one.
    """
    estimated = [kind for kind, statistics in manifest.statistics.items() if statistics.get("pi0") is not None]
    if not estimated:
        return
    with AuditDatabase(folder.url, limits=Limits(seconds=None)) as database:
        for kind in estimated:
            parts = {f"kind = '{kind}'": manifest.statistics[kind]}
            for name, group in manifest.statistics[kind].get("groups", {}).items():
                member = f"= {quote_literal(name)}" if name else "IS NULL"
                parts[f"kind = '{kind}' AND calibration_group {member}"] = group
            for condition, statistics in parts.items():
                with contextlib.suppress(ThresholdError):  # none of its rows has p_mismatch
                    settle_share(database, manifest, statistics, condition)
    manifest.save(folder)


def settle_share(database: AuditDatabase, manifest: Manifest, statistics: dict[str, Any], condition: str) -> None:
    counts = count_pairs(database, condition)
    [whole] = compute_cuts(counts, [NOTHING])
    ends = {"pi0": whole.left, "pi0_low": whole.left_low, "pi0_high": whole.left_high}
    if manifest.sample:
        rows = f"(p_mismatch) FILTER ({condition})"
        [interval] = estimate_intervals(database, [(f"sum{rows}", f"count{rows}")])
        ends |= add_sampling_error(ends, interval)
    statistics |= {"pi0_of_reference": statistics["pi0"], **ends}
    statistics.setdefault("pairs", int(counts.pairs.sum()))  # of a group


def add_sampling_error(ends: Mapping[str, Any], interval: tuple[float, float]) -> dict[str, float]:
    """Add the error of drawing a sample to that of the estimate."""
    share, low, high = ends.values()
    below, above = math.hypot(share - low, share - interval[0]), math.hypot(high - share, interval[1] - share)
    return {"pi0_low": max(0.0, share - below), "pi0_high": min(1.0, share + above)}


@use_one_blas_thread()
def finish_manifest(manifest: Manifest, folder: Folder) -> None:
    folder.sweep_temporary("", "embeddings", "samples", "head")  # left by workers that died
    manifest.state, manifest.scoring = "complete", None
    if manifest.sample:
        manifest.sample["bytes"] = folder.bytes_in("")
    manifest.finished, manifest.versions = format_current_time(), read_versions()
    manifest.save(folder)
    settle_shares(manifest, folder)
