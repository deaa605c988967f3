"""Re-ranking by uncertainty (equation 8): M'' = exp(-beta_v u_v) exp(-beta_t u_t) * M'.

The two betas are fitted on a validation split. `fit_beta(validation)` returns a `Rerank` that stores the keys and the
fingerprint of this split, and `Rerank.apply(split)` refuses a split that shares a medium or all its numbers with it. So
betas cannot be fitted on the split that is reported.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from auditor.errors import AuditorError
from auditor.research.retrieval.recall import Recalls, collapse_captions, rank_block

Floats = npt.NDArray[np.floating[Any]]

BETAS = tuple(round(0.05 * step, 2) for step in range(41))  # 0 to 2; 0 does not change the ranking


class RerankError(AuditorError):
    """Data that cannot be re-ranked, or betas that would be evaluated on the data they were fitted on."""


@dataclass(frozen=True, eq=False)
class RetrievalSplit:
    """Similarities and uncertainties of one split, with the keys of its media."""

    keys: Sequence[str]  # (N,) keys of the media, unique over all splits of a dataset
    similarity: Floats  # (N, M) media x captions
    uncertainty_visual: Floats  # (N,)
    uncertainty_text: Floats  # (M,)
    text_to_visual: npt.NDArray[np.integer[Any]]  # (M,) row of the medium of each caption
    collapse_texts: bool = False  # count the captions of a medium as one, as the benchmark does (MSVD)

    def __post_init__(self) -> None:
        media, captions = self.similarity.shape
        if len(self.keys) != media or self.uncertainty_visual.shape != (media,):
            raise RerankError(f"{media} rows of similarities need {media} keys and {media} uncertainties of media")
        if self.uncertainty_text.shape != (captions,) or self.text_to_visual.shape != (captions,):
            raise RerankError(f"{captions} columns of similarities need {captions} uncertainties and media of captions")
        if len(set(self.keys)) != media:
            raise RerankError("keys of media must be unique")

    @cached_property
    def fingerprint(self) -> str:
        """Fingerprint of the numbers in any order: the same for a split with other keys."""
        digest = hashlib.blake2b(digest_size=16)
        for values in (self.uncertainty_visual, self.uncertainty_text, self.similarity.ravel()):
            digest.update(np.sort(np.asarray(values, dtype=np.float64)).tobytes())
        return digest.hexdigest()

    def text_queries(self, scores: Floats) -> float:
        """R@1 of captions that retrieve their medium."""
        return Recalls.of(rank_block(scores.T, self.text_to_visual, np.arange(len(self.keys)), 0.0)).r1

    def visual_queries(self, scores: Floats) -> float:
        """R@1 of media that retrieve one of their captions."""
        owners = self.text_to_visual
        gallery, groups = collapse_captions(scores, owners) if self.collapse_texts else (scores, owners)
        return Recalls.of(rank_block(gallery, np.arange(len(self.keys)), groups, 0.0)).r1


@dataclass(frozen=True)
class Rerank:
    """Fitted betas, and the split they were fitted on. Made by `fit_beta` only."""

    beta_visual: float
    beta_text: float
    fitted_on: str
    fitted_keys: frozenset[str] = field(repr=False)

    def apply(self, split: RetrievalSplit) -> Floats:
        """M'' (N, M) of a split that the betas were not fitted on."""
        shared = self.fitted_keys.intersection(split.keys)
        if shared:
            raise RerankError(
                f"beta was fitted on {len(shared)} of these media (such as {min(shared)}): "
                "fit it on a validation split that shares no medium with the reported one"
            )
        if split.fingerprint == self.fitted_on:
            raise RerankError("beta was fitted on exactly these numbers: fit it on a validation split")
        return reweight_similarity(split, self.beta_visual, self.beta_text)


def reweight_similarity(split: RetrievalSplit, beta_visual: float, beta_text: float) -> Floats:
    """The similarities after equation 8 with these betas."""
    visual = np.exp(-beta_visual * split.uncertainty_visual)[:, None]
    text = np.exp(-beta_text * split.uncertainty_text)[None, :]
    return np.asarray(split.similarity * visual * text)


def fit_beta(validation: RetrievalSplit, betas: Sequence[float] = BETAS) -> Rerank:
    """The betas with the best R@1 on `validation`; of equally good ones the smallest.

    The factor of a query is the same for its whole gallery and cannot change its ranking. So beta_visual only matters
    to text-to-visual retrieval and beta_text to visual-to-text retrieval: two searches over one number each.
    """
    if not len(betas) or min(betas) < 0:
        raise RerankError("betas must be a non-empty list of numbers >= 0")
    ordered = sorted(betas)
    visual = [validation.text_queries(reweight_similarity(validation, beta, 0.0)) for beta in ordered]
    text = [validation.visual_queries(reweight_similarity(validation, 0.0, beta)) for beta in ordered]
    best_visual, best_text = ordered[int(np.argmax(visual))], ordered[int(np.argmax(text))]
    return Rerank(best_visual, best_text, validation.fingerprint, frozenset(validation.keys))
