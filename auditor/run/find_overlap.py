"""Finds the media and captions of an audit that are also in another corpus, such as a benchmark's test set.

The other corpus is an audit made by the same model, or a corpus, which is then swept into a temporary folder. The
audit's own media are not read again: their embeddings are compared, shard by shard.
"""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
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
from auditor.corpus.sample import Sample
from auditor.corpus.shard import DEFAULT_OPTIONS, CorpusError, CorpusOptions, OpenShard, Shard, load_saved_options
from auditor.errors import AuditError
from auditor.run.engine import LocalEngine
from auditor.score.duplicate_search import read_first_rows
from auditor.score.pair_sample import number_digests
from auditor.score.statistics.corpus_overlap import OtherCorpus, match_vectors, normalize_words
from auditor.sweep.sweep_config import SweepConfig
from auditor.sweep.vector_sweep import find_stored_model
from auditor.vectors import convert_to_single
from auditor.workers.process_pool import SERIAL, Engine
from model.backbone import Backbone
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
    with open_other_corpus(other, Manifest.load(folder), model, device) as other_folder:
        cosines = media_cosine, caption_cosine
        return find_overlap_with(folder, other, other_folder, cosines, engine=engine)


def find_overlap_with(
    folder: Folder,
    other: str,
    other_folder: Folder,
    cosines: tuple[float | None, float | None] = (None, None),
    *,
    engine: Engine = SERIAL,
) -> pa.Table:
    """Compare an audit with an open corpus; None as cosine of media or captions means that it is estimated."""
    corpus, keys, captions = read_other_corpus(other_folder)
    media_cosine = corpus.media_cosine() if cosines[0] is None else cosines[0]
    caption_cosine = corpus.caption_cosine() if cosines[1] is None else cosines[1]
    shards = find_swept_shards(folder)
    compare = partial(_compare_shard, folder, corpus, keys, captions, (media_cosine, caption_cosine))
    parts = list(engine.each(compare, shards))
    table = pa.concat_tables([OVERLAP_SCHEMA.empty_table(), *parts])
    notes = {"other": other, "media_cosine": str(media_cosine), "caption_cosine": str(caption_cosine)}
    folder.write_table(overlap_name(other), table, notes)
    return table.replace_schema_metadata(notes)


@dataclass(frozen=True)
class BareMediaShard:
    """A shard whose media need no captions: a medium without one has its key as its caption."""

    shard: Shard

    @property
    def name(self) -> str:
        return self.shard.name

    def fingerprint(self) -> str:
        return self.shard.fingerprint()

    @contextmanager
    def open(self) -> Iterator[OpenShard]:
        with self.shard.open() as opened:
            yield replace(opened, samples=[add_caption(sample) for sample in opened.samples])


def add_caption(sample: Sample) -> Sample:
    if sample.media is None or sample.problem is None or sample.problem.status != "missing_caption":
        return sample
    return replace(sample, captions=(sample.key,), problem=None)


@contextmanager
def open_other_corpus(
    other: str, manifest: Manifest, model: str | None, device: str, *, bare_media: bool = False
) -> Iterator[Folder]:
    """Yield a folder with the embeddings of the other corpus, made by the model of the audit.

    The model of stored embeddings is unknown; they need to have the width of the audit's. With `bare_media`, media
    without captions are encoded too.
    """
    other_folder = Folder(other)
    if other_folder.exists(MANIFEST_NAME):
        if Manifest.load(other_folder).model["fingerprint"] != manifest.model["fingerprint"]:
            raise AuditError(f"{other} was made by another model; name the corpus instead, or audit it with this model")
        yield other_folder
        return
    errors: list[Exception] = []
    with tempfile.TemporaryDirectory() as scratch:
        # Its columns or fields may have other names than those of the audited corpus: then no names are given.
        for options in dict.fromkeys([load_saved_options(manifest.corpus), DEFAULT_OPTIONS]):
            folder = Folder(tempfile.mkdtemp(dir=scratch))
            try:
                encode_other_corpus(folder, other, options, manifest, model, device, bare_media=bare_media)
            except (CorpusError, UnreadableError) as error:
                errors.append(error)
                continue
            yield folder
            return
    raise errors[0]


class UnreadableError(AuditError):
    """A shard of the other corpus cannot be read with these options."""


def encode_other_corpus(
    folder: Folder,
    other: str,
    options: CorpusOptions,
    manifest: Manifest,
    model: str | None,
    device: str,
    *,
    bare_media: bool,
) -> None:
    """Write the embeddings of the other corpus into the folder."""
    corpus = open_corpus(other, options)
    stored = find_stored_model(corpus, manifest.model["logit_scale"])
    if stored and stored.dim != manifest.model["dim"]:
        raise AuditError(f"{other} has vectors of {stored.dim} numbers, the audit of {manifest.model['dim']}")
    shards = [BareMediaShard(shard) for shard in corpus.shards] if bare_media and not stored else corpus.shards
    config = SweepConfig(manifest.model["frames"], manifest.model["exact_pixels"])
    engine = LocalEngine(folder, stored or load_audit_backbone(manifest, model, device), config)
    failed = [report for report in engine.sweep(shards, lambda rows, errors: None) if report.failure is not None]
    if failed:
        raise UnreadableError(f"{other}: {failed[0].shard} could not be read: {failed[0].failure}")


def load_audit_backbone(manifest: Manifest, model: str | None, device: str) -> Backbone:
    """Load the model of an audit; of an audit of stored embeddings, the one that the user names."""
    stored = not manifest.model["spec"]
    if stored and not model:
        raise AuditError("the audit has stored embeddings and does not know their model: name it with --model")
    backbone = load_model(choose_audit_model(asdict(manifest), model), device).backbone
    if stored and backbone.dim != manifest.model["dim"]:
        raise AuditError(f"{model} makes vectors of {backbone.dim} numbers, the audit has {manifest.model['dim']}")
    if not stored and backbone.fingerprint != manifest.model["fingerprint"]:
        raise AuditError(f"{backbone.spec} is not the model that made the audit; pass that one with --model")
    return backbone


def list_encoded_shards(folder: Folder) -> list[str]:
    """The shards of an audit, or of a corpus that was swept only to be compared, which has no manifest."""
    return find_swept_shards(folder) if folder.exists(MANIFEST_NAME) else folder.names("embeddings", ".parquet")


def read_other_corpus(folder: Folder) -> tuple[OtherCorpus, list[str], list[str]]:
    """Read the other corpus: its vectors and hashes, the keys of its media, and its captions."""
    shards = list_encoded_shards(folder)
    media = [read_first_rows(folder, shard, ["key", "media_digest", "visual"]) for shard in shards]
    pairs = [read_embeddings(folder, shard) for shard in shards]
    captions = [c for shard in pairs for c in shard.facts["caption"].take(pa.array(shard.rows)).to_pylist()]
    if not captions:
        raise AuditError(f"{folder.url} has no encoded rows, so there is nothing to compare with")
    hashes = np.concatenate([number_digests(table["media_digest"].to_pylist()) for table, _ in media])
    visual = convert_to_single(np.concatenate([visual for _, visual in media]))
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
    media_matches = match_vectors(convert_to_single(visual), other.visual, hashes, other.marks.tolist(), cosines[0])
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
