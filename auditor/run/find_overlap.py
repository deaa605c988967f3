"""An audit's corpus against another corpus, such as a benchmark's test set: which media and captions are in both.

The other one is an audit made by the same model, or a corpus, which is then swept into a temporary folder. The audit's
own media are not read again: their embeddings are compared, shard by shard.
"""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from auditor.audit_folder.audit_files import swept_shards
from auditor.audit_folder.embeddings import read_embeddings
from auditor.audit_folder.folder import Folder
from auditor.audit_folder.manifest import NAME, Manifest
from auditor.audit_folder.overlap_file import SCHEMA, overlap_name
from auditor.corpus.open_corpus import CorpusOptions, open_corpus
from auditor.errors import AuditError
from auditor.run.engine import LocalEngine
from auditor.score.duplicate_search import media_of
from auditor.score.pair_sample import Each, groups, in_turn
from auditor.score.statistics.corpus_overlap import Other, matches, plain
from auditor.sweep.sweep import SweepConfig
from model.checkpoint import load_model


def find_overlap(
    audit: str,
    other: str,
    *,
    media_cosine: float | None = None,
    caption_cosine: float | None = None,
    model: str | None = None,
    device: str = "cpu",
    each: Each = in_turn,
) -> pa.Table:
    """Compare, write overlap/<other>.parquet into the audit, and return its rows."""
    folder = Folder(audit)
    manifest = Manifest.load(folder)
    with swept(other, manifest, model, device) as place:
        known, keys, captions = read_other(place)
    least = (
        known.media_cosine() if media_cosine is None else media_cosine,
        known.caption_cosine() if caption_cosine is None else caption_cosine,
    )
    shards = swept_shards(folder)
    parts = list(each(partial(_compare, folder, known, keys, captions, least), shards))
    table = pa.concat_tables([SCHEMA.empty_table(), *parts])
    notes = {"other": other, "media_cosine": str(least[0]), "caption_cosine": str(least[1])}
    folder.write_table(overlap_name(other), table, notes)
    return table.replace_schema_metadata(notes)


@contextmanager
def swept(other: str, manifest: Manifest, model: str | None, device: str) -> Iterator[Folder]:
    """A folder with the embeddings of the other corpus, by the model of the audit."""
    place = Folder(other)
    if place.exists(NAME):
        theirs = Manifest.load(place)
        if theirs.model["fingerprint"] != manifest.model["fingerprint"]:
            raise AuditError(f"{other} was made by another model; name the corpus instead, or audit it with this model")
        yield place
        return
    backbone = load_model(model or manifest.model["spec"], device).backbone
    if backbone.fingerprint != manifest.model["fingerprint"]:
        raise AuditError(f"{backbone.spec} is not the model that made the audit; pass that one with --model")
    names = CorpusOptions.__dataclass_fields__
    corpus = open_corpus(other, CorpusOptions(**{k: v for k, v in manifest.corpus.items() if k in names}))
    config = SweepConfig(manifest.model["frames"], manifest.model.get("exact_pixels", True))
    with tempfile.TemporaryDirectory() as scratch:
        engine = LocalEngine(Folder(scratch), backbone, config)
        failed = [r for r in engine.sweep(corpus.shards, lambda rows, errors: None) if r.failure is not None]
        if failed:
            raise AuditError(f"{other}: {failed[0].shard} could not be read: {failed[0].failure}")
        yield Folder(scratch)


def read_other(folder: Folder) -> tuple[Other, list[str], list[str]]:
    """The other corpus in memory: vectors and marks, the keys of its media, and its captions as they are."""
    # a corpus that was swept for this alone has embeddings and no manifest
    shards = swept_shards(folder) if folder.exists(NAME) else folder.names("embeddings", ".parquet")
    media = [media_of(folder, shard, ["key", "media_digest", "visual"]) for shard in shards]
    pairs = [read_embeddings(folder, shard) for shard in shards]
    captions = [c for one in pairs for c in one.facts["caption"].take(pa.array(one.rows)).to_pylist()]
    if not captions:
        raise AuditError(f"{folder.url} has nothing that could be encoded, so there is nothing to compare with")
    marks = np.concatenate([groups(table["media_digest"].to_pylist()) for table, _ in media])
    other = Other(
        np.concatenate([visual for _, visual in media]),
        marks,
        np.concatenate([one.text for one in pairs]),
        tuple(plain(caption) for caption in captions),
    )
    return other, [key for table, _ in media for key in table["key"].to_pylist()], captions


def _compare(
    folder: Folder, other: Other, keys: Sequence[str], captions: Sequence[str], least: tuple[float, float], shard: str
) -> pa.Table:
    """The rows of one shard that are also in the other corpus."""
    columns = ["uid", "key", "shard", "media_digest", "visual"]
    media, visual = media_of(folder, shard, columns)
    marks = groups(media["media_digest"].to_pylist()).tolist()
    found = matches(visual, other.visual, marks, other.marks.tolist(), least[0])
    of_media = _rows(media, found, "media", other_key=keys)
    pairs = read_embeddings(folder, shard)
    facts = pairs.facts.take(pa.array(pairs.rows))
    texts = [plain(caption) for caption in facts["caption"].to_pylist()]
    found = matches(pairs.text, other.text, texts, other.captions, least[1])
    return pa.concat_tables([of_media, _rows(facts, found, "caption", other_caption=captions)])


def _rows(facts: pa.Table, found: tuple[Any, Any, Any], what: str, **names: Sequence[str]) -> pa.Table:
    place, exact, cosine = found
    chosen = np.flatnonzero(place >= 0)
    rows = facts.take(pa.array(chosen))
    columns = {name: rows[name] for name in ("uid", "key", "shard", "media_digest")}
    columns |= {"what": pa.array([what] * len(chosen)), "how": pa.array(np.where(exact[chosen], "exact", "near"))}
    columns |= {"cosine": pa.array(cosine[chosen].astype(np.float32))}
    for name in ("other_key", "other_caption"):
        values = [names[name][place[i]] for i in chosen] if name in names else [None] * len(chosen)
        columns[name] = pa.array(values, pa.string())
    return pa.table(columns).cast(SCHEMA)
