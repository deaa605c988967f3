"""Audits of random embeddings whose captions can be moved, for tests of fault patterns and repairs.

The embeddings are written like those of a sweep and scored by the real scoring pass, without a corpus.
"""

import tarfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from auditor.audit_folder import arrow_schema
from auditor.audit_folder.confirmed_places import ConfirmedPlaces, confirm_places
from auditor.audit_folder.embeddings import build_nullable_vectors, name_embeddings_file
from auditor.audit_folder.folder import Folder
from auditor.audit_folder.manifest import Manifest
from auditor.schema import FLAG_THRESHOLD, FLAGS
from auditor.score.corpus_statistics import ScoreContext, prepare_context
from auditor.score.score import score_shard
from auditor.score.score_config import ScoreConfig
from auditor.sweep.caption_facts import hash_caption
from auditor.vectors import Floats, Ints
from tests.support.pairs import normalize_rows

SCALE = 20.0
CONFIG = ScoreConfig(fit_pairs=500)


def make_embeddings(samples: int, seed: int = 0, *, dim: int = 64, noise: float = 1.2) -> tuple[Floats, Floats]:
    """Media and captions (N, D). With this noise nine captions in ten are closest to their own medium."""
    generator = np.random.default_rng(seed)
    content = generator.normal(size=(samples, dim))
    gap = generator.normal(size=(2, dim)) * 0.5
    return normalize_rows(content + gap[0]), normalize_rows(
        content + noise * generator.normal(size=(samples, dim)) + gap[1]
    )


def make_captions(count: int) -> list[str]:
    """Captions that all differ."""
    return [f"thing {chr(97 + i % 26)}{chr(97 + i // 26 % 26)}{chr(97 + i // 676)}" for i in range(count)]


def write_planted(
    path: Path,
    visual: Floats,
    text: Floats,
    shards: int = 1,
    *,
    source: Ints | None = None,
    captions: Sequence[str] | None = None,
    broken: Sequence[int] = (),
    corpus: Path | None = None,
) -> ScoreContext:
    """Write an audit of samples s000000, s000001, ... in which sample i has the caption of sample `source[i]`.

    `broken` are the positions of samples that could not be decoded. `corpus` is a folder with the shards as tars.
    """
    write_embeddings(path, visual, text, shards, source=source, captions=captions, broken=broken, corpus=corpus)
    names = [f"{number:05d}" for number in range(shards)]
    return _score(Folder(path), names, len(visual), len(broken), str(corpus or "invented"))


def write_embeddings(
    path: Path,
    visual: Floats,
    text: Floats,
    shards: int = 1,
    *,
    source: Ints | None = None,
    captions: Sequence[str] | None = None,
    broken: Sequence[int] = (),
    corpus: Path | None = None,
) -> None:
    """Write the embeddings of such an audit without scores, for tests that read nothing else."""
    count = len(visual)
    moved = np.arange(count) if source is None else source
    texts = list(captions) if captions is not None else make_captions(count)
    folder = Folder(path)
    names = [f"{number:05d}" for number in range(shards)]
    for name, rows in zip(names, np.array_split(np.arange(count), shards), strict=True):
        ok = ~np.isin(rows, broken)
        table = _facts(name, rows, ok, [texts[i] for i in moved[rows]], corpus)
        schema = arrow_schema.build_embeddings_schema(visual.shape[1])
        known = {
            "visual": build_nullable_vectors(visual[rows[ok]], ok),
            "text": build_nullable_vectors(text[moved[rows[ok]]], ok),
        }
        more = [field for field in schema if field.name not in arrow_schema.FACTS.names]
        columns = [known.get(field.name, pa.nulls(len(rows), field.type)) for field in more]
        folder.write_table(name_embeddings_file(name), pa.Table.from_arrays([*table.columns, *columns], schema=schema))


def _facts(shard: str, rows: Ints, ok: npt.NDArray[np.bool_], captions: Sequence[str], corpus: Path | None) -> pa.Table:
    known: dict[str, list[Any]] = {
        "uid": [f"{i:032x}" for i in rows],
        "key": [f"s{i:06d}" for i in rows],
        "caption_index": [0] * len(rows),
        "shard": [shard] * len(rows),
        "kind": ["image"] * len(rows),
        "caption": list(captions),
        "caption_hash": [hash_caption(caption) for caption in captions],
        "media_digest": [f"{i * 7919 + 1:016x}" * 2 for i in rows.tolist()],
        "media_path": [f"/nowhere/{shard}.tar"] * len(rows),
        "media_offset": [0] * len(rows),
        "media_size": [1] * len(rows),
        "status": ["ok" if good else "corrupt" for good in ok],
    }
    if corpus is not None:
        known |= _media_locations(corpus / f"{shard}.tar", known["key"])
    columns = [
        pa.array(known[field.name], field.type) if field.name in known else pa.nulls(len(rows), field.type)
        for field in arrow_schema.FACTS
    ]
    return pa.Table.from_arrays(columns, schema=arrow_schema.FACTS)


def _media_locations(path: Path, keys: Sequence[str]) -> dict[str, list[Any]]:
    """Offsets and sizes of the media of these keys in a tar."""
    with tarfile.open(path) as tar:
        found = {member.name: member for member in tar}
    media = [found[f"{key}.jpg"] for key in keys]
    return {
        "media_path": [str(path)] * len(keys),
        "media_offset": [member.offset_data for member in media],
        "media_size": [member.size for member in media],
    }


def _score(folder: Folder, shards: Sequence[str], rows: int, broken: int, root: str) -> ScoreContext:
    context = prepare_context(folder, shards, None, {"logit_scale": SCALE}, CONFIG)
    for shard in shards:
        score_shard(folder, shard, context)
    status = {"ok": rows - broken, **({"corrupt": broken} if broken else {})}
    manifest = Manifest(
        corpus={"spec": root, "root": root, "shards": len(shards), "carry": []},
        model={"spec": "", "fingerprint": "invented", "dim": 64, "logit_scale": SCALE, "frames": 1},
        settings={"score": asdict(CONFIG)},
        state="complete",
        counts={"keys": rows, "rows": rows, "status": status},
        statistics=context.statistics,
        thresholds=dict.fromkeys(FLAGS, FLAG_THRESHOLD),
    )
    confirm_places(manifest.id, ConfirmedPlaces((root,)))
    manifest.save(folder)
    return context
