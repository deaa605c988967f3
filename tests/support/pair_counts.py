"""Cut-off counts from the scores of pairs, without an audit."""

import numpy as np
import numpy.typing as npt

from auditor.keep.thresholds import STEPS, PairCounts, build_pair_counts
from auditor.score.statistics.mismatch import MismatchModel


def count_scores(score: npt.ArrayLike, model: MismatchModel) -> PairCounts:
    """Aggregate the scores of pairs of one kind, without an audit."""
    scores = np.asarray(score, np.float64)
    p = model.p(scores).astype(np.float64)
    step = np.floor(p * STEPS).astype(np.int64)
    return build_pair_counts([("image", None)] * len(scores), step, np.ones(len(scores)), p, scores, {"image": model})
