"""Pools of pairs for tests/bench/filter_effect.py: encoded media and captions, what is planted, and a clean test set.

- `demo`: scenes and clips of the generated corpus, with swapped and vague captions, blurred and blank pictures, and
  clips of several scenes; the encoder is the demo's small model, trained on other clean scenes;
- `swapped`, `related`: Flickr8k photos with captions of random or of similar photos; the encoder has seen the photos;
- `drawings`: drawings of Debian's openclipart with the titles, descriptions and keywords of their makers (nothing is
  planted); the encoder has seen photos only.

Each corpus is encoded once, and cached. `tune` and `report` are different photos, seeds and test items.
"""

import hashlib
import re
import tarfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from html import unescape
from pathlib import Path
from random import Random
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from auditor.corpus.open_corpus import open_corpus
from auditor.corpus.shard import CorpusOptions
from auditor.corpus.shard_writer import write_shard
from auditor.demo.corpus_plan import PlannedSample, add_defect, plan_clip, plan_image
from auditor.demo.demo_corpus import CorpusConfig, render_sample, write_corpus
from auditor.demo.run_demo import DemoConfig, train_demo_model
from auditor.demo.scene_captions import write_vague_caption
from auditor.research.evaluate.projection_training import FeaturePairs
from auditor.research.evaluate.trunk_features import FeatureEncoder, FeatureShard
from auditor.run.audit_config import AuditConfig
from auditor.vectors import Bools, Floats, Ints
from model.checkpoint import load_model
from tests.bench.flickr8k import CACHE, Photos, encoder
from tests.bench.found_corpora import DRAWINGS, drawing_key, load_drawings
from tests.bench.noise import Draw

Part = Literal["tune", "report"]
PICTURES, CLIPS, TWINS, VAGUE = 1200, 300, 240, 200  # of the generated pool; TWINS have a damaged copy, of each kind
TRAIN, VAL = 2400, 600  # samples of the demo's encoder, and of the test
SHARES = {"swapped": 0.5, "vague": 0.2, "blurred": 0.1, "near_blank": 0.1, "multi_scene": 0.1}  # of what is planted
HELD_OUT = 600  # drawings of the test
WIDTH = 256  # of the visual features of photos


@dataclass(frozen=True)
class Cell:
    """The pairs of one corpus: rows of the pool's media and captions, and whether something is planted in them."""

    media: Ints  # (N,)
    captions: Ints  # (N,)
    planted: Bools  # (N,)


@dataclass(frozen=True)
class Encoded:
    """Media and captions: unit vectors, and features of the frozen trunks; a clip has the mean of its frames."""

    captions: list[str]
    owners: Ints  # (C,) medium of each caption
    keys: list[str]  # (M)
    visual: Floats  # (M, D)
    text: Floats  # (C, D)
    visual_features: Floats  # (M, P)
    text_features: Floats  # (C, Q)

    def take_pairs(self, media: Ints, captions: Ints) -> FeaturePairs:
        return FeaturePairs(self.visual_features, self.text_features[captions], media)

    def take_media(self, rows: Ints) -> FeaturePairs:
        """Some media with all their captions."""
        place = np.full(len(self.keys), -1)
        place[rows] = np.arange(len(rows))
        captions = np.flatnonzero(place[self.owners] >= 0)
        return FeaturePairs(self.visual_features[rows], self.text_features[captions], place[self.owners[captions]])


@dataclass(frozen=True)
class Pool:
    """`plant(rate, seed)` makes a corpus; `write(cell, folder)` writes it and says how it is audited."""

    name: str
    encoded: Encoded
    test: FeaturePairs
    scale: float
    plant: Callable[[float, int], Cell]
    write: Callable[[Cell, Path], AuditConfig]


def load_pool(name: str, part: Part, shared: Path) -> Pool:
    if name == "demo":
        return load_demo(part)
    return load_drawing_pool(part, shared) if name == "drawings" else load_flickr8k(name, part, shared)


@lru_cache(maxsize=4)
def encode_tars(model: str, pattern: str) -> tuple[Encoded, float]:
    """Encode WebDataset shards with both towers, once, and return the logit scale too."""
    backbone = load_model(model, "cpu").backbone
    with FeatureEncoder(backbone, decoders=1, cache=CACHE / "features") as encode:
        shards = list(encode(open_corpus(pattern).shards))
    return join_shards(shards), backbone.logit_scale


def join_shards(shards: list[FeatureShard]) -> Encoded:
    starts = np.cumsum([0, *(len(shard.keys) for shard in shards)])
    return Encoded(
        [str(caption) for shard in shards for caption in shard.captions],
        np.concatenate([shard.owners + start for shard, start in zip(shards, starts, strict=False)]),
        [str(key) for shard in shards for key in shard.keys],
        np.concatenate([shard.to_embeddings().media.visual for shard in shards]),
        np.concatenate([shard.text for shard in shards]),
        np.concatenate([build_means(shard.visual_features, shard.counts) for shard in shards]),
        np.concatenate([shard.text_features for shard in shards]),
    )


def build_means(frames: Floats, counts: Ints) -> Floats:
    """The mean features of each medium's frames (M, P)."""
    starts = np.cumsum(counts) - counts
    return np.asarray(np.add.reduceat(frames, starts) / counts[:, None], np.float32)


def take_half(count: int, part: Part) -> Ints:
    return np.arange(0 if part == "tune" else 1, count, 2)


def write_vectors(encoded: Encoded, scale: float, cell: Cell, folder: Path) -> AuditConfig:
    """Write a corpus of stored embeddings; pairs with the same digest have the same medium."""

    def column(vectors: Floats) -> pa.Array:
        return pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])

    columns = {
        "key": [f"{row:06d}" for row in range(len(cell.media))],
        "caption": [encoded.captions[row] for row in cell.captions],
        "sha256": [hashlib.sha256(encoded.keys[medium].encode()).hexdigest() for medium in cell.media],
        "image_embedding": column(encoded.visual[cell.media]),
        "text_embedding": column(encoded.text[cell.captions]),
    }
    pq.write_table(pa.table(columns), folder / "pairs.parquet")
    options = CorpusOptions(visual_column="image_embedding", text_column="text_embedding")
    return AuditConfig(
        str(folder / "pairs.parquet"), str(folder / "audit"), options=options, logit_scale=scale, quiet=True
    )


# -- Flickr8k ----------------------------------------------------------------------------------------------------------


def load_flickr8k(kind: str, part: Part, shared: Path) -> Pool:
    model, folder = f"local-dir:{shared / 'models/flickr8k-lite'}", shared / "data/flickr8k"
    shards = "00000" if part == "tune" else "00001"
    encoded, scale = encode_tars(model, f"{folder}/train-{shards}.tar")
    test, _ = encode_tars(model, f"{folder}/val-00000.tar")
    encoded, test = reduce_features(encoded, test)
    photos = Photos(encoded.keys, encoded.captions, encoded.visual, encoded.text, encoded.owners, scale)
    draw = Draw.of(photos)

    def plant(rate: float, seed: int) -> Cell:
        return plant_captions(draw, "random" if kind == "swapped" else "image", rate, seed)

    def write(cell: Cell, folder: Path) -> AuditConfig:
        return write_vectors(encoded, scale, cell, folder)

    return Pool(kind, encoded, test.take_media(take_half(len(test.keys), part)), scale, plant, write)


def reduce_features(encoded: Encoded, test: Encoded) -> tuple[Encoded, Encoded]:
    """Project visual features onto the principal directions of the pool's media: training is five times as fast."""
    mean = encoded.visual_features.mean(axis=0)
    directions = np.linalg.svd(encoded.visual_features - mean, full_matrices=False)[2][:WIDTH].T
    first, second = ((part.visual_features - mean) @ directions for part in (encoded, test))
    return replace(encoded, visual_features=first), replace(test, visual_features=second)


def plant_captions(draw: Draw, kind: str, rate: float, seed: int) -> Cell:
    """Replace a share of the captions by captions of other photos (tests/bench/noise.py)."""
    generator, count = np.random.default_rng(seed), len(draw.photos.captions)
    captions, planted = np.arange(count), np.zeros(count, bool)
    for row in generator.permutation(count)[: round(rate * count)]:
        other = draw.other(kind, int(row), generator)
        if other is not None:
            captions[row], planted[row] = other, True
    return Cell(draw.photos.media, captions, planted)


# -- drawings ----------------------------------------------------------------------------------------------------------


def load_drawing_pool(part: Part, shared: Path) -> Pool:
    """The drawings of tests/bench/found_corpora.py; the features are the embeddings themselves."""
    drawings, texts = load_drawings(shared), dict(read_captions())
    captions = [texts[key] for key in drawings.keys]
    owners = np.repeat(np.arange(len(captions)), [len(lines) for lines in captions])
    lines = [line for some in captions for line in some]
    cached = CACHE / f"drawings-captions-{len(lines)}.npy"
    if not cached.exists():
        np.save(cached, encoder(shared)(lines))
    text = np.load(cached)
    encoded = Encoded(lines, owners, drawings.keys, drawings.visual, text, drawings.visual, text)
    named, held_out = hold_out_topics(encoded)
    test = encoded.take_media(np.flatnonzero(named & held_out)[take_half(int((named & held_out).sum()), part)])
    rows = np.flatnonzero(~held_out[owners])

    def write(cell: Cell, folder: Path) -> AuditConfig:
        return write_vectors(encoded, drawings.scale, cell, folder)

    cell = Cell(owners[rows], rows, np.zeros(len(rows), bool))
    return Pool("drawings", encoded, test, drawings.scale, lambda rate, seed: cell, write)


def hold_out_topics(encoded: Encoded) -> tuple[Bools, Bools]:
    """Drawings with a caption that no other has, and whole folders, at random, that hold HELD_OUT of them."""
    topics, uses = np.array([key.rpartition("__")[0] for key in encoded.keys]), Counter(encoded.captions)
    named, held_out = np.zeros(len(topics), bool), np.zeros(len(topics), bool)
    named[[owner for owner, text in zip(encoded.owners, encoded.captions, strict=True) if uses[text] == 1]] = True
    for topic in np.random.default_rng(0).permutation(np.unique(topics)):
        if (named & (held_out | (topics == topic))).sum() <= HELD_OUT:
            held_out |= topics == topic
    return named, held_out


def read_captions() -> Iterator[tuple[str, list[str]]]:
    """The key of each drawing with its title, description and keywords, those that it has."""
    for svg in sorted((DRAWINGS / "svg").rglob("*.svg")):
        lines = dict.fromkeys(filter(None, read_metadata(svg.read_text("utf-8", "replace"))))
        yield drawing_key(svg.relative_to(DRAWINGS / "svg")), list(lines)


def read_metadata(svg: str) -> Iterator[str]:
    for tag in ("dc:title", "dc:description"):
        match = re.search(rf"<{tag}[^>]*>(.*?)</{tag}>", svg, re.DOTALL)
        yield clean_text(match.group(1)) if match else ""
    yield ", ".join(filter(None, map(clean_text, re.findall(r"<rdf:li[^>]*>(.*?)</rdf:li>", svg, re.DOTALL))))


def clean_text(text: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", text)).split())


# -- generated scenes --------------------------------------------------------------------------------------------------


def plan_scenes() -> tuple[list[PlannedSample], dict[str, dict[int, int]]]:
    """Clean samples, then damaged copies of some; for each kind of damage, the copy of a clean sample."""
    samples = [plan_image(row, 1) for row in range(PICTURES)] + [plan_clip(row, 1) for row in range(CLIPS)]
    samples = [replace(sample, captions=sample.captions[:1], defects=(None,)) for sample in samples]
    twins: dict[str, dict[int, int]] = {}
    for defect, first in (("blurred", 0), ("near_blank", TWINS), ("multi_scene", PICTURES)):
        twins[defect] = {row: len(samples) + row - first for row in range(first, first + TWINS)}
        samples += [add_defect(samples[row], defect, Random(row)) for row in twins[defect]]
    return samples, twins


def load_demo(part: Part) -> Pool:
    home, (samples, twins) = CACHE / "filter-demo", plan_scenes()
    config = DemoConfig(home, size=120, train=TRAIN, quiet=True)
    corpus = write_corpus(home, CorpusConfig(120, train=TRAIN, val=VAL))
    model = home / "model" / "best"
    if not model.exists():
        train_demo_model(config, corpus)
    path = home / "pool" / "00000.tar"
    if not path.exists():
        write_shard(path, render_pool(samples))
    encoded, scale = encode_tars(str(model), str(path))
    test, _ = encode_tars(str(model), str(corpus / "val"))
    members = read_members(path)

    def plant(rate: float, seed: int) -> Cell:
        return plant_defects(encoded, twins, rate, seed)

    def write(cell: Cell, folder: Path) -> AuditConfig:
        pairs = enumerate(zip(cell.media, cell.captions, strict=True))
        write_shard(
            folder / "corpus/00000.tar",
            ((f"{row:06d}", {**members[m], "txt": encoded.captions[c].encode()}) for row, (m, c) in pairs),
        )
        return AuditConfig(str(folder / "corpus"), str(folder / "audit"), str(model), quiet=True)

    return Pool("demo", encoded, test.take_media(take_half(len(test.keys), part)), scale, plant, write)


def render_pool(samples: Iterable[PlannedSample]) -> Iterator[tuple[str, dict[str, bytes]]]:
    """The files of all samples; the first one has vague captions besides its own, for `plant_defects`."""
    random = Random(0)
    for row, sample in enumerate(samples):
        members = render_sample(sample)
        if row == 0:
            members["txt"] += "".join(f"{write_vague_caption(random)}\n" for _ in range(VAGUE)).encode()
        yield f"{row:06d}", members


def read_members(path: Path) -> list[dict[str, Any]]:
    """The medium of each sample by its extension."""
    with tarfile.open(path) as tar:
        files = [(member.name, tar.extractfile(member)) for member in tar]
        return [
            {name.rpartition(".")[2]: file.read()}
            for name, file in sorted(files, key=lambda entry: entry[0])
            if file is not None and not name.endswith(".txt")
        ]


def plant_defects(encoded: Encoded, twins: dict[str, dict[int, int]], rate: float, seed: int) -> Cell:
    """Replace a share of the clean pairs: by damaged copies of the medium, vague captions, or each other's captions."""
    generator, count = np.random.default_rng(seed), PICTURES + CLIPS
    own = np.searchsorted(encoded.owners, np.arange(count))  # the first caption of each medium
    media, captions, free = np.arange(count), own.copy(), list(generator.permutation(count))
    for defect, copies in twins.items():
        for row in [row for row in free if row in copies][: round(SHARES[defect] * rate * count)]:
            media[row] = copies[int(row)]
            free.remove(row)
    cut, end = (round(SHARES[name] * rate * count) for name in ("vague", "swapped"))
    captions[free[:cut]] = 1 + generator.integers(0, VAGUE, cut)
    for kind in (np.arange(count) < PICTURES, np.arange(count) >= PICTURES):  # among samples of one kind
        rows = [row for row in free[cut : cut + end] if kind[row]]
        captions[rows] = np.roll(own[rows], 1)
    return Cell(media, captions, (media != np.arange(count)) | (captions != own))
