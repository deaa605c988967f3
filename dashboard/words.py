"""Words for people, and text of others shown as text.

Captions, keys and messages come from the corpus: they go through `st.text`, `st.code` or a dataframe, never into
anything that reads Markdown (labels, captions of images, alerts).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import streamlit as st

LABELS = {
    "p_mismatch": "Probability of a mismatch",
    "similarity": "Similarity",
    "uncertainty_visual": "Uncertainty of the medium",
    "uncertainty_text": "Uncertainty of the caption",
    "matches_visual": "Captions that fit the medium",
    "matches_text": "Media that fit the caption",
    "mean_similarity_visual": "Mean similarity of the medium (h)",
    "mean_similarity_text": "Mean similarity of the caption (h)",
    "similarity_normalised": "Similarity, normalised",
}
FLAG_WORDS = {
    "mismatch": ("mismatch", "red"),
    "ambiguous_visual": ("ambiguous medium", "orange"),
    "ambiguous_text": ("ambiguous caption", "violet"),
}
STATUS_WORDS = {
    "ok": "usable",
    "corrupt": "cannot be decoded",
    "missing_media": "no medium",
    "missing_caption": "no caption",
    "timeout": "took too long",
    "duplicate_key": "key used twice",
    "too_large": "too large",
}
MARK_WORDS = {"good": ("good", "green"), "bad": ("bad", "red"), "unsure": ("unsure", "gray")}
LONGEST = 220


@dataclass(frozen=True, slots=True)
class Score:
    """A measurement of a row: its number, and what it means."""

    label: str
    value: str
    words: str


def label(column: str) -> str:
    return LABELS.get(column, column)


def percent(share: float | None, digits: int = 1) -> str:
    return "–" if share is None else f"{share:.{digits}%}"


def number(value: float | None) -> str:
    if value is None:
        return "–"
    if 0 < abs(value) < 0.001:
        return "< 0.001" if value > 0 else "> -0.001"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def shortened(text: str | None, most: int = LONGEST) -> str:
    text = " ".join((text or "").split())
    return text if len(text) <= most else text[: most - 1] + "…"


def score_words(row: Mapping[str, Any], percentiles: Mapping[str, float]) -> list[Score]:
    """The scores of a row in sentences; those it does not have are left out."""
    kind = row.get("kind") or "medium"
    sentences: dict[str, Callable[[float], str]] = {
        "p_mismatch": lambda v: f"of pairs with such a score, {percent(v)} do not belong together",
        "similarity": lambda v: "how well caption and medium agree",
        "matches_visual": lambda v: f"about {number(v)} captions of this corpus fit this {kind} as well",
        "matches_text": lambda v: f"about {number(v)} {kind}s of this corpus fit this caption as well",
        "uncertainty_visual": lambda v: f"PAU's ambiguity of the {kind}: how much it shows at once",
        "uncertainty_text": lambda v: "PAU's ambiguity of the caption: how much it could describe",
    }
    found = []
    for column, sentence in sentences.items():
        value = row.get(column)
        if value is not None:
            place = percentiles.get(column)
            below = f"; above {int(100 * place)}% of the {kind}s" if place is not None else ""
            found.append(Score(label(column), number(value), sentence(value) + below))
    return found


def empty(title: str, text: str = "", command: str | None = None, icon: str = ":material/info:") -> None:
    """A clear empty state: our words as a heading, `text` as it is, and a command to copy."""
    with st.container(border=True):
        st.markdown(f"#### {icon} {title}")
        if text:
            st.text(text)
        if command:
            st.code(command, language="bash")


def flag_badges(row: Mapping[str, Any]) -> None:
    """Flags, status and review of a row, in words of ours."""
    shown = [FLAG_WORDS[flag] for flag in FLAG_WORDS if row.get(flag)]
    if row.get("status") in STATUS_WORDS and row["status"] != "ok":
        shown.append((STATUS_WORDS[row["status"]], "gray"))
    if row.get("duplicate_of"):
        shown.append(("duplicate", "blue"))
    if row.get("review") in MARK_WORDS:
        word, colour = MARK_WORDS[row["review"]]
        shown.append((f"reviewed: {word}", colour))
    if shown:
        st.markdown(" ".join(f":{colour}-badge[{word}]" for word, colour in shown))
