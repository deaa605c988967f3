"""Formats numbers, labels and sentences for the pages, and shows the elements that all pages share.

Captions, keys and messages come from the corpus and are untrusted. They go through `st.text`, `st.code` or a dataframe,
never into anything that reads Markdown (labels, captions of images, alerts).
"""

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import streamlit as st

from auditor.query.summary import Noise
from auditor.report.source_comparison import SourceComparison
from auditor.schema import COLUMNS, FLAGS, HEADLINES, MARKS, STATUSES
from auditor.schema.caption_spans import list_caption_spans
from auditor.score.statistics.caption_timing import SIGNIFICANT_P

if TYPE_CHECKING:
    import pandas as pd

LONGEST_TEXT = 220
ORANGE, BLUE = "232, 116, 59", "76, 139, 217"  # visible in both themes
DEEPEST = 0.75  # opacity of the worst cell of a heat table
NARROWEST = {False: 10.0, True: 0.1}  # percent, or similarity: groups that differ by less stay pale
LOW_IS_BAD = {"unusable": False, "mismatched": False, "ambiguous": False, "similarity": True}
MARK_ICONS = {"good": ":material/thumb_up:", "bad": ":material/thumb_down:", "unsure": ":material/help:"}


class ScoreText(NamedTuple):
    """A measurement of a row: its label, its number and a sentence that explains it."""

    label: str
    value: str
    sentence: str


class NumberCard(NamedTuple):
    """A large number with its label, a line below it and a help text."""

    label: str
    value: str
    below: str | None = None
    meaning: str | None = None


def make_noise_card(noise: Noise) -> NumberCard:
    return NumberCard(f"Mismatched {noise.kind}s", noise.number, f"{noise.interval}%")  # RELATED is below the chart


def column_label(column: str) -> str:
    return COLUMNS[column].label if column in COLUMNS else column


def short_label(column: str) -> str:
    if column == "nearness":
        return "near"
    return (COLUMNS[column].short if column in COLUMNS else "") or column_label(column)


def format_percent(share: float | None, digits: int = 1) -> str:
    return "–" if share is None else f"{share:.{digits}%}"


def format_interval(low: float | None, high: float | None, digits: int = 1) -> str:
    return f"{format_percent(low, digits)} to {format_percent(high, digits)}"


def format_part(part: int, total: int) -> str:
    return format_percent(part / max(total, 1))


def format_number(value: float | None) -> str:
    if value is None:
        return "–"
    if 0 < abs(value) < 0.001:
        return "< 0.001" if value > 0 else "> -0.001"
    if 0.9995 <= value < 1:
        return "> 0.999"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def format_change(change: float | None) -> str | None:
    """A relative change in percent, without a sign for zero."""
    return None if change is None else f"{round(change, 3) + 0.0:+.1%}"


def format_clock(seconds: float) -> str:
    """75.25 -> 1:15.2"""
    minutes, remainder = divmod(seconds, 60)
    return f"{minutes:.0f}:{remainder:04.1f}"


def shorten_text(text: str | None, length: int = LONGEST_TEXT) -> str:
    text = " ".join((text or "").split())
    return text if len(text) <= length else text[: length - 1] + "…"


def describe_scores(row: Mapping[str, Any], percentiles: Mapping[str, float]) -> list[ScoreText]:
    kind = row.get("kind") or "medium"
    scores = []
    for name in HEADLINES:
        if (value := row.get(name)) is not None:
            number, column = format_number(value), COLUMNS[name]
            rank = f"; above {int(100 * percentiles[name])}% of the {kind} pairs" if name in percentiles else ""
            sentence = column.sentence.format(value=number, percent=format_percent(value), kind=kind)
            scores.append(ScoreText(column.label, number, sentence + rank))
    return scores


def describe_span(row: Mapping[str, Any]) -> str:
    span = f"{format_clock(row['start'])} to {format_clock(row['end'])}"
    text = f"The caption describes {span}; the player stops after it."
    if row.get("best_start") is not None:
        text += f" It fits best from {format_clock(row['best_start'])} to {format_clock(row['best_end'])}."
    if row.get("p_time_shift") is not None and row["p_time_shift"] <= SIGNIFICANT_P:
        text += f" The captions of this video fit if they are shifted by {row['time_shift']:+.1f} s."
    return text


def render_word_gains(words: Sequence[tuple[str, float]]) -> str:
    """HTML of words: orange if they speak against the medium, blue if they speak for it. The text is escaped."""
    strongest = max((abs(gain) for _, gain in words), default=0) or 1.0
    spans = [
        f'<span class="weighted" data-against="{str(gain > 0).lower()}" title="{gain:+.3f}" '
        f'style="background: rgba({ORANGE if gain > 0 else BLUE}, {0.6 * abs(gain) / strongest:.2f})">'
        f"{html.escape(word)}</span>"
        for word, gain in words
    ]
    return f'<p class="weighted-words">{" ".join(spans)}</p>'


def render_caption_parts(row: Mapping[str, Any]) -> str:
    """HTML of a caption that was judged in parts: weak ones are marked; empty if there is none. The text is escaped."""
    spans = list_caption_spans(row)
    if not any(span.weak for span in spans):
        return ""
    parts = [
        f'<mark title="probability of a mismatch">{html.escape(span.text)} <small>{span.p:.2f}</small></mark>'
        if span.weak
        else html.escape(span.text)
        for span in spans
    ]
    ending = html.escape(row["caption"][sum(len(span.text) for span in spans) :])
    return f'<p class="caption-parts">{"".join(parts)}{ending}</p>'


def style_heat_table(records: Sequence[Mapping[str, Any]]) -> Any:
    """A styled frame of records. The worse a share (in percent) or a similarity, the deeper its color."""
    import pandas as pd  # few pages have such a table, and the first one has not

    frame = pd.DataFrame(list(records))
    style = frame.style
    for column, low_is_bad in LOW_IS_BAD.items():
        style = style.apply(heat_colors, subset=[column], low_is_bad=low_is_bad)
    return style


def heat_colors(values: "pd.Series[float]", low_is_bad: bool) -> list[str]:
    numbers = values.astype(float)
    low, high = numbers.min(), numbers.max()
    width = max(high - low, NARROWEST[low_is_bad])
    depths = ((high - numbers) if low_is_bad else (numbers - low)) / width
    return [f"background-color: rgba({ORANGE}, {DEEPEST * d:.3f})" if d == d and d > 0 else "" for d in depths]


def show_empty_state(title: str, text: str = "", command: str | None = None, icon: str = ":material/info:") -> None:
    """Show why there is nothing to see: a title in Markdown, a plain text, and a command to copy."""
    with st.container(border=True):
        st.markdown(f"#### {icon} {title}")
        if text:
            st.text(text)
        if command:
            st.code(command, language="bash")


def show_condition_error(error: Exception) -> None:
    show_empty_state("The SQL condition cannot be used", str(error), icon=":material/error:")


def show_choice(label: str, options: Iterable[str], key: str, **details: Any) -> str:
    """Show a button for each option and return the selected one, the first by default."""
    names = list(options)
    details |= {"default": names[0], "bind": "query-params", "required": True}
    return st.segmented_control(label, names, key=key, **details) or names[0]


def show_number_cards(cards: Sequence[NumberCard]) -> None:
    style: Any = {"delta_color": "off", "delta_arrow": "off", "border": True, "height": "stretch"}
    for column, card in zip(st.columns(len(cards)), cards, strict=True):
        column.metric(card.label, card.value, card.below, help=card.meaning, **style)


def show_source_table(sources: SourceComparison) -> None:
    """Show the table of sources of captions, and which one is better; nothing if the corpus has one source."""
    if sources.sources:
        st.dataframe(sources.tabulate(), hide_index=True)
        st.text("\n".join(sources.lines()))


def show_flag_badges(row: Mapping[str, Any], *, keep_line: bool = False) -> None:
    """Show the flags, the status and the review of a row; `keep_line` takes up a line even if there are none."""
    badges = [(flag.label, flag.color) for flag in FLAGS.values() if row.get(flag.name)]
    if row.get("status") in STATUSES and row["status"] != "ok":
        badges.append((STATUSES[row["status"]].label, "gray"))
    if row.get("duplicate_of"):
        badges.append(("duplicate", "blue"))
    if row.get("review") in MARKS:
        mark = MARKS[row["review"]]
        badges.append((f"reviewed: {mark.label}", mark.color))
    if badges or keep_line:
        st.markdown(" ".join(f":{color}-badge[{label}]" for label, color in badges) or "&nbsp;")
