"""A finished audit of a corpus that has grown: new shards are swept and scored against what the old ones gave.

The files of old shards stay as they are. The reference, the prototypes and the mismatch model are those of the shards
that were there at the last full scoring; how far the new ones are from them is measured and said. `auditor score
--refit` fits everything again.
"""

from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from auditor.audit_folder.folder import Folder
from auditor.audit_folder.lock import exclusive
from auditor.audit_folder.manifest import NAME, Manifest
from auditor.corpus.open_corpus import Corpus, open_corpus
from auditor.errors import AuditError, resumable
from auditor.run.output_folder import check_place, how_to_resume
from auditor.run.rescore import stored_head
from auditor.run.run_audit import (
    AuditConfig,
    MakeEngine,
    account,
    distinct,
    find_model,
    local_engine,
    model_facts,
    refuse_other_model,
    sweep_corpus,
)
from auditor.run.scoring import finish, score_with
from auditor.score.corpus_statistics import ScoreConfig, prepare
from auditor.score.duplicate_search import find_duplicates
from auditor.score.pair_sample import count_pairs
from auditor.score.score import samples_name
from auditor.score.statistics.growth import Drift, mean_drift, topic_drift
from auditor.sweep.sweep import earlier, settings
from auditor.sweep.vector_sweep import StoredModel

COMPARED = {"p_mismatch": "mismatched", "matches_text": "matches of a caption", "matches_visual": "matches of a medium"}
OLD_SHARDS = 64  # at most, that new rows are compared with


def extend_audit(config: AuditConfig, make_engine: MakeEngine = local_engine, device: str | None = None) -> Manifest:
    """Sweep and score the shards that a finished audit does not have yet."""
    folder = Folder(config.out)
    if not folder.exists(NAME):
        raise AuditError(f"{config.out} is not an audit yet: run the command without --extend first")
    check_place(folder, config.corpus)
    corpus = open_corpus(config.corpus, config.options)
    backbone, _ = find_model(config, corpus, device or config.device)
    swept_as = backbone.fingerprint if isinstance(backbone, StoredModel) else settings(backbone, config.sweep)
    with exclusive(folder), resumable(lambda: how_to_resume(folder, len(corpus.shards))):
        manifest = Manifest.load(folder)
        refuse_other_model(folder, manifest, model_facts(backbone, config))
        old = fitted_shards(folder, manifest)
        # of a finished extension its shards too; those of one that was stopped may have changed since
        unchanged(folder, corpus, sorted({*old, *manifest.shards}) if manifest.state == "complete" else old, swept_as)
        manifest.fitted_on, manifest.state = old, "sweeping"  # until all shards are listed, files of new ones are ours
        manifest.corpus |= {"spec": corpus.spec, "root": corpus.root, "shards": len(corpus.shards)}
        manifest.save(folder)
        engine = make_engine(folder, backbone, config)
        reports = distinct(folder, sweep_corpus(folder, corpus, engine, config, manifest), engine, first=old)
        account(corpus, reports, manifest)
        manifest.state = "scoring"
        manifest.save(folder)
        score = ScoreConfig.of(manifest.settings.get("score") or {})
        context = prepare(
            folder,
            old,
            stored_head(folder),
            manifest.model["logit_scale"],
            score,
            model=manifest.model["fingerprint"],
            keep=False,
            each=engine.each,
        )
        swept = [report.shard for report in reports if report.failure is None]
        new = sorted(set(swept) - set(old))
        counts = count_pairs(folder, [*old, *new], engine.each)
        near, best = score.near_duplicate, score.keep_duplicate
        find_duplicates(folder, counts, near, best, only=new, seed=score.seed, each=engine.each)
        score_with(context, new, engine, manifest, config.quiet)
        manifest.drift = [asdict(one) for one in measure_drift(folder, old, new)]
        finish(manifest, folder)
    return manifest


def fitted_shards(folder: Folder, manifest: Manifest) -> list[str]:
    """The shards that the corpus-wide numbers of an audit were computed from."""
    if manifest.fitted_on is not None:
        return manifest.fitted_on
    if manifest.state != "complete":
        raise AuditError(f"{folder.url} is not complete ({manifest.state}): finish it without --extend first")
    return [name for name in folder.names("samples", ".parquet") if not manifest.shards or name in manifest.shards]


def unchanged(folder: Folder, corpus: Corpus, old: Sequence[str], wanted: str) -> None:
    """Refuse to add to an audit of shards that are no longer what they were."""
    now = {shard.name: shard for shard in corpus.shards}
    gone = [name for name in old if name not in now]
    changed = [name for name in old if name in now and earlier(folder, now[name], wanted) is None]
    if gone or changed:
        named = ", ".join([*(f"{name} is gone" for name in gone[:3]), *(f"{name} has changed" for name in changed[:3])])
        raise AuditError(
            f"{len(gone)} shards are gone and {len(changed)} have changed ({named}), so there is nothing to compare "
            "new ones with: run the command without --extend"
        )


def measure_drift(folder: Folder, old: Sequence[str], new: Sequence[str]) -> list[Drift]:
    """New rows against old ones: shares and means, and topics; empty where there is nothing new."""
    some = np.random.default_rng(0).choice(len(old), min(OLD_SHARDS, len(old)), replace=False)
    before, after = _rows(folder, [old[i] for i in np.sort(some)]), _rows(folder, new)
    if not before.num_rows or not after.num_rows:
        return []
    found = []
    for column, words in COMPARED.items():
        values = [part[column].to_numpy(zero_copy_only=False).astype(np.float32) for part in (before, after)]
        if all(np.isfinite(side).any() for side in values):
            found.append(mean_drift(words, *values))
    topics = [part["topic"].to_numpy(zero_copy_only=False).astype(np.int64) for part in (before, after)]
    count = int(max(side.max() for side in topics)) + 1
    spread = [np.bincount(side, minlength=count).astype(np.int64) for side in topics]
    return [*found, topic_drift(spread[0], spread[1])]


def _rows(folder: Folder, shards: Sequence[str]) -> pa.Table:
    columns = [*COMPARED, "topic", "status"]
    tables = [folder.read_table(samples_name(shard), columns) for shard in shards]
    if not tables:
        return pa.table({name: pa.array([], pa.float32()) for name in columns})
    table = pa.concat_tables(tables)
    return table.filter(pc.equal(table["status"], "ok"))
