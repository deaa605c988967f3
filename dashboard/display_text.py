"""Words for people, and text of others shown as text.

Captions, keys and messages come from the corpus: they go through `st.text`, `st.code` or a dataframe, never into
anything that reads Markdown (labels, captions of images, alerts).
"""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from auditor.query.summary import Noise
from auditor.schema import COLUMNS, FLAGS, HEADLINES, MARKS, STATUSES
from auditor.score.statistics.caption_timing import SURE

LONGEST = 220
AGAINST, FOR = "232, 116, 59", "76, 139, 217"  # colours
MARK_ICONS = {"good": ":material/thumb_up:", "bad": ":material/thumb_down:", "unsure": ":material/help:"}


@dataclass(frozen=True, slots=True)
class Score:
    """A measurement of a row: its number, and what it means."""

    label: str
    value: str
    words: str


@dataclass(frozen=True, slots=True)
class Number:
    """A number of the whole: what it counts, what stands below it, and what is told when the pointer rests on it."""

    label: str
    value: str
    below: str | None = None
    meaning: str | None = None


def share_of_noise(noise: Noise) -> Number:
    words = f"Mismatched {noise.kind}s{', at least' if noise.at_least else ''}"
    return Number(words, percent(noise.share), f"{percent(noise.low)} to {percent(noise.high)}")


def label(column: str) -> str:
    return COLUMNS[column].label if column in COLUMNS else column


def status_label(status: str) -> str:
    return STATUSES[status].label if status in STATUSES else "other"


def short(column: str) -> str:
    """The label where there is little room."""
    if column == "nearness":
        return "near"
    return (COLUMNS[column].short if column in COLUMNS else "") or label(column)


def percent(share: float | None, digits: int = 1) -> str:
    return "–" if share is None else f"{share:.{digits}%}"


def number(value: float | None) -> str:
    if value is None:
        return "–"
    if 0 < abs(value) < 0.001:
        return "< 0.001" if value > 0 else "> -0.001"
    if 0.9995 <= value < 1:
        return "> 0.999"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def shortened(text: str | None, most: int = LONGEST) -> str:
    text = " ".join((text or "").split())
    return text if len(text) <= most else text[: most - 1] + "…"


def score_words(row: Mapping[str, Any], percentiles: Mapping[str, float]) -> list[Score]:
    """The scores of a row in sentences; those it does not have are left out."""
    kind = row.get("kind") or "medium"
    found = []
    for column in (COLUMNS[name] for name in HEADLINES):
        value = row.get(column.name)
        if value is not None:
            place = percentiles.get(column.name)
            below = f"; above {int(100 * place)}% of the {kind} pairs" if place is not None else ""
            sentence = column.sentence.format(value=number(value), percent=percent(value), kind=kind)
            found.append(Score(column.label, number(value), sentence + below))
    return found


def weighed_html(words: Sequence[tuple[str, float]]) -> str:
    """Words with the background of what they say: orange against the medium, blue for it. The text is escaped."""
    strongest = max((abs(gain) for _, gain in words), default=0) or 1.0
    spans = [
        f'<span class="weighed" data-against="{str(gain > 0).lower()}" title="{gain:+.3f}" '
        f'style="background: rgba({AGAINST if gain > 0 else FOR}, {0.6 * abs(gain) / strongest:.2f})">'
        f"{html.escape(word)}</span>"
        for word, gain in words
    ]
    return f'<p class="weighed-words">{" ".join(spans)}</p>'


def empty(title: str, text: str = "", command: str | None = None, icon: str = ":material/info:") -> None:
    """A clear empty state: our words as a heading, `text` as it is, and a command to copy."""
    with st.container(border=True):
        st.markdown(f"#### {icon} {title}")
        if text:
            st.text(text)
        if command:
            st.code(command, language="bash")


def number_cards(line: Sequence[Number]) -> None:
    """Large numbers in one row, in cards of one height."""
    for column, one in zip(st.columns(len(line)), line, strict=True):
        column.metric(
            one.label, one.value, one.below, help=one.meaning,
            delta_color="off", delta_arrow="off", border=True, height="stretch",
        )  # fmt: skip


def flag_badges(row: Mapping[str, Any], *, steady: bool = False) -> None:
    """Flags, status and review of a row, in words of ours; `steady` takes a line also where there are none."""
    shown = [(flag.label, flag.colour) for flag in FLAGS.values() if row.get(flag.name)]
    if row.get("status") in STATUSES and row["status"] != "ok":
        shown.append((STATUSES[row["status"]].label, "gray"))
    if row.get("duplicate_of"):
        shown.append(("duplicate", "blue"))
    if row.get("review") in MARKS:
        mark = MARKS[row["review"]]
        shown.append((f"reviewed: {mark.label}", mark.colour))
    if shown or steady:
        st.markdown(" ".join(f":{colour}-badge[{word}]" for word, colour in shown) or "&nbsp;")


def clock(seconds: float) -> str:
    """75.25 -> 1:15.2"""
    minutes, rest = divmod(seconds, 60)
    return f"{minutes:.0f}:{rest:04.1f}"


def span_words(row: Mapping[str, Any]) -> str:
    """What is known of a timed caption's place in its video."""
    said = [f"The caption is about {clock(row['start'])} to {clock(row['end'])}; the player stops after it."]
    if row.get("best_start") is not None:
        said.append(f"It fits best from {clock(row['best_start'])} to {clock(row['best_end'])}.")
    if row.get("p_time_shift") is not None and row["p_time_shift"] <= SURE:
        said.append(f"The captions of this video fit when they are shifted by {row['time_shift']:+.1f} s.")
    return " ".join(said)
