"""Finds the media and captions of an audit that are also in another corpus, such as a benchmark's test set.

The other corpus is an audit made by the same model, or a corpus, which is then swept into a temporary folder. The
audit's own media are not read again: their embeddings are compared, shard by shard.
"""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from auditor.audit_folder.audit_files import find_swept_shards
from auditor.audit_folder.confirmed_places import choose_audit_model
from auditor.audit_folder.embeddings import read_embeddings
from auditor.audit_folder.folder import Folder
from auditor.audit_folder.manifest import MANIFEST_NAME, Manifest
from auditor.audit_folder.side_files import OVERLAP_SCHEMA, overlap_name
from auditor.corpus.open_corpus import open_corpus
from auditor.corpus.shard import load_saved_options
from auditor.errors import AuditError
from auditor.run.engine import LocalEngine
from auditor.score.duplicate_search import read_first_rows
from auditor.score.pair_sample import number_digests
from auditor.score.statistics.corpus_overlap import OtherCorpus, match_vectors, normalize_words
from auditor.sweep.sweep_config import SweepConfig
from auditor.workers.process_pool import SERIAL, Engine
from model.checkpoint import load_model


def find_overlap(
    audit: str,
    other: str,
    *,
    media_cosine: float | None = None,
    caption_cosine: float | None = None,
    model: str | None = None,
    device: str = "cpu",
    engine: Engine = SERIAL,
) -> pa.Table:
    """Compare the corpora, write overlap/<other>.parquet into the audit, and return its rows."""
    folder = Folder(audit)
    manifest = Manifest.load(folder)
    with open_other_corpus(other, manifest, model, device) as other_folder:
        corpus, keys, captions = read_other_corpus(other_folder)
    media_cosine = corpus.media_cosine() if media_cosine is None else media_cosine
    caption_cosine = corpus.caption_cosine() if caption_cosine is None else caption_cosine
    cosines = media_cosine, caption_cosine
    shards = find_swept_shards(folder)
    parts = list(engine.each(partial(_compare_shard, folder, corpus, keys, captions, cosines), shards))
    table = pa.concat_tables([OVERLAP_SCHEMA.empty_table(), *parts])
    notes = {"other": other, "media_cosine": str(media_cosine), "caption_cosine": str(caption_cosine)}
    folder.write_table(overlap_name(other), table, notes)
    return table.replace_schema_metadata(notes)


@contextmanager
def open_other_corpus(other: str, manifest: Manifest, model: str | None, device: str) -> Iterator[Folder]:
    """Yield a folder with the embeddings of the other corpus, made by the model of the audit."""
    other_folder = Folder(other)
    if other_folder.exists(MANIFEST_NAME):
        if Manifest.load(other_folder).model["fingerprint"] != manifest.model["fingerprint"]:
            raise AuditError(f"{other} was made by another model; name the corpus instead, or audit it with this model")
        yield other_folder
        return
    backbone = load_model(choose_audit_model(asdict(manifest), model), device).backbone
    if backbone.fingerprint != manifest.model["fingerprint"]:
        raise AuditError(f"{backbone.spec} is not the model that made the audit; pass that one with --model")
    corpus = open_corpus(other, load_saved_options(manifest.corpus))
    config = SweepConfig(manifest.model["frames"], manifest.model["exact_pixels"])
    with tempfile.TemporaryDirectory() as scratch:
        engine = LocalEngine(Folder(scratch), backbone, config)
        failed = [r for r in engine.sweep(corpus.shards, lambda rows, errors: None) if r.failure is not None]
        if failed:
            raise AuditError(f"{other}: {failed[0].shard} could not be read: {failed[0].failure}")
        yield Folder(scratch)


def read_other_corpus(folder: Folder) -> tuple[OtherCorpus, list[str], list[str]]:
    """Read the other corpus: its vectors and hashes, the keys of its media, and its captions."""
    # A corpus that was swept only for this comparison has embeddings but no manifest.
    shards = find_swept_shards(folder) if folder.exists(MANIFEST_NAME) else folder.names("embeddings", ".parquet")
    media = [read_first_rows(folder, shard, ["key", "media_digest", "visual"]) for shard in shards]
    pairs = [read_embeddings(folder, shard) for shard in shards]
    captions = [c for shard in pairs for c in shard.facts["caption"].take(pa.array(shard.rows)).to_pylist()]
    if not captions:
        raise AuditError(f"{folder.url} has no encoded rows, so there is nothing to compare with")
    hashes = np.concatenate([number_digests(table["media_digest"].to_pylist()) for table, _ in media])
    visual = np.concatenate([visual for _, visual in media])
    text = np.concatenate([shard.text for shard in pairs])
    other = OtherCorpus(visual, hashes, text, tuple(map(normalize_words, captions)))
    return other, [key for table, _ in media for key in table["key"].to_pylist()], captions


def _compare_shard(
    folder: Folder,
    other: OtherCorpus,
    keys: Sequence[str],
    captions: Sequence[str],
    cosines: tuple[float, float],
    shard: str,
) -> pa.Table:
    media, visual = read_first_rows(folder, shard, ["uid", "key", "shard", "media_digest", "visual"])
    hashes = number_digests(media["media_digest"].to_pylist()).tolist()
    media_matches = match_vectors(visual, other.visual, hashes, other.marks.tolist(), cosines[0])
    media_rows = _build_overlap_rows(media, media_matches, "media", other_key=keys)
    pairs = read_embeddings(folder, shard)
    facts = pairs.facts.take(pa.array(pairs.rows))
    texts = [normalize_words(caption) for caption in facts["caption"].to_pylist()]
    text_matches = match_vectors(pairs.text, other.text, texts, other.captions, cosines[1])
    return pa.concat_tables([media_rows, _build_overlap_rows(facts, text_matches, "caption", other_caption=captions)])


def _build_overlap_rows(facts: pa.Table, matches: tuple[Any, Any, Any], side: str, **names: Sequence[str]) -> pa.Table:
    position, exact, cosine = matches
    matched = np.flatnonzero(position >= 0)
    rows = facts.take(pa.array(matched))
    columns = {name: rows[name] for name in ("uid", "key", "shard", "media_digest")}
    columns |= {"what": [side] * len(matched), "how": np.where(exact[matched], "exact", "near")}
    columns |= {"cosine": cosine[matched].astype(np.float32)}
    for name in ("other_key", "other_caption"):
        values = [names[name][position[i]] for i in matched] if name in names else [None] * len(matched)
        columns[name] = pa.array(values, pa.string())
    return pa.table(columns).cast(OVERLAP_SCHEMA)
