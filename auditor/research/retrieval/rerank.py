"""Re-ranking by uncertainty (equation 8): M'' = exp(-beta_v u_v) exp(-beta_t u_t) * M'.

The two betas are fitted on a validation split. The `Rerank` that `fit_beta(validation)` returns stores the keys of this
split and refuses a split that shares a medium with it. So betas cannot be fitted on the split that is reported.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from auditor.errors import AuditorError
from auditor.research.retrieval.analyses import ItemScores
from auditor.research.retrieval.recall import Array, EmbeddingSet, Recalls, collapse_captions, rank_block

BETAS = tuple(round(0.05 * step, 2) for step in range(41))  # 0 to 2; 0 does not change the ranking


class RerankError(AuditorError):
    """Data that cannot be re-ranked, or betas that would be evaluated on the data they were fitted on."""


@dataclass(frozen=True, eq=False)
class RetrievalSplit:
    """Similarities and uncertainties of one split, with the keys of its media."""

    keys: Sequence[str]  # (N,) keys of the media, unique over all splits of a dataset
    similarity: Array  # (N, M) media x captions
    u: ItemScores
    owners: Array  # (M,) row of the medium of each caption
    collapse_texts: bool = False  # count the captions of a medium as one, as the benchmark does (MSVD)

    def __post_init__(self) -> None:
        media, captions = self.similarity.shape
        if len(self.keys) != media or self.u.visual.shape != (media,):
            raise RerankError(f"{media} rows of similarities need {media} keys and {media} uncertainties of media")
        if self.u.text.shape != (captions,) or self.owners.shape != (captions,):
            raise RerankError(f"{captions} columns of similarities need {captions} uncertainties and media of captions")
        if len(set(self.keys)) != media:
            raise RerankError("keys of media must be unique")

    def reweight(self, beta_visual: float, beta_text: float) -> Array:
        """The similarities (N, M) after equation 8."""
        visual, text = compute_factors(self.u, beta_visual, beta_text)
        return np.asarray(self.similarity * visual[:, None] * text[None, :])

    def text_queries(self, scores: Array) -> float:
        """R@1 of captions that retrieve their medium."""
        return Recalls.of(rank_block(scores.T, self.owners, np.arange(len(self.keys)), 0.0)).r1

    def visual_queries(self, scores: Array) -> float:
        """R@1 of media that retrieve one of their captions."""
        gallery, groups = collapse_captions(scores, self.owners) if self.collapse_texts else (scores, self.owners)
        return Recalls.of(rank_block(gallery, np.arange(len(self.keys)), groups, 0.0)).r1


def compute_factors(u: ItemScores, beta_visual: float, beta_text: float) -> tuple[Array, Array]:
    return np.exp(-beta_visual * u.visual), np.exp(-beta_text * u.text)


@dataclass(frozen=True)
class Rerank:
    """Fitted betas, and the media they were fitted on. Made by `fit_beta` only."""

    beta_visual: float
    beta_text: float
    fitted_keys: frozenset[str] = field(repr=False)

    def apply(self, keys: Sequence[str], data: EmbeddingSet, u: ItemScores) -> EmbeddingSet:
        """Embeddings with the scores of equation 8, for a split that the betas were not fitted on."""
        if shared := self.fitted_keys.intersection(keys):
            raise RerankError(f"{len(shared)} media are in the validation and the test split, such as {min(shared)}")
        return data.reweight(*compute_factors(u, self.beta_visual, self.beta_text))


def fit_beta(validation: RetrievalSplit, betas: Sequence[float] = BETAS) -> Rerank:
    """The betas with the best R@1 on `validation`; of equally good ones the smallest.

    The factor of a query is the same for its whole gallery and cannot change its ranking. So beta_visual only matters
    to text-to-visual retrieval and beta_text to visual-to-text retrieval: two searches over one number each.
    """
    if not len(betas) or min(betas) < 0:
        raise RerankError("betas must be a non-empty list of numbers >= 0")
    visual = max(sorted(betas), key=lambda beta: validation.text_queries(validation.reweight(beta, 0.0)))
    text = max(sorted(betas), key=lambda beta: validation.visual_queries(validation.reweight(0.0, beta)))
    return Rerank(visual, text, frozenset(validation.keys))
