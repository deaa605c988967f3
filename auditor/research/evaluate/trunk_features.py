"""Encodes shards for `auditor reproduce`: embeddings, and the features that the towers hand to their last projection.

Training projections and prototypes on these features is fine-tuning with frozen trunks. A tower that ends in a bare
matrix instead of a linear layer has no such features; its embeddings take their place. Encoded shards are cached as
.npz files, each named by the content of its shard.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import partial
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
        path = self.cache and self.cache / f"{shard.name}-{shard.fingerprint()[:16]}.npz"
        if path and path.exists():
            with np.load(path, allow_pickle=False) as stored:
                return FeatureShard(**stored)
        with shard.open() as opened:
            features = self._encode(opened)
        if path:
            with Folder(path.parent).writing(path.name) as draft, draft.open("wb") as file:
                np.savez(file, **{field.name: getattr(features, field.name) for field in fields(features)})
        return features

    def _encode(self, opened: OpenShard) -> FeatureShard:
        media: list[tuple[Sample, int, bool]] = []  # with the number of frames, and whether it is a video
        failed: list[str] = []
        batches = FrameBatches(self.backbone, BATCH, self.backbone.encode_images)
        with record_features(self.backbone) as (visual, text):
            for outcome in decode_each_span(opened, self.pool):
                sample, result = outcome.sample, outcome.medium
                if isinstance(result, Problem):
                    failed.append(f"{sample.key}: {result.message}")
                    continue
                media.append((sample, len(result.pixels), result.duration is not None))
                batches.add(result.pixels)
            frames = batches.finish()
            captions = [caption for sample, _, _ in media for caption in sample.captions]
            # Not sorted by length: the recorded features have to be in the order of the captions.
            texts = self.backbone.encode_texts(captions, by_length=False).cpu().numpy()
        return FeatureShard(
            keys=np.array([sample.key for sample, _, _ in media], dtype=np.str_),
            captions=np.array(captions, dtype=np.str_),
            owners=np.repeat(np.arange(len(media)), [len(sample.captions) for sample, _, _ in media]),
            counts=np.array([count for _, count, _ in media], dtype=np.int64),
            video=np.array([is_video for _, _, is_video in media], dtype=bool),
            frames=frames,
            text=texts,
            visual_features=concatenate_features(visual, frames),
            text_features=concatenate_features(text, texts),
            failed=np.array(failed, dtype=np.str_),
        )


@contextmanager
def record_features(backbone: Backbone) -> Iterator[tuple[list[Tensor], list[Tensor]]]:
    """Record the inputs of the last projection of the image tower and of the text tower, in the order of encoding."""
    recorded: tuple[list[Tensor], list[Tensor]] = [], []
    model = backbone.model
    layers = last_linear(model.visual, "head"), last_linear(find_causal_tower(model), "text_projection")

    def record(tower: int, _: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        recorded[tower].append(inputs[0].detach().float())

    hooks = [layer.register_forward_pre_hook(partial(record, i)) for i, layer in enumerate(layers) if layer]
    try:
        yield recorded
    finally:
        for hook in hooks:
            hook.remove()


def concatenate_features(parts: list[Tensor], embeddings: Array) -> Array:
    return torch.cat(parts).cpu().numpy() if parts else embeddings


def last_linear(tower: Any, name: str) -> nn.Linear | None:
    """The linear layer that ends a tower: its attribute `name`, or the last layer inside it."""
    layer = getattr(tower, name, None)
    if isinstance(layer, nn.Sequential) and len(layer):
        layer = layer[-1]
    return layer if isinstance(layer, nn.Linear) else None
