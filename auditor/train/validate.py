"""Validation while training: encode a held-out corpus, each process its share, and measure recall both ways."""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from auditor.train.loader import MediaLoader
from model.backbone import evaluating
from model.errors import ModelError
from model.retrieval import EmbeddingSet, RetrievalResult, recall_from_embeddings
from model.similarity import pool_frames
from model.training.objective import Learner
from model.training.processes import World
from model.training.trainable import embed_frames, tokenize

Part = tuple[Any, Any, Any, list[int], list[int]]  # frames (N, J, D), mask (N, J), text (M, D), groups of both


class ValidationError(ModelError):
    """A validation corpus of which nothing can be measured."""


def validate(learner: Learner, loader: MediaLoader, tokens: int, world: World) -> RetrievalResult:
    """Recall over the media of all processes; every process gets the result."""
    parts: list[Part] = [part for part in world.share(encode_share(learner, loader, tokens)) if part is not None]
    if not parts:
        raise ValidationError("no medium of the validation corpus could be decoded")
    longest = max(frames.shape[1] for frames, *_ in parts)
    frames = torch.cat([F.pad(part[0], (0, 0, 0, longest - part[0].shape[1])) for part in parts])
    mask = torch.cat([F.pad(part[1], (0, longest - part[1].shape[1])) for part in parts])
    videos = longest > 1
    return recall_from_embeddings(
        EmbeddingSet(
            visual=pool_frames(frames, mask).numpy(),
            text=torch.cat([part[2] for part in parts]).numpy(),
            visual_groups=np.array([number for part in parts for number in part[3]]),
            text_groups=np.array([number for part in parts for number in part[4]]),
            frames=frames.numpy() if videos else None,
            mask=mask.numpy() if videos else None,
        )
    )


def encode_share(learner: Learner, loader: MediaLoader, tokens: int) -> Part | None:
    """What this process has of the validation corpus, on the CPU; None where it has nothing."""
    made: list[Part] = []
    with evaluating(learner.backbone.model), learner.autocast():
        for batch in loader:
            captions = [caption for several in batch.captions for caption in several]
            owners = [n for n, several in zip(batch.numbers, batch.captions, strict=True) for _ in several]
            text = [
                learner.backbone.embed_tokens(tokenize(learner.backbone, captions[i : i + 256], tokens)).cpu()
                for i in range(0, len(captions), 256)
            ]
            frames = embed_frames(learner.backbone, batch.pixels, batch.mask).cpu()
            made.append((frames, batch.mask, torch.cat(text), batch.numbers, owners))
    if not made:
        return None
    longest = max(frames.shape[1] for frames, *_ in made)
    return (
        torch.cat([F.pad(m[0], (0, 0, 0, longest - m[0].shape[1])) for m in made]),
        torch.cat([F.pad(m[1], (0, longest - m[1].shape[1])) for m in made]),
        torch.cat([m[2] for m in made]),
        [number for m in made for number in m[3]],
        [number for m in made for number in m[4]],
    )
