"""Ambiguity in words a person understands: when does a caption or a medium fit too much of the corpus?

`matches_*` is the effective number of corpus items that fit as well. Of the candidates (PAU's u, the mean similarity
h, this perplexity) it predicts retrieval errors best on real photos. None tells captions cut to their first noun
phrase from whole ones well: AUROC 0.48, 0.50 and 0.56 (tests/bench/ambiguity_flickr8k.py).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from auditor.measure.rivals import Measures
from auditor.vectors import Floats

MISMATCH = 0.5  # more likely mismatched than not
OUTLYING = 0.95  # of every twenty captions, the one that fits the most


def default_thresholds(measured: Mapping[str, Measures]) -> dict[str, Any]:
    """The thresholds of the flags, from measures of a random sample of each kind."""
    return {
        "mismatch": MISMATCH,
        "ambiguous_visual": by_kind({kind: found.matches_visual for kind, found in measured.items()}),
        "ambiguous_text": by_kind({kind: found.matches_text for kind, found in measured.items()}),
    }


def by_kind(matches: Mapping[str, Floats]) -> float | dict[str, float] | None:
    """The cut of each kind; a plain number where the corpus has only one."""
    cuts = {kind: float(np.quantile(values, OUTLYING)) for kind, values in matches.items() if len(values)}
    return next(iter(cuts.values()), None) if len(cuts) < 2 else cuts
