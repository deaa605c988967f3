"""Re-ranking by uncertainty (equation 8): M'' = exp(-beta_v u_v) exp(-beta_t u_t) * M'.

The two betas are fitted on a validation split, one for each direction, and 0 (no re-ranking) is always a candidate. The
`Rerank` that `fit_beta(validation)` returns stores the keys of this split and refuses a split that shares a medium with
it. So betas cannot be fitted on the split that is reported.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from auditor.research.retrieval.analyses import ItemScores
from auditor.research.retrieval.recall import Array, EmbeddingSet, RetrievalError, collapse_captions, rank_block

BETAS = tuple(round(0.05 * step, 2) for step in range(41))  # 0 to 2; 0 does not change the ranking
STANDARD_ERRORS = 2.0  # of a gain; below, a third of all random uncertainties would get a beta above 0


@dataclass(frozen=True)
class Rerank:
    """Fitted betas, and the media they were fitted on. Made by `fit_beta` only."""

    beta_visual: float
    beta_text: float
    fitted_keys: frozenset[str] = field(repr=False)

    def apply(self, keys: Sequence[str], data: EmbeddingSet, u: ItemScores) -> EmbeddingSet:
        """Embeddings with the scores of equation 8, for a split that the betas were not fitted on."""
        if shared := self.fitted_keys.intersection(keys):
            raise RetrievalError(f"{len(shared)} media are in the validation and the test split, such as {min(shared)}")
        return data.reweight(np.exp(-self.beta_visual * u.visual), np.exp(-self.beta_text * u.text))


def fit_beta(
    keys: Sequence[str],  # (N,) of the media, unique over all splits of a dataset
    validation: EmbeddingSet,
    u: ItemScores,
    betas: Sequence[float] = BETAS,
    *,
    collapse_texts: bool = False,
) -> Rerank:
    """The betas with the best R@1 on `validation`, where it is never below that without re-ranking.

    The factor of a query is the same for its whole gallery and cannot change its ranking. So beta_visual only matters
    to text-to-visual retrieval and beta_text to visual-to-text retrieval: two searches over one number each.
    `collapse_texts` counts the captions of a medium as one, as the benchmark does (MSVD).
    """
    if not len(betas) or min(betas) < 0:
        raise RetrievalError("betas must be a non-empty list of numbers >= 0")
    scores, media, captions = validation.scores(), validation.visual_groups, validation.text_groups
    if (len(set(keys)), *u.visual.shape, *u.text.shape) != (len(media), *scores.shape):
        raise RetrievalError(
            f"{len(media)} media and {len(captions)} captions need unique keys and uncertainties of each"
        )

    def find_text_hits(beta: float) -> Array:
        return rank_block(scores.T * np.exp(-beta * u.visual), captions, media, 0.0).hit(1)

    def find_visual_hits(beta: float) -> Array:
        gallery, groups = scores * np.exp(-beta * u.text), captions
        if collapse_texts:
            gallery, groups = collapse_captions(gallery, groups)
        return rank_block(gallery, media, groups, 0.0).hit(1)

    return Rerank(choose_beta(betas, find_text_hits), choose_beta(betas, find_visual_hits), frozenset(keys))


def choose_beta(betas: Sequence[float], find_hits: Callable[[float], Array]) -> float:
    """The smallest of the betas with the most hits, or 0 if its gain may be chance (sign test over the queries)."""
    plain = find_hits(0.0)
    changes = {beta: np.nan_to_num(find_hits(beta) - plain) for beta in sorted(betas)}
    best = max(changes, key=lambda beta: float(changes[beta].sum()))
    gain, error = changes[best].sum(), np.sqrt(np.square(changes[best]).sum())
    return best if gain > STANDARD_ERRORS * error else 0.0
