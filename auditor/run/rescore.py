"""Scores an audit again from its stored embeddings, with another PAU head or other settings; reads no media."""

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from auditor.audit_folder.audit_files import find_swept_shards
from auditor.audit_folder.embeddings import name_embeddings_file
from auditor.audit_folder.folder import Folder
from auditor.audit_folder.lock import hold_folder_lock
from auditor.audit_folder.manifest import Manifest
from auditor.errors import AuditError, explain_interrupt
from auditor.run.engine import LocalEngine
from auditor.run.run_audit import load_matching_head
from auditor.run.scoring import finish_manifest, load_audit_head, save_audit_head, score_corpus, write_found_faults
from auditor.score.calibration_groups import check_column
from auditor.score.score_config import ScoreConfig
from auditor.sweep.sweep_config import SweepConfig
from model.checkpoint import load_prototype_head, read_checkpoint_config
from model.prototypes import PrototypeHead


def rescore(out: str, model: str | None, config: ScoreConfig, *, refit: bool = False, quiet: bool = False) -> Manifest:
    """Score every shard again. Without `model`, use the head that the user passed before, or fit new prototypes."""
    folder = Folder(out)
    hint = "some shards have their old scores: the same command again scores the rest"
    with hold_folder_lock(folder), explain_interrupt(lambda: hint):
        manifest = Manifest.load(folder)
        if manifest.fitted_on is not None and not refit:
            raise AuditError(f"{out} was extended: --refit fits everything again, on the old and the new shards")
        check_column(folder, manifest.corpus["carry"], config.calibrate_by)
        head = choose_head(folder, manifest, model)
        shards = find_swept_shards(folder)
        if not shards:
            raise AuditError(f"{out} has no embeddings yet: finish `auditor audit` first")
        if len(shards) + len(manifest.failed_shards) < manifest.corpus["shards"]:
            raise AuditError(f"{out} is not swept to the end yet: run the `auditor audit` command again first")
        refuse_damaged_embeddings(folder, shards)
        record_intent(folder, manifest, model, config)
        manifest.failed_shards = [failed for failed in manifest.failed_shards if failed["shard"] not in shards]
        engine = LocalEngine(folder, None, SweepConfig())
        context = score_corpus(folder, shards, engine, head, manifest, config, quiet)
        save_audit_head(folder, context.head, manifest)
        finish_manifest(manifest, folder)
        write_found_faults(folder, engine)
    return manifest


def refuse_damaged_embeddings(folder: Folder, shards: Sequence[str]) -> None:
    """Refuse damaged embeddings, whose scores would look like any others."""
    for file in map(name_embeddings_file, shards if folder.local else ()):
        if folder.is_sound(file) is False:
            raise AuditError(f"{folder.path(file)} is damaged: run the `auditor audit` command again")


def read_score_settings(out: str) -> ScoreConfig:
    return ScoreConfig.from_manifest(Manifest.load(Folder(out)).settings)


def record_intent(folder: Folder, manifest: Manifest, model: str | None, config: ScoreConfig) -> None:
    """Record the new settings before the first file is replaced: after a kill, the audit has scores of two kinds."""
    head = os.path.abspath(model) if model else None
    manifest.state, manifest.scoring = "scoring", {"model": head, "settings": asdict(config)}
    manifest.settings["score"] = asdict(config)
    manifest.save(folder)


def choose_head(folder: Folder, manifest: Manifest, model: str | None) -> PrototypeHead | None:
    """Return the head of a checkpoint made for these embeddings, the head that the user passed before, or None."""
    if model is not None:
        if not manifest.model["spec"]:
            return load_matching_head(model, manifest.model["dim"])
        expected = read_checkpoint_config(Path(model))["backbone"]["fingerprint"]
        if expected != manifest.model["fingerprint"]:
            raise AuditError(
                f"{model} is a head for another backbone ({expected:.8}) than the one that made these embeddings "
                f"({manifest.model['fingerprint']:.8}, {manifest.model['spec']}); audit the corpus again with it"
            )
        return load_prototype_head(model)
    if manifest.model.get("head") != "given":
        return None
    head = load_audit_head(folder)
    if head.fingerprint != manifest.model.get("head_fingerprint"):
        spec = (manifest.scoring or {}).get("model") or "CHECKPOINT"
        raise AuditError(f"the head of {folder.url} was being replaced: finish it with --model {spec}")
    return head
