"""Re-ranking by uncertainty (equation 8): M'' = exp(-beta_v u_v) exp(-beta_t u_t) * M'.

The two betas are fitted on a validation split, one for each direction, and 0 (no re-ranking) is always a candidate. The
`Rerank` that `fit_beta(validation)` returns stores the keys of this split and refuses a split that shares a medium with
it. So betas cannot be fitted on the split that is reported.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from auditor.errors import AuditorError
from auditor.research.retrieval.analyses import ItemScores
from auditor.research.retrieval.recall import Array, EmbeddingSet, collapse_captions, rank_block

BETAS = tuple(round(0.05 * step, 2) for step in range(41))  # 0 to 2; 0 does not change the ranking
STANDARD_ERRORS = 2.0  # of a gain; below, a third of all random uncertainties would get a beta above 0


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

    def text_queries(self, scores: Array) -> Array:  # (M,)
        """Whether each caption retrieves its medium first; NaN without a medium."""
        return rank_block(scores.T, self.owners, np.arange(len(self.keys)), 0.0).hit(1)

    def visual_queries(self, scores: Array) -> Array:  # (N,)
        """Whether each medium retrieves one of its captions first; NaN without captions."""
        gallery, groups = collapse_captions(scores, self.owners) if self.collapse_texts else (scores, self.owners)
        return rank_block(gallery, np.arange(len(self.keys)), groups, 0.0).hit(1)


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
    """The betas with the best R@1 on `validation`, where it is never below that without re-ranking.

    The factor of a query is the same for its whole gallery and cannot change its ranking. So beta_visual only matters
    to text-to-visual retrieval and beta_text to visual-to-text retrieval: two searches over one number each.
    """
    if not len(betas) or min(betas) < 0:
        raise RerankError("betas must be a non-empty list of numbers >= 0")
    visual = choose_beta(betas, lambda beta: validation.text_queries(validation.reweight(beta, 0.0)))
    text = choose_beta(betas, lambda beta: validation.visual_queries(validation.reweight(0.0, beta)))
    return Rerank(visual, text, frozenset(validation.keys))


def choose_beta(betas: Sequence[float], find_hits: Callable[[float], Array]) -> float:
    """The smallest of the betas with the most hits, or 0 if its gain may be chance (sign test over the queries)."""
    plain = find_hits(0.0)
    changes = {beta: np.nan_to_num(find_hits(beta) - plain) for beta in sorted(betas)}
    best = max(changes, key=lambda beta: float(changes[beta].sum()))
    gain, error = changes[best].sum(), np.sqrt(np.square(changes[best]).sum())
    return best if gain > STANDARD_ERRORS * error else 0.0
