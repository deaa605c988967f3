"""Re-ranking by uncertainty (equation 8): M'' = exp(-beta_v u_v) exp(-beta_t u_t) * M'.

The two betas are fitted on a validation split and belong to it: `fit_beta(validation)` returns a `Rerank` that
remembers what it has seen, and `Rerank.apply(split)` refuses a split that shares a medium, or its numbers, with it.
There is no way to search beta on the split that is reported.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from auditor.errors import AuditorError
from auditor.research.retrieval.recall import Recalls, collapse, rank_block

Floats = npt.NDArray[np.floating[Any]]

BETAS = tuple(round(0.05 * step, 2) for step in range(41))  # 0 to 2; 0 leaves the ranking alone


class RerankError(AuditorError):
    """Data that cannot be re-ranked, or a beta that would be judged on what it was fitted on."""


@dataclass(frozen=True, eq=False)
class RetrievalSplit:
    """Similarities and uncertainties of one split, and whose they are."""

    keys: Sequence[str]  # (N,) names of the media, unique over all splits of a data set
    similarity: Floats  # (N, M) media x captions
    uncertainty_visual: Floats  # (N,)
    uncertainty_text: Floats  # (M,)
    text_to_visual: npt.NDArray[np.integer[Any]]  # (M,) row of the medium of each caption
    collapse_texts: bool = False  # a medium's captions count as one, as the benchmark reports them (MSVD)

    def __post_init__(self) -> None:
        media, captions = self.similarity.shape
        if len(self.keys) != media or self.uncertainty_visual.shape != (media,):
            raise RerankError(f"{media} rows of similarities need as many keys and uncertainties of media")
        if self.uncertainty_text.shape != (captions,) or self.text_to_visual.shape != (captions,):
            raise RerankError(f"{captions} columns of similarities need as many uncertainties and owners of captions")
        if len(set(self.keys)) != media:
            raise RerankError("keys of media must be unique")

    @cached_property
    def fingerprint(self) -> str:
        """Of the numbers in any order: the same split under other names is still the same split."""
        digest = hashlib.blake2b(digest_size=16)
        for values in (self.uncertainty_visual, self.uncertainty_text, self.similarity.ravel()):
            digest.update(np.sort(np.asarray(values, dtype=np.float64)).tobytes())
        return digest.hexdigest()

    def text_queries(self, scores: Floats) -> float:
        """R@1 of captions looking for their medium."""
        return Recalls.of(rank_block(scores.T, self.text_to_visual, np.arange(len(self.keys)), 0.0)).r1

    def visual_queries(self, scores: Floats) -> float:
        """R@1 of media looking for one of their captions."""
        owners = self.text_to_visual
        gallery, groups = collapse(scores, owners) if self.collapse_texts else (scores, owners)
        return Recalls.of(rank_block(gallery, np.arange(len(self.keys)), groups, 0.0)).r1


@dataclass(frozen=True)
class Rerank:
    """Fitted betas. Made by `fit_beta` only, because it has to know what it was fitted on."""

    beta_visual: float
    beta_text: float
    fitted_on: str
    fitted_keys: frozenset[str] = field(repr=False)

    def apply(self, split: RetrievalSplit) -> Floats:
        """M'' (N, M) of a split that took no part in fitting."""
        shared = self.fitted_keys.intersection(split.keys)
        if shared:
            raise RerankError(
                f"beta was fitted on {len(shared)} of these media (such as {min(shared)}): "
                "fit it on a validation split that shares no medium with the reported one"
            )
        if split.fingerprint == self.fitted_on:
            raise RerankError("beta was fitted on these very numbers: fit it on a validation split")
        return reweighted(split, self.beta_visual, self.beta_text)


def reweighted(split: RetrievalSplit, beta_visual: float, beta_text: float) -> Floats:
    """Equation 8 for given betas."""
    visual = np.exp(-beta_visual * split.uncertainty_visual)[:, None]
    text = np.exp(-beta_text * split.uncertainty_text)[None, :]
    return np.asarray(split.similarity * visual * text)


def fit_beta(validation: RetrievalSplit, betas: Sequence[float] = BETAS) -> Rerank:
    """The betas with the best R@1 on `validation`; the smallest of equals.

    The factor of a query is the same for its whole gallery and cannot change its ranking, so that beta_visual only
    matters to captions looking for media and beta_text to the other way: two searches over a line.
    """
    if not len(betas) or min(betas) < 0:
        raise RerankError("betas must be a list of numbers that are not negative")
    ordered = sorted(betas)
    visual = [validation.text_queries(reweighted(validation, beta, 0.0)) for beta in ordered]
    text = [validation.visual_queries(reweighted(validation, 0.0, beta)) for beta in ordered]
    best_visual, best_text = ordered[int(np.argmax(visual))], ordered[int(np.argmax(text))]
    return Rerank(best_visual, best_text, validation.fingerprint, frozenset(validation.keys))
