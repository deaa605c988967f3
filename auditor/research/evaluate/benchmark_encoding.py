"""Encodes the shards of a benchmark: decoder pool, towers, float32 all the way (an audit keeps float16).

One shard gives one `EncodedShard`, in this process or in a Ray worker alike; a folder of finished ones is a cache, each
named by the content of its shard and the model, written whole and then renamed.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from auditor.audit_folder.folder import Folder
from auditor.corpus.open_corpus import CorpusError, OpenShard, Shard, open_corpus
from auditor.corpus.sample import Problem, Sample
from auditor.errors import AuditorError
from auditor.research.evaluate.trunk_features import Caught, catching
from auditor.sweep.frame_batches import FrameBatches
from auditor.sweep.sweep import decode_shard
from auditor.workers.decoder_pool import DecoderPool
from model.backbone import Backbone

BATCH = 32
Array = npt.NDArray[Any]


class EvaluationError(AuditorError):
    """A benchmark that cannot be evaluated as asked."""


@dataclass(frozen=True, slots=True)
class EncodedShard:
    """Embeddings of a shard and the features before the last projection: arrays only, so that it travels well."""

    keys: Array  # (n,) str
    captions: Array  # (m,) str
    owners: Array  # (m,) position of each caption's medium
    counts: Array  # (n,) encoded frames of each medium
    video: Array  # (n,) bool
    frames: Array  # (sum of counts, D)
    text: Array  # (m, D)
    visual_features: Array  # (sum of counts, P)
    text_features: Array  # (m, Q)
    failed: Array  # (f,) str: key and reason of what could not be encoded


Encode = Callable[[Sequence[Shard]], Iterator[EncodedShard]]


def split_shards(data: str, split: str) -> list[Shard]:
    """The shards of a split: `DATA/test-*.tar` as `auditor pack` writes them, or `DATA/test/*.tar` (CLIP_benchmark)."""
    root = data.rstrip("/")
    tried = [f"{root}/{split}-*.tar", f"{root}/{split}/*.tar", f"{root}/{split}.tar"]
    for spec in tried:
        try:
            return list(open_corpus(spec).shards)
        except CorpusError:
            continue
    raise EvaluationError(f"{data} has no shards of the split {split!r} (looked for {', '.join(tried)})")


class Encoder:
    """A backbone with its decoder processes."""

    def __init__(self, backbone: Backbone, frames: int = 12, decoders: int = 2, cache: Path | None = None):
        self.backbone = backbone
        self.frames = frames
        self.cache = cache and cache / f"{backbone.fingerprint[:16]}-{frames}-frames"
        self.pool = DecoderPool(backbone.pixels, frames=frames, workers=decoders)

    def __enter__(self) -> "Encoder":
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.close()

    def __call__(self, shards: Sequence[Shard]) -> Iterator[EncodedShard]:
        for shard in shards:
            yield self.encode(shard)

    def encode(self, shard: Shard) -> EncodedShard:
        """From the cache where it is there, else by decoding and encoding."""
        path = self.cache and self.cache / f"{shard.name}-{shard.fingerprint()[:16]}.npz"
        if path and path.exists():
            return load(path)
        with shard.open() as opened:
            encoded = self._encode(opened)
        if path:
            save(path, encoded)
        return encoded

    def _encode(self, opened: OpenShard) -> EncodedShard:
        kept: list[Sample] = []
        failed: list[str] = []
        counts: list[int] = []
        video: list[bool] = []
        batches = FrameBatches(self.backbone, BATCH)
        with catching(self.backbone) as (visual, text):
            for outcome in decode_shard(opened, self.pool):
                sample, result = outcome.sample, outcome.result
                if isinstance(result, Problem):
                    failed.append(f"{sample.key}: {result.message}")
                    continue
                kept.append(sample)
                counts.append(len(result.pixels))
                video.append(result.duration is not None)
                batches.add(result.pixels)
            frames = batches.finish()
            captions = [caption for sample in kept for caption in sample.captions]
            texts = self.backbone.encode_texts(captions, by_length=False).cpu().numpy()  # as the features are caught
        return EncodedShard(
            keys=np.array([sample.key for sample in kept], dtype=np.str_),
            captions=np.array(captions, dtype=np.str_),
            owners=np.repeat(np.arange(len(kept)), [len(sample.captions) for sample in kept]),
            counts=np.array(counts, dtype=np.int64),
            video=np.array(video, dtype=bool),
            frames=frames,
            text=texts,
            visual_features=_features(visual, frames),
            text_features=_features(text, texts),
            failed=np.array(failed, dtype=np.str_),
        )


def _features(caught: Caught | None, embeddings: Array) -> Array:
    if caught is None or not caught.inputs:
        return embeddings
    return torch.cat(caught.inputs).cpu().numpy()


def save(path: Path, encoded: EncodedShard) -> None:
    with Folder(path.parent).writing(path.name) as partial, partial.open("wb") as file:
        np.savez(file, **{field.name: getattr(encoded, field.name) for field in fields(encoded)})


def load(path: Path) -> EncodedShard:
    with np.load(path, allow_pickle=False) as stored:
        return EncodedShard(**{field.name: stored[field.name] for field in fields(EncodedShard)})
