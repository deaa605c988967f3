"""The limits that `Audit.keep` takes by name, one for each column with a rule: for type checkers, editors.

Written by `python docs/generate.py` from the declarations beside it; a test compares the two.
"""

from typing import TypedDict

Limit = float | str  # 0.3, or '30%' of what is a share


class ColumnLimits(TypedDict, total=False):
    max_p_mismatch: Limit | None
    min_similarity: Limit | None
    max_ambiguity_visual: Limit | None
    max_ambiguity_text: Limit | None
    max_uncertainty_visual: Limit | None
    max_uncertainty_text: Limit | None
    min_words: Limit | None
    max_repeated_words: Limit | None
    max_non_letters: Limit | None
    max_black_share: Limit | None
    max_frozen_share: Limit | None
    min_sharpness: Limit | None
    max_dark_share: Limit | None
    max_bright_share: Limit | None
    min_contrast: Limit | None
    min_entropy: Limit | None
    max_border_share: Limit | None
    max_p_part_mismatch: Limit | None
    max_caption_count: Limit | None
