"""Audits made of given vectors, in a moment: what reads stored embeddings is tested on them."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from auditor.audit_folder import arrow_schema
from auditor.audit_folder.embeddings import build_nullable_vectors
from tests.support.stored import normalize_rows
from tests.support.synthetic import write_audit

Floats = npt.NDArray[np.float32]
AXES = ("a photo", "a watermark", "a drawing")  # texts that the stub encodes as the first axes
WIDTH = 16


class AxisEncoder:
    """Encodes each of AXES as its axis, other texts as the last one."""

    spec = "axes"

    def encode_texts(self, texts: Sequence[str]) -> Floats:
        places = [AXES.index(text) if text in AXES else WIDTH - 1 for text in texts]
        return np.eye(WIDTH, dtype=np.float32)[places]


def plant_media(count: int, share: float, axis: int = 1, seed: int = 0) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Unit vectors of which a share leans toward an axis, and which of them do."""
    random = np.random.default_rng(seed)
    planted = random.random(count) < share
    vectors = random.normal(size=(count, WIDTH)).astype(np.float32)
    vectors[:, axis] += np.where(planted, 7, 0)
    vectors[:, WIDTH - 1] += 4
    return normalize_rows(vectors), planted


def write_vector_audit(folder: Path, media: Sequence[Floats], captions: int = 2, kinds: Sequence[str] = ()) -> Path:
    """An audit with a shard for each matrix of media; the fourth medium of each shard is corrupt."""
    write_audit(folder, 10, 10)
    shutil.rmtree(folder / "samples")
    for name in ("embeddings", "samples"):
        (folder / name).mkdir()
    for shard, vectors in enumerate(media):
        write_shard(folder, f"s{shard}", vectors, captions, kinds[shard] if kinds else "image")
    manifest = json.loads((folder / "manifest.json").read_text())
    counts = {f"s{shard}": len(vectors) * captions for shard, vectors in enumerate(media)}
    manifest |= {"counts": {}, "shards": counts, "model": {**manifest["model"], "spec": "axes"}}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def write_shard(folder: Path, shard: str, vectors: Floats, captions: int, kind: str) -> None:
    rows: list[dict[str, Any]] = [
        {
            "uid": f"{shard.encode().hex():0>8}{medium:08x}{caption:016x}",
            "key": f"{shard}-{medium:05d}",
            "caption_index": caption,
            "shard": shard,
            "kind": kind,
            "caption": f"caption {caption} of {medium}",
            "status": "corrupt" if medium == 3 else "ok",
        }
        for medium in range(len(vectors))
        for caption in range(captions)
    ]
    facts = pa.Table.from_pylist(rows, schema=arrow_schema.FACTS)
    usable = np.array([row["status"] == "ok" for row in rows])
    first = usable & np.array([row["caption_index"] == 0 for row in rows])
    own = np.delete(vectors, 3, axis=0)
    stored = facts.append_column("visual", build_nullable_vectors(own, first))
    stored = stored.append_column("text", build_nullable_vectors(np.repeat(own, captions, axis=0), usable))
    for field in arrow_schema.build_embeddings_schema(WIDTH):
        if field.name not in stored.column_names:
            stored = stored.append_column(field, pa.nulls(len(rows), field.type))
    pq.write_table(stored, folder / "embeddings" / f"{shard}.parquet")
    scores = [pa.nulls(len(rows), field.type) for field in arrow_schema.SCORES]
    pq.write_table(
        pa.table([*facts.columns, *scores], schema=arrow_schema.SAMPLES), folder / f"samples/{shard}.parquet"
    )
