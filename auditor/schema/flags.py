"""The flags: suspicions that the view derives from a column and a threshold."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Flag:
    """A suspicion that the view derives: `measure` is at or above the flag's threshold in the manifest.

    A threshold named after `paper_measure` makes the flag go by that column instead: the definition of the PAU paper.
    Without either, a threshold named after `ranked_by` does: the flag of a given share of the corpus. `also` is a
    column that raises the flag too, at the threshold named after it, where the flag goes by its own `measure`.
    """

    name: str
    label: str
    plural: str  # "12% ambiguous captions"
    meaning: str
    measure: str
    colour: str
    paper_measure: str | None = None
    ranked_by: str | None = None
    also: str | None = None


FLAGS: dict[str, Flag] = {
    flag.name: flag
    for flag in (
        Flag(
            "mismatch",
            "mismatch",
            "flagged as mismatched",
            "the caption probably does not describe the medium",
            "p_mismatch",
            "red",
        ),
        Flag(
            "ambiguous_visual",
            "ambiguous medium",
            "ambiguous media",
            "a fifth of the captions of the corpus, or more, fit the medium",
            "matches_visual",
            "orange",
            "uncertainty_visual",
            "ambiguity_visual",
        ),
        Flag(
            "ambiguous_text",
            "ambiguous caption",
            "ambiguous captions",
            "the caption fits a fifth of the media of the corpus, or its words hold for one caption in a hundred",
            "matches_text",
            "violet",
            "uncertainty_text",
            "ambiguity_text",
            "caption_share",
        ),
    )
}
