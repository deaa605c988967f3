"""The cheap half of an audit: score every shard, look for faults, write the manifest that says it is complete."""

import contextlib
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from auditor.audit_folder.fault_records import FILE as FAULTS
from auditor.audit_folder.fault_records import write_faults
from auditor.audit_folder.folder import Folder
from auditor.audit_folder.manifest import Manifest, now, versions
from auditor.console import Progress
from auditor.errors import AuditError
from auditor.query.database import AuditDatabase
from auditor.query.sandbox import Limits
from auditor.run.engine import Engine
from auditor.score.corpus_statistics import Context, ScoreConfig, prepare
from auditor.score.pair_sample import NothingEncodedError
from auditor.score.score import samples_name
from auditor.score.shard_priors import find_priors
from auditor.score.vocabulary import Encode
from auditor.vectors import Floats
from model.backbone import Backbone
from model.checkpoint import save_checkpoint
from model.prototypes import PrototypeHead


def score_corpus(
    folder: Folder,
    shards: Sequence[str],
    engine: Engine,
    head: PrototypeHead | None,
    manifest: Manifest,
    config: ScoreConfig,
    quiet: bool,
    encode: Encode | None = None,
) -> Context:
    """Score all shards; the manifest gets the corpus-wide numbers. `encode` is the text tower, where it is at hand."""
    try:
        context = prepare(
            folder,
            shards,
            head,
            manifest.model["logit_scale"],
            config,
            model=manifest.model["fingerprint"],
            encode=encode,
            each=engine.each,
        )
    except NothingEncodedError as error:
        manifest.state = "failed"
        manifest.save(folder)
        raise AuditError(f"{error} ({describe_status(manifest)})") from error
    manifest.statistics, manifest.thresholds = context.statistics, context.thresholds
    manifest.fitted_on, manifest.drift = None, []
    manifest.model["head"] = "given" if head else "fitted"
    manifest.model["head_fingerprint"] = context.head.fingerprint
    manifest.settings["words"] = context.words
    score_with(context, shards, engine, manifest, quiet)
    files = {shard: samples_name(shard) for shard in shards}
    manifest.shard_priors = find_priors(folder, files, engine.each)
    if manifest.shard_priors:
        context = replace(context, priors=manifest.shard_priors)
        score_with(context, sorted(manifest.shard_priors), engine, manifest, quiet=True)
    return context


def score_with(context: Context, shards: Sequence[str], engine: Engine, manifest: Manifest, quiet: bool) -> None:
    """Score shards against corpus-wide numbers that are there already."""
    with Progress("score", manifest.counts["rows"], quiet=quiet) as progress:
        for shard, count, failure in engine.score(shards, context):
            progress.advance(count)
            if failure:
                manifest.failed_shards.append({"shard": shard, "message": f"not scored: {failure}"})


def encode_captions(backbone: Backbone, captions: Sequence[str], batch: int = 256) -> Floats:
    """The vectors of captions by the text tower."""
    parts = [
        backbone.encode_texts(captions[at : at + batch]).float().cpu().numpy() for at in range(0, len(captions), batch)
    ]
    return np.concatenate(parts) if parts else np.zeros((0, backbone.dim), np.float32)


def describe_status(manifest: Manifest) -> str:
    if manifest.failed_shards and not manifest.counts["rows"]:
        first = manifest.failed_shards[0]
        return f"{len(manifest.failed_shards)} shards failed, such as {first['shard']}: {first['message']}"
    return ", ".join(f"{count:,} {status}" for status, count in manifest.counts["status"].items()) or "no rows"


def keep_head(folder: Folder, head: PrototypeHead, manifest: Manifest) -> None:
    """head/: the PAU head that scored the audit, so that it can be explained and used elsewhere."""
    with tempfile.TemporaryDirectory() as place:
        saved = save_checkpoint(
            Path(place) / "head",
            head,
            backbone_spec=manifest.model["spec"],
            backbone_print=manifest.model["fingerprint"],
        )
        for file in sorted(saved.iterdir()):
            with folder.writing(f"head/{file.name}") as local:
                local.write_bytes(file.read_bytes())


def look_for_faults(folder: Folder, engine: Engine) -> None:
    """faults.parquet: the patterns of a finished audit, where there is enough of it to tell any."""
    from auditor.faults.corpus_window import FaultsError
    from auditor.faults.find_faults import find_faults

    folder.remove(FAULTS)
    with contextlib.suppress(FaultsError), AuditDatabase(folder.url, limits=Limits(seconds=None)) as database:
        write_faults(folder, find_faults(database, each=engine.each))


def finish(manifest: Manifest, folder: Folder) -> None:
    folder.sweep_temporary("", "embeddings", "samples", "head")  # of workers that died in the middle
    manifest.state, manifest.finished, manifest.versions = "complete", now(), versions()
    manifest.scoring = None
    manifest.save(folder)
