"""Extends a finished audit to a corpus that has grown: new shards are swept, and scored against the old ones.

The files of old shards do not change. The reference, the prototypes and the mismatch model stay those of the last full
scoring. The drift of the new shards from the old ones is measured and shown. `auditor score --refit` fits everything
again.
"""

from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from auditor.audit_folder.folder import Folder
from auditor.audit_folder.lock import hold_folder_lock
from auditor.audit_folder.manifest import MANIFEST_NAME, Manifest
from auditor.corpus.open_corpus import Corpus, open_corpus
from auditor.errors import AuditError, explain_interrupt
from auditor.run.audit_config import AuditConfig
from auditor.run.run_audit import (
    MakeEngine,
    account_for_shards,
    check_output_folder,
    describe_audit_model,
    describe_progress,
    load_audit_model,
    make_local_engine,
    refuse_other_model,
    separate_uids,
    sweep_corpus,
)
from auditor.run.scoring import finish_manifest, load_context, score_shards
from auditor.score.duplicate_search import search_duplicates
from auditor.score.pair_sample import count_encoded
from auditor.score.score import samples_file
from auditor.score.score_config import ScoreConfig
from auditor.score.statistics.growth import CorpusDrift, compare_means, compare_topics
from auditor.sweep.corpus_model import fingerprint_sweep
from auditor.sweep.embeddings_writer import find_finished_report

COMPARED = {
    "p_mismatch": "mismatched",
    "ambiguity_text": "ambiguity of a caption",
    "ambiguity_visual": "ambiguity of a medium",
}
OLD_SHARDS = 64  # number of old shards that new rows are compared with


def extend_audit(
    config: AuditConfig,
    make_engine: MakeEngine = make_local_engine,
    device: str | None = None,
    corpus: Corpus | None = None,
) -> Manifest:
    """Sweep and score the shards that a finished audit does not have yet; the arguments are those of `run_audit`."""
    folder = Folder(config.out)
    if not folder.exists(MANIFEST_NAME):
        raise AuditError(f"{config.out} is not an audit yet: run the command without --extend first")
    check_output_folder(folder, config.corpus)
    corpus = corpus or open_corpus(config.corpus, config.options)
    model, _ = load_audit_model(config, corpus, device or config.device)
    settings = fingerprint_sweep(model, config.sweep)
    with hold_folder_lock(folder), explain_interrupt(lambda: describe_progress(folder, len(corpus.shards))):
        manifest = Manifest.load(folder)
        if manifest.sample:
            raise AuditError(f"{config.out} is a sample: finish it without --extend and --sample first")
        refuse_other_model(folder, manifest, describe_audit_model(model, config))
        old = list_fitted_shards(folder, manifest)
        # A finished extension includes its shards; those of an interrupted extension may have changed since.
        audited = sorted({*old, *manifest.shards}) if manifest.state == "complete" else old
        refuse_changed_shards(folder, corpus, audited, settings)
        manifest.fitted_on, manifest.state = old, "sweeping"  # readers then ignore the files of new shards
        manifest.corpus |= {"spec": corpus.spec, "root": corpus.root, "shards": len(corpus.shards)}
        manifest.save(folder)
        engine = make_engine(folder, model, config)
        reports = separate_uids(folder, sweep_corpus(folder, corpus, engine, config, manifest), engine, first=old)
        account_for_shards(corpus, reports, manifest)
        manifest.state = "scoring"
        manifest.save(folder)
        context = load_context(folder, manifest, old, engine)
        new = sorted(set(manifest.shards) - set(old))
        counts = count_encoded(folder, [*old, *new], engine)
        score = ScoreConfig.from_manifest(manifest.settings)
        manifest.duplicates = search_duplicates(folder, counts, score, only=new, engine=engine)
        score_shards(context, new, engine, manifest, config.quiet)
        manifest.drift = [asdict(drift) for drift in measure_drift(folder, old, new)]
        finish_manifest(manifest, folder)
    return manifest


def list_fitted_shards(folder: Folder, manifest: Manifest) -> list[str]:
    """List the shards from which the corpus-wide numbers of an audit were computed."""
    if manifest.fitted_on is not None:
        return manifest.fitted_on
    if manifest.state != "complete":
        raise AuditError(f"{folder.url} is not complete ({manifest.state}): finish it without --extend first")
    return [name for name in folder.names("samples", ".parquet") if not manifest.shards or name in manifest.shards]


def refuse_changed_shards(folder: Folder, corpus: Corpus, old: Sequence[str], settings: str) -> None:
    present = {shard.name: shard for shard in corpus.shards}
    gone = [name for name in old if name not in present]
    shards = [present[name] for name in old if name in present]
    changed = [shard.name for shard in shards if find_finished_report(folder, shard, settings) is None]
    if gone or changed:
        examples = ", ".join([f"{name} is gone" for name in gone[:3]] + [f"{name} has changed" for name in changed[:3]])
        raise AuditError(
            f"{len(gone)} shards are gone and {len(changed)} have changed ({examples}), so there is nothing to compare "
            "new ones with: run the command without --extend"
        )


def measure_drift(folder: Folder, old: Sequence[str], new: Sequence[str]) -> list[CorpusDrift]:
    """Compare new rows with old ones by shares, means and topics; empty if there are no new rows."""
    sample = np.random.default_rng(0).choice(len(old), min(OLD_SHARDS, len(old)), replace=False)
    sides = [_read_compared_rows(folder, shards) for shards in ([old[i] for i in np.sort(sample)], new) if shards]
    if len(sides) < 2 or not all(rows.num_rows for rows in sides):
        return []
    drifts = []
    for column, label in COMPARED.items():
        values = [rows[column].to_numpy().astype(np.float32) for rows in sides]
        if all(np.isfinite(side).any() for side in values):
            drifts.append(compare_means(label, *values))
    topics = [rows["topic"].to_numpy().astype(np.int64) for rows in sides]
    count = max(int(side.max()) for side in topics) + 1
    old_topics, new_topics = (np.bincount(side, minlength=count).astype(np.int64) for side in topics)
    return [*drifts, compare_topics(old_topics, new_topics)]


def _read_compared_rows(folder: Folder, shards: Sequence[str]) -> pa.Table:
    columns = [*COMPARED, "topic", "status"]
    table = pa.concat_tables(folder.read_table(samples_file(shard), columns) for shard in shards)
    return table.filter(pc.equal(table["status"], "ok"))
