"""Recall from a matrix of similarities: the direct way that the block-by-block one is tested against."""

import numpy as np

from auditor.research.retrieval.recall import (
    Array,
    Recalls,
    RetrievalError,
    RetrievalResult,
    collapse_captions,
    rank_block,
)


def recall_from_similarity(
    similarity: Array,  # (N, M) media x captions
    text_to_visual: Array | None = None,  # (M,) row of each caption's medium; None: caption i belongs to medium i
    *,
    collapse_texts: bool = False,
    tolerance: float = 0.0,
) -> RetrievalResult:
    """Recall in both directions from a complete matrix of scores."""
    scores = np.asarray(similarity)
    media, captions = scores.shape
    if text_to_visual is None and media != captions:
        raise RetrievalError(f"{captions} captions for {media} media: say which caption belongs to which medium")
    text_groups = np.arange(captions) if text_to_visual is None else np.asarray(text_to_visual)
    if len(text_groups) != captions:
        raise RetrievalError(f"{len(text_groups)} owners named for {captions} captions")
    gallery, gallery_groups = collapse_captions(scores, text_groups) if collapse_texts else (scores, text_groups)
    visual = rank_block(gallery, np.arange(media), gallery_groups, tolerance)
    text = rank_block(scores.T, text_groups, np.arange(media), tolerance)
    return RetrievalResult(Recalls.of(visual), Recalls.of(text))
