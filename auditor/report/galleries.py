"""The galleries of the report and their words."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gallery:
    title: str
    words: str
    by: str
    where: str
    shown: tuple[str, ...]


GALLERIES = (
    Gallery(
        "Most likely mismatched",
        "Pairs whose caption most probably describes something else.",
        "p_mismatch",
        "status = 'ok'",
        ("p_mismatch", "similarity"),
    ),
    Gallery(
        "Most ambiguous captions",
        "Captions that fit many media of this corpus as well, and that are not flagged as mismatched.",
        "matches_text",
        "status = 'ok' AND NOT mismatch",
        ("matches_text", "uncertainty_text"),
    ),
    Gallery(
        "Most ambiguous media",
        "Media that many captions of this corpus fit as well, and that are not flagged as mismatched.",
        "matches_visual",
        "status = 'ok' AND NOT mismatch AND coalesce(caption_index, 0) = 0",
        ("matches_visual", "uncertainty_visual"),
    ),
)
