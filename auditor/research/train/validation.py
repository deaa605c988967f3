"""Validation while training: encode a held-out corpus, each process its share, and measure recall both ways."""

from collections.abc import Sequence

import numpy as np
import torch

from auditor.errors import AuditorError
from auditor.research.retrieval.recall import EmbeddingSet, RetrievalResult, recall_from_embeddings
from auditor.research.train.training_loader import MediaLoader
from auditor.vectors import concatenate, from_frames
from model.backbone import evaluating
from model.training.objective import Learner
from model.training.trainable import embed_frames, tokenize
from model.training.training_processes import ProcessGroup

TEXT_BATCH = 256


class ValidationError(AuditorError):
    """A validation corpus of which nothing can be measured."""


def validate(learner: Learner, loader: MediaLoader, tokens: int, processes: ProcessGroup) -> RetrievalResult:
    """Recall over the media of all processes; every process gets the result."""
    parts = [part for part in processes.share(encode_share(learner, loader, tokens)) if part is not None]
    if not parts:
        raise ValidationError("no medium of the validation corpus could be decoded")
    return recall_from_embeddings(joined(parts))


def joined(parts: Sequence[EmbeddingSet]) -> EmbeddingSet:
    return EmbeddingSet(
        concatenate([part.media for part in parts]),
        np.concatenate([part.text for part in parts]),
        np.concatenate([part.visual_groups for part in parts]),
        np.concatenate([part.text_groups for part in parts]),
    )


def encode_share(learner: Learner, loader: MediaLoader, tokens: int) -> EmbeddingSet | None:
    """What this process has of the validation corpus; None where it has nothing."""
    made: list[EmbeddingSet] = []
    with evaluating(learner.backbone.model), learner.autocast():
        for batch in loader:
            captions = [caption for several in batch.captions for caption in several]
            owners = [n for n, several in zip(batch.numbers, batch.captions, strict=True) for _ in several]
            text = [
                learner.backbone.embed_tokens(tokenize(learner.backbone, captions[i : i + TEXT_BATCH], tokens)).cpu()
                for i in range(0, len(captions), TEXT_BATCH)
            ]
            frames = embed_frames(learner.backbone, batch.pixels, batch.mask).cpu()[batch.mask].numpy()
            counts = batch.mask.sum(dim=1).numpy()
            media = from_frames(frames, counts, keep=bool((counts > 1).any()))
            made.append(EmbeddingSet(media, torch.cat(text).numpy(), np.array(batch.numbers), np.array(owners)))
    return joined(made) if made else None
