"""Published scores of pairs, for comparison: negCLIPLoss. LEMoN is in tests/bench/mismatch_flickr8k.py."""

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp

from auditor.vectors import Floats

Doubles = npt.NDArray[np.float64]
BLOCK = 1024


def compute_neg_clip_loss(visual: Floats, text: Floats, scale: float) -> Doubles:
    """negCLIPLoss (Wang et al. 2024): the similarity less the mean of both normalizers, with all pairs as one batch.

    The published batch is 32,768 pairs; a high value is good.
    """
    own: Doubles = np.einsum("nd,nd->n", visual, text).astype(np.float64)
    for rows, columns in ((visual, text), (text, visual)):
        for start in range(0, len(rows), BLOCK):
            logits = scale * (rows[start : start + BLOCK] @ columns.T)
            own[start : start + BLOCK] -= logsumexp(logits, axis=1) / (2 * scale)
    return own
