"""The rules of `auditor filter --recommended`, chosen by what they do for training (tests/bench/filter_effect.py)."""

import contextlib
from typing import Any

from auditor.keep.thresholds import ThresholdError
from auditor.keep.uncertainty_cuts import choose_uncertainty_cut
from auditor.query.database import AuditDatabase

MAX_P_MISMATCH = 0.5
LOSS = 0.05  # largest share of the captions that find their medium that the cut by uncertainty removes


def recommend_rules(database: AuditDatabase) -> dict[str, Any]:
    """Limits of p_mismatch and uncertainty_text; a row without a value stays."""
    rules: dict[str, Any] = {"max_p_mismatch": MAX_P_MISMATCH}
    with contextlib.suppress(ThresholdError):  # an older audit cannot choose the cut by uncertainty
        rules["max_uncertainty_text"] = float(choose_uncertainty_cut(database, "uncertainty_text", lose_at_most=LOSS))
    return rules
