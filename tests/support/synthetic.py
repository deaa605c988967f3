"""Synthetic audits with plausible random columns, made in seconds: large ones, and a small one with real shards.

`python -m tests.support.synthetic FOLDER ROWS` writes one. `write_audit` writes only measurements.
`write_corpus_audit` also writes tars with real JPEGs, for tests of exports and thumbnails.
"""

import io
import json
import sys
import tarfile
import uuid
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from auditor.audit_folder.arrow_schema import SAMPLES, STORAGE
from auditor.audit_folder.confirmed_places import ConfirmedPlaces, confirm_places
from auditor.audit_folder.manifest import FORMAT
from auditor.corpus.corpus_files import digest
from auditor.sweep.caption_facts import hash_caption

Floats = npt.NDArray[np.floating]

SUBJECTS = "man,woman,dog,cat,child,group of people,red car,cyclist,horse,old house,boat,bird,train,girl,surfer,chef"
ACTIONS = "walking,running,sitting,standing,jumping,waiting,playing,looking around,turning,resting,posing,moving fast"
PLACES = "in the snow,on a beach,in the street,beside a lake,at night,in a kitchen,on stage,under a bridge,in a field"
BAD_STATUSES = ("corrupt", "missing_caption", "timeout", "duplicate_key", "too_large")
NOISE = 0.07


@dataclass(frozen=True)
class Noise:
    """The true noise: two overlapping normal distributions of similarity."""

    share: float = NOISE
    good: tuple[float, float] = (0.30, 0.045)
    bad: tuple[float, float] = (0.14, 0.045)

    def p_mismatch(self, similarity: Floats) -> Floats:
        bad = self.share * normal_density(similarity, *self.bad)
        good = (1 - self.share) * normal_density(similarity, *self.good)
        return (bad / (bad + good)).astype(np.float32)


def normal_density(x: Floats, mean: float, deviation: float) -> Floats:
    density: Floats = np.exp(-0.5 * ((x - mean) / deviation) ** 2) / (deviation * np.sqrt(2 * np.pi))
    return density


def make_caption_list() -> pa.Array:
    texts = [
        f"A {subject} {action} {place}{end}"
        for subject in SUBJECTS.split(",")
        for action in ACTIONS.split(",")
        for place in PLACES.split(",")
        for end in (".", ", seen from afar", " while others watch from the other side of the road")
    ]
    return pa.array(texts)


CAPTIONS = make_caption_list()
CAPTION_HASHES = pa.array([hash_caption(caption) for caption in CAPTIONS.to_pylist()])


def make_hex_column(random: np.random.Generator, rows: int) -> pa.Array:
    """`rows` strings of 32 random hex digits, built without a Python loop."""
    text = random.bytes(16 * rows).hex().encode()
    offsets = np.arange(rows + 1, dtype=np.int32) * 32
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets.tobytes()), pa.py_buffer(text))


def make_number_column(first: int, rows: int) -> pa.Array:
    digits = pc.cast(pa.array(np.arange(first, first + rows)), pa.string())
    return pc.utf8_lpad(digits, width=9, padding="0")


def make_score_columns(random: np.random.Generator, rows: int, noise: Noise) -> dict[str, Floats]:
    mismatched = random.random(rows) < noise.share
    similarity = np.where(mismatched, random.normal(*noise.bad, rows), random.normal(*noise.good, rows))
    similarity = similarity.astype(np.float32)
    vague = random.beta(2, 5, rows)
    busy = random.beta(2, 6, rows)
    columns = {
        "similarity": similarity,
        "similarity_normalised": similarity - 0.2 + 0.01 * random.normal(size=rows),
        "uncertainty_visual": 0.5 + 0.4 * busy + 0.02 * random.normal(size=rows),
        "uncertainty_text": 0.45 + 0.5 * vague + 0.02 * random.normal(size=rows),
        "matches_visual": np.exp(7 * busy),
        "matches_text": np.exp(8 * vague),
        "ambiguity_visual": busy,
        "ambiguity_text": vague,
        "caption_bits": 40 * (1 - vague),
        "mismatch_score": similarity,
        "rival_margin": similarity - 0.3,
        "better_captions": np.maximum(busy - similarity, 0),
        "better_media": np.maximum(vague - similarity, 0),
        "neighbour_agreement": random.normal(size=rows),
        "sibling_agreement": random.normal(size=rows),
        "word_support": -random.random(rows),
        "p_mismatch": noise.p_mismatch(similarity),
    }
    return {name: values.astype(np.float32) for name, values in columns.items()}


def make_video_columns(random: np.random.Generator, video: npt.NDArray[np.bool_]) -> dict[str, pa.Array]:
    rows = len(video)
    duration = random.gamma(3, 5, rows).astype(np.float32)
    columns = {
        "duration": duration,
        "best_frame": random.integers(0, 12, rows, dtype=np.int32),
        "best_frame_time": duration * 0.5,
        "frame_spread": random.random(rows, dtype=np.float32) * 0.1,
        "frame_match_share": random.random(rows, dtype=np.float32),
    }
    return {name: pa.array(values, mask=~video) for name, values in columns.items()}


def make_map_columns(seed: int, bad: npt.NDArray[np.bool_]) -> dict[str, pa.Array]:
    """Positions on the two maps, in a few clusters."""
    random = np.random.default_rng(seed)
    centers = np.random.default_rng(0).uniform(-0.9, 0.9, (4, 12))[:, random.integers(0, 12, len(bad))]
    positions = (centers + 0.05 * random.normal(size=centers.shape)).clip(-1, 1).astype(np.float32)
    names = ("map_x", "map_y", "map_text_x", "map_text_y")
    return {name: pa.array(values, mask=bad) for name, values in zip(names, positions, strict=True)}


def make_samples_table(random: np.random.Generator, shard: str, first: int, rows: int, noise: Noise) -> pa.Table:
    """Rows of a shard: 2% are not ok (without scores), 12% are videos, 5% are duplicates of the row before."""
    status = np.where(random.random(rows) < 0.02, random.choice(BAD_STATUSES, rows), "ok")
    bad = status != "ok"
    video = random.random(rows) < 0.12
    uid = make_hex_column(random, rows)
    duplicate = (random.random(rows) < 0.05) & ~bad
    duplicate[0] = False
    size = random.integers(20_000, 200_000, rows)
    chosen = pa.array(random.integers(0, len(CAPTIONS), rows))
    columns: dict[str, pa.Array] = {
        "uid": uid,
        "key": make_number_column(first, rows),
        "caption_index": pa.array(np.zeros(rows, np.int32)),
        "shard": pa.array([shard] * rows),
        "kind": pc.if_else(pa.array(video), "video", "image"),
        "caption": CAPTIONS.take(chosen),
        "caption_hash": CAPTION_HASHES.take(chosen),
        "width": pa.array(random.choice([224, 320, 480, 640, 1024], rows).astype(np.int32)),
        "height": pa.array(random.choice([224, 240, 360, 480, 768], rows).astype(np.int32)),
        "frames": pa.array(np.where(video, 12, 1).astype(np.int32)),
        "media_path": pa.array([f"/nowhere/{shard}.tar"] * rows),
        "media_offset": pa.array(np.cumsum(size)),
        "media_size": pa.array(size),
        "media_digest": make_hex_column(random, rows),
        "status": pa.array(status),
        "error_message": pc.if_else(pa.array(bad), "broken data stream when reading image file", None),
        "duplicate_of": pc.if_else(pa.array(duplicate), uid.take(pa.array(np.maximum(np.arange(rows) - 1, 0))), None),
        "weakest_word": pc.if_else(pa.array(bad), None, "guitar"),
        "topic": pa.array(random.zipf(1.6, rows).clip(1, 32).astype(np.int16), mask=bad),
        **make_map_columns(first, bad),
        **make_video_columns(random, video & ~bad),
        **{name: pa.array(values, mask=bad) for name, values in make_score_columns(random, rows, noise).items()},
    }
    columns = {field.name: columns.get(field.name, pa.nulls(rows)).cast(field.type) for field in SAMPLES}
    return pa.table(list(columns.values()), schema=SAMPLES)


def make_kind_statistics(pairs: int, noise: Noise) -> dict[str, object]:
    edges = np.linspace(0, 0.5, 51, dtype=np.float32)
    middle = (edges[1:] + edges[:-1]) / 2
    null = normal_density(middle, *noise.bad) * 0.01
    observed = (
        noise.share * normal_density(middle, *noise.bad) + (1 - noise.share) * normal_density(middle, *noise.good)
    ) * 0.01
    return {
        "pairs": pairs,
        "reference_pairs": pairs,
        "bootstrap": [],
        "frame_threshold": None,
        "pi0": noise.share,
        "pi0_low": noise.share - 0.006,
        "pi0_high": noise.share + 0.007,
        "curve": {"score": edges.tolist(), "p": noise.p_mismatch(edges).tolist()},
        "histogram": {"edges": edges.tolist(), "observed": observed.tolist(), "null": null.tolist()},
    }


def make_manifest(rows: int, shards: int, status: dict[str, int], root: str, noise: Noise) -> dict[str, object]:
    pixels = {"size": 224, "interpolation": "bicubic", "resize_mode": "shortest"}
    model = {"spec": "ViT-B-32@openai", "fingerprint": "0" * 32, "dim": 512, "logit_scale": 100.0, "frames": 12}
    return {
        "format": FORMAT,
        "id": uuid.uuid4().hex,
        "state": "complete",
        "created": "2026-11-16T00:00:00+00:00",
        "finished": "2026-11-16T01:00:00+00:00",
        "corpus": {"spec": root, "root": root, "shards": shards, "carry": []},
        "model": {**model, "pixels": pixels, "head": "fitted", "head_fingerprint": "1" * 32},
        "settings": {"score": {"near_duplicate": 0.97, "seed": 0}},
        "versions": {"auditor": "0.1.0", "torch": "2.15.0", "open_clip_torch": "3.3.0"},
        "counts": {"keys": rows, "rows": rows, "status": status},
        "failed_shards": [],
        "statistics": {
            "image": make_kind_statistics(int(rows * 0.88), noise),
            "video": make_kind_statistics(rows // 8, noise),
        },
        "thresholds": {"mismatch": 0.5, "ambiguous_visual": 0.5, "ambiguous_text": 0.5},
    }


def write_audit(folder: Path, rows: int, per_shard: int = 10_000, seed: int = 0, noise: Noise | None = None) -> Path:
    """Write a complete audit of random measurements, which depend only on the arguments."""
    noise = noise or Noise()
    (folder / "samples").mkdir(parents=True, exist_ok=True)
    counts: dict[str, int] = {}
    shards = range(0, rows, per_shard)
    for number, first in enumerate(shards):
        random = np.random.default_rng([seed, number])
        table = make_samples_table(random, f"{number:05d}", first, min(per_shard, rows - first), noise)
        pq.write_table(table, folder / "samples" / f"{number:05d}.parquet", **STORAGE)
        for entry in pc.value_counts(table["status"]).to_pylist():
            counts[entry["values"]] = counts.get(entry["values"], 0) + entry["counts"]
    text = json.dumps(make_manifest(rows, len(shards), counts, "/nowhere", noise), indent=1)
    (folder / "manifest.json").write_text(text)
    return folder


def make_photo(number: int) -> bytes:
    from PIL import Image

    random = np.random.default_rng(number)
    coarse = Image.fromarray(random.integers(0, 256, (6, 8, 3), dtype=np.uint8))
    out = io.BytesIO()
    coarse.resize((160, 120), Image.Resampling.BICUBIC).save(out, "JPEG", quality=80)
    return out.getvalue()


def add_member(tar: tarfile.TarFile, name: str, data: bytes) -> int:
    """Append a member and return the offset of its bytes."""
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))
    return tar.offset - -(-len(data) // 512) * 512


def write_corpus_audit(
    folder: Path, shards: int = 3, per_shard: int = 20, seed: int = 0, captions: int | None = None
) -> tuple[Path, Path]:
    """Write a corpus of tars (jpg, txt and json per key) and an audit of it, and return (audit, corpus).

    Every fifth key has two captions and so two rows, unless `captions` sets the number. The last key of each shard is
    a corrupt image.
    """
    audit, corpus = folder / "audit", folder / "corpus"
    (audit / "samples").mkdir(parents=True)
    corpus.mkdir(parents=True)
    total = 0
    for number in range(shards):
        path = corpus / f"{number:05d}.tar"
        data, table = make_shard(number, per_shard, seed, captions)
        path.write_bytes(data)
        media_path = pa.array([str(path)] * len(table), SAMPLES.field("media_path").type)
        table = table.set_column(SAMPLES.get_field_index("media_path"), SAMPLES.field("media_path"), media_path)
        pq.write_table(table, audit / "samples" / f"{number:05d}.parquet", **STORAGE)
        total += len(table)
    counts = {"ok": total - shards, "corrupt": shards}
    content = make_manifest(total, shards, counts, str(corpus), Noise())
    confirm_places(content["id"], ConfirmedPlaces((str(corpus),)))
    content["counts"] = {"keys": shards * per_shard, "rows": total, "status": counts}
    (audit / "manifest.json").write_text(json.dumps(content))
    return audit, corpus


@cache
def make_shard(number: int, per_shard: int, seed: int, captions: int | None) -> tuple[bytes, pa.Table]:
    """The bytes of a tar, and its rows without the path of the tar."""
    random = np.random.default_rng([seed, number])
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        rows = [
            write_sample_rows(tar, random, f"{number:05d}", number * per_shard + i, i == per_shard - 1, captions)
            for i in range(per_shard)
        ]
    return stream.getvalue(), pa.concat_tables(rows)


def write_sample_rows(
    tar: tarfile.TarFile,
    random: np.random.Generator,
    shard: str,
    index: int,
    corrupt: bool,
    captions: int | None = None,
) -> pa.Table:
    key = f"{index:06d}"
    rows = 1 if corrupt else captions or (2 if index % 5 == 0 else 1)
    table = make_samples_table(random, shard, index, rows, Noise())
    data = b"not a picture" if corrupt else make_photo(index)
    offset = add_member(tar, f"{key}.jpg", data)
    texts = [
        f"{text} {i}" if captions else text for i, text in enumerate(table["caption"].to_pylist())
    ]  # all different
    add_member(tar, f"{key}.txt", "\n".join(texts).encode())
    add_member(tar, f"{key}.json", json.dumps({"key": key, "captions": texts}).encode())
    changed: dict[str, list[object]] = {
        "uid": [f"{(captions or 2) * index + i + 1:032x}" for i in range(rows)],
        "key": [key] * rows,
        "caption_index": list(range(rows)),
        "caption": list(texts),
        "kind": ["image"] * rows,
        "media_offset": [offset] * rows,
        "media_size": [len(data)] * rows,
        "width": [160] * rows,
        "height": [120] * rows,
        "status": ["corrupt" if corrupt else "ok"] * rows,
        "error_message": ["cannot identify image file"] if corrupt else [None] * rows,
        "duplicate_of": [None] * rows,
        "media_digest": [digest(data)] * rows,
        **{name: [None] * rows for name in ("duration", "best_frame", "best_frame_time", "frame_spread")},
        "frame_match_share": [None] * rows,
    }
    measured = make_score_columns(random, rows, Noise())
    changed |= {name: [None] * rows if corrupt else values.tolist() for name, values in measured.items()}
    changed["topic"] = [None if corrupt else index % 4] * rows
    for name, values in changed.items():
        position = SAMPLES.get_field_index(name)
        table = table.set_column(position, SAMPLES.field(name), pa.array(values, SAMPLES.field(name).type))
    return table


if __name__ == "__main__":
    write_audit(Path(sys.argv[1]), int(sys.argv[2]))
