"""Encodes shards for `auditor reproduce`: embeddings, and the features that the towers hand to their last projection.

An audit does not store these features, so `reproduce` encodes shards itself. Training projections and prototypes on the
features is fine-tuning with frozen trunks, at thousands of pairs a second. A tower that ends in a bare matrix instead
of a linear layer has no such features; its embeddings take their place. Encoded shards are cached as .npz files, each
named by the content of its shard.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from auditor.audit_folder.folder import Folder
from auditor.corpus.open_corpus import OpenShard, Shard
from auditor.corpus.sample import Problem, Sample
from auditor.research.evaluate.benchmark_splits import ShardEmbeddings
from auditor.research.retrieval.recall import Array
from auditor.sweep.shard_encoder import FrameBatches
from auditor.sweep.sweep import decode_each_span
from auditor.vectors import build_media_vectors
from auditor.workers.decoder_pool import DecoderPool
from model.backbone import Backbone
from model.text_tower import find_causal_tower

BATCH = 32
FRAMES = 12  # of a video


@dataclass(frozen=True, slots=True)
class FeatureShard:
    """Embeddings and features of a shard, as arrays only, so that NumPy can store it."""

    keys: Array  # (n,) str
    captions: Array  # (m,) str
    owners: Array  # (m,) index of each caption's medium
    counts: Array  # (n,) encoded frames of each medium
    video: Array  # (n,) bool
    frames: Array  # (sum of counts, D)
    text: Array  # (m, D)
    visual_features: Array  # (sum of counts, P)
    text_features: Array  # (m, Q)
    failed: Array  # (f,) str: key and reason for each medium that could not be encoded

    def to_embeddings(self) -> ShardEmbeddings:
        media = build_media_vectors(self.frames, self.counts, keep=bool(self.video.any()))
        return ShardEmbeddings(self.keys, self.captions, self.owners, media, self.text, list(map(str, self.failed)))


EncodeShards = Callable[[Sequence[Shard]], Iterator[FeatureShard]]


class FeatureEncoder:
    """A backbone with its decoder processes; encodes shards in float32."""

    def __init__(self, backbone: Backbone, frames: int = FRAMES, decoders: int = 2, cache: Path | None = None):
        self.backbone = backbone
        self.cache = cache and cache / f"{backbone.fingerprint[:16]}-{frames}-frames"
        self.pool = DecoderPool(backbone.pixels, frames=frames, workers=decoders)

    def __enter__(self) -> "FeatureEncoder":
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.close()

    def __call__(self, shards: Sequence[Shard]) -> Iterator[FeatureShard]:
        return map(self.encode, shards)

    def encode(self, shard: Shard) -> FeatureShard:
        """Encode a shard, or read it from the cache."""
        path = self.cache and self.cache / f"{shard.name}-{shard.fingerprint()[:16]}.npz"
        if path and path.exists():
            return load_shard(path)
        with shard.open() as opened:
            encoded_shard = self._encode(opened)
        if path:
            save_shard(path, encoded_shard)
        return encoded_shard

    def _encode(self, opened: OpenShard) -> FeatureShard:
        samples: list[Sample] = []
        failed: list[str] = []
        counts: list[int] = []
        video: list[bool] = []
        batches = FrameBatches(self.backbone, BATCH)
        with record_features(self.backbone) as (visual, text):
            for outcome in decode_each_span(opened, self.pool):
                sample, result = outcome.sample, outcome.medium
                if isinstance(result, Problem):
                    failed.append(f"{sample.key}: {result.message}")
                    continue
                samples.append(sample)
                counts.append(len(result.pixels))
                video.append(result.duration is not None)
                batches.add(result.pixels)
            frames = batches.finish()
            captions = [caption for sample in samples for caption in sample.captions]
            # Not sorted by length: the recorded features have to be in the order of the captions.
            texts = self.backbone.encode_texts(captions, by_length=False).cpu().numpy()
        return FeatureShard(
            keys=np.array([sample.key for sample in samples], dtype=np.str_),
            captions=np.array(captions, dtype=np.str_),
            owners=np.repeat(np.arange(len(samples)), [len(sample.captions) for sample in samples]),
            counts=np.array(counts, dtype=np.int64),
            video=np.array(video, dtype=bool),
            frames=frames,
            text=texts,
            visual_features=visual.concatenate(frames),
            text_features=text.concatenate(texts),
            failed=np.array(failed, dtype=np.str_),
        )


class FeatureRecorder:
    """A forward hook that records the inputs of a tower's last projection, in the order they were encoded."""

    def __init__(self) -> None:
        self.inputs: list[Tensor] = []

    def __call__(self, _: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self.inputs.append(inputs[0].detach().float())

    def concatenate(self, embeddings: Array) -> Array:
        """All recorded features, or the embeddings if there are none."""
        return torch.cat(self.inputs).cpu().numpy() if self.inputs else embeddings


@contextmanager
def record_features(backbone: Backbone) -> Iterator[tuple[FeatureRecorder, FeatureRecorder]]:
    """Record the features of the image tower and of the text tower inside the context."""
    recorders = FeatureRecorder(), FeatureRecorder()
    layers = (
        last_linear(backbone.model.visual, "head"),
        last_linear(find_causal_tower(backbone.model), "text_projection"),
    )
    handles = [
        layer.register_forward_pre_hook(recorder)
        for layer, recorder in zip(layers, recorders, strict=True)
        if layer is not None
    ]
    try:
        yield recorders
    finally:
        for handle in handles:
            handle.remove()


def last_linear(tower: Any, name: str) -> nn.Linear | None:
    """The linear layer that ends a tower: its attribute `name`, or the last layer inside it."""
    layer = getattr(tower, name, None)
    if isinstance(layer, nn.Linear):
        return layer
    if isinstance(layer, nn.Sequential) and len(layer) and isinstance(layer[-1], nn.Linear):
        return layer[-1]
    return None


def save_shard(path: Path, shard: FeatureShard) -> None:
    with Folder(path.parent).writing(path.name) as partial, partial.open("wb") as file:
        np.savez(file, **{field.name: getattr(shard, field.name) for field in fields(shard)})


def load_shard(path: Path) -> FeatureShard:
    with np.load(path, allow_pickle=False) as stored:
        return FeatureShard(**{field.name: stored[field.name] for field in fields(FeatureShard)})
