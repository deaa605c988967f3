"""Scoring an audit again from its stored embeddings, with another PAU head or other settings; no medium is touched."""

import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from auditor.audit_folder.audit_files import swept_shards
from auditor.audit_folder.embeddings import file_name
from auditor.audit_folder.folder import Folder
from auditor.audit_folder.lock import exclusive
from auditor.audit_folder.manifest import Manifest
from auditor.errors import AuditError, resumable
from auditor.run.engine import LocalEngine
from auditor.run.scoring import finish, keep_head, look_for_faults, score_corpus
from auditor.score.corpus_statistics import ScoreConfig
from auditor.sweep.sweep import SweepConfig
from model.checkpoint import CONFIG, HEAD, load_head, read_config
from model.prototypes import PrototypeHead


def rescore(out: str, model: str | None, config: ScoreConfig, *, refit: bool = False, quiet: bool = False) -> Manifest:
    """Score every shard of an audit again. Without `model`, the head it was given, or newly fitted prototypes."""
    folder = Folder(out)
    again = "some shards have their old scores: the same command again scores the rest"
    with exclusive(folder), resumable(lambda: again):
        manifest = Manifest.load(folder)
        if manifest.fitted_on is not None and not refit:
            raise AuditError(f"{out} was extended: --refit fits everything again, on the old and the new shards")
        head = given_head(folder, manifest, model)
        shards = swept_shards(folder)
        if not shards:
            raise AuditError(f"{out} has no embeddings yet: finish `auditor audit` first")
        if len(shards) + len(manifest.failed_shards) < manifest.corpus["shards"]:
            raise AuditError(f"{out} is not swept to the end yet: run the `auditor audit` command again first")
        refuse_damaged(folder, shards)
        state_intent(folder, manifest, model, config)
        manifest.failed_shards = [failed for failed in manifest.failed_shards if failed["shard"] not in shards]
        engine = LocalEngine(folder, None, SweepConfig())
        context = score_corpus(folder, shards, engine, head, manifest, config, quiet)
        keep_head(folder, context.head, manifest)
        finish(manifest, folder)
        look_for_faults(folder, engine)
    return manifest


def refuse_damaged(folder: Folder, shards: Sequence[str]) -> None:
    """Scores of damaged embeddings would look like any others."""
    for shard in shards if folder.local else ():
        if folder.is_sound(file_name(shard)) is False:
            raise AuditError(f"{folder.path(file_name(shard))} is damaged: run the `auditor audit` command again")


def settings_of(out: str) -> ScoreConfig:
    """How an audit was scored last; settings that have come since are as usual."""
    return ScoreConfig.of(Manifest.load(Folder(out)).settings.get("score") or {})


def state_intent(folder: Folder, manifest: Manifest, model: str | None, config: ScoreConfig) -> None:
    """Before the first file is replaced: a kill leaves scores of two kinds, and every reader must know."""
    given = os.path.abspath(model) if model else None
    manifest.state, manifest.scoring = "scoring", {"model": given, "settings": asdict(config)}
    manifest.settings["score"] = asdict(config)
    manifest.save(folder)


def given_head(folder: Folder, manifest: Manifest, model: str | None) -> PrototypeHead | None:
    """The head to score with: of a checkpoint made for these very embeddings, or the one the audit was given."""
    if model is not None:
        place = Path(model)
        if not manifest.model["spec"]:  # stored embeddings: which model made them only their owner knows
            return fitting_head(place, manifest)
        expected = read_config(place)["backbone"]["fingerprint"]
        if expected != manifest.model["fingerprint"]:
            raise AuditError(
                f"{model} is a head for another backbone ({expected:.8}) than the one that made these embeddings "
                f"({manifest.model['fingerprint']:.8}, {manifest.model['spec']}); audit the corpus again with it"
            )
        return load_head(place)
    if manifest.model.get("head") != "given":
        return None
    head = stored_head(folder)
    if head.fingerprint != manifest.model.get("head_fingerprint"):
        again = (manifest.scoring or {}).get("model") or "CHECKPOINT"
        raise AuditError(f"the head of {folder.url} was being replaced: finish it with --model {again}")
    return head


def fitting_head(place: Path, manifest: Manifest) -> PrototypeHead:
    head = load_head(place)
    if head.config.dim != manifest.model["dim"]:
        raise AuditError(
            f"{place} is a head for vectors of {head.config.dim} numbers, these have {manifest.model['dim']}"
        )
    return head


def stored_head(folder: Folder) -> PrototypeHead:
    """The head in the audit's own folder."""
    with tempfile.TemporaryDirectory() as place:
        for name in (CONFIG, HEAD):
            (Path(place) / name).write_bytes(folder.read_bytes(f"head/{name}"))
        return load_head(place)
