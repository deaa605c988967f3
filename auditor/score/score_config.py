"""Settings of scoring, in a module that imports no torch so that `auditor score --help` starts fast."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from auditor.errors import AuditorError
from auditor.schema import COLUMNS, FACTS
from auditor.schema.setting import setting

PIXELS = "pixels"  # width times height
AUTO, BY_KIND = "auto", "kind"  # by which column p_mismatch is calibrated: the best one, or none
NOT_QUALITIES = ("caption_index", "caption_hash", "start", "end", "media_offset")
# The representative of a group of duplicates is the first medium, or the one with the largest value of a sweep column.
DUPLICATE_ORDERS = (
    "first",
    PIXELS,
    *(name for name in FACTS if COLUMNS[name].type.startswith(("int", "float")) and name not in NOT_QUALITIES),
)


@dataclass(frozen=True)
class ScoreConfig:
    """Settings of scoring."""

    reference: int = setting(
        4096, "Number of reference pairs, per kind of medium, that each pair is compared with.", minimum=1
    )
    fit_pairs: int = 16_384  # upper limit on the pairs that prototypes are fitted on
    prototypes: int = setting(
        64, "Number of prototypes (K) per modality, if prototypes are fitted; the paper has 8.", minimum=1
    )
    target: Literal["h", "retrieval"] = setting(
        "retrieval",
        "What u follows if prototypes are fitted: the paper's h (mean similarity), or how much of the corpus fits an "
        "item and how little the words of a caption say.",
    )
    calibrate_by: str = setting(
        AUTO,
        "Calibrate p_mismatch by itself for each large group of pairs with the same `language`, `caption_source`, "
        "`shard` or carried column. `auto`: by the one whose groups differ most, if any do; `kind`: only for images "
        "and videos.",
        metavar="COLUMN",
    )
    topics: int = 16
    near_duplicate: float | None = setting(
        None,
        "Compare the pixels of media from this cosine up; if none are stored, treat them as near-duplicates [default: "
        "estimated from the corpus].",
    )
    copy_agreement: float | None = setting(
        None,
        "Treat media as near-duplicates if their pixels agree this much, 1 at most; 0 to go by the cosine alone "
        "[default: estimated from the corpus, at least 0.64].",
        minimum=0,
    )
    temperature: float | None = setting(
        None,
        "Temperature of similarity_normalised, which is negCLIPLoss [default: that of the model, 1 / logit scale].",
        above=0,
    )
    keep_duplicate: str = setting(
        "first",
        "Which medium represents a group of duplicates: `first`, `pixels` (the most pixels), or the largest value of a "
        "column that the sweep measures (media_size, sharpness, ...). `duplicate_of` of the others names it.",
        metavar="COLUMN",
    )
    seed: int = setting(0, "Random seed.", minimum=0)

    def __post_init__(self) -> None:
        if self.keep_duplicate not in DUPLICATE_ORDERS:
            raise AuditorError(
                f"--keep-duplicate takes one of {', '.join(DUPLICATE_ORDERS)}, not {self.keep_duplicate!r}"
            )

    @classmethod
    def from_manifest(cls, settings: Mapping[str, Any]) -> "ScoreConfig":
        return cls(**settings["score"]) if settings.get("score") else cls()


@dataclass(frozen=True)
class HeadFitConfig:
    """Settings of `auditor fit`. A test compares its defaults with those of `model.prototypes.HeadConfig`."""

    target: Literal["h", "retrieval"] | None = setting(
        None,
        "What u follows: h (mean similarity), or how much of the corpus fits an item and how little the words of a "
        "caption say [default: retrieval; recipe paper: h].",
        advanced=False,
    )
    prototypes: int = setting(64, "Number of prototypes (K) per modality; the paper has 8.", advanced=False, minimum=1)
    recipe: Literal["corpus", "paper"] = setting(
        "corpus", "Compute the target of u over the whole corpus, or over random batches as in the paper."
    )
    init: str = setting("xavier", "Initialization: xavier, kaiming_uniform, kaiming_normal or orthogonal.")
    evidence: str = setting("exp", "Evidence function: exp, softplus or relu.")
    tau: float = setting(5.0, "Temperature of the exponential evidence.")
    scale: float = setting(100.0, "Factor by which cosines are multiplied before they become evidence.")
    pairs: int = setting(16_384, "Fit on at most this many pairs of each kind of medium.", minimum=1)
    seed: int = setting(0, "Random seed.", minimum=0)
