"""Sample: one pair large, its scores in words, the evidence behind them, and a reviewer's mark."""

from dataclasses import asdict
from typing import Any

import streamlit as st

from auditor.query.by_medium import captions_of
from auditor.query.distributions import percentiles
from auditor.query.explain import Explanation, explain
from auditor.query.word_influence import weigh_words
from auditor.review.flag_precision import Precision, precision
from auditor.review.review_queues import marks_by
from auditor.schema import MARKS
from auditor.workers.encoder_client import SearchError
from dashboard import charts
from dashboard.audit_source import source
from dashboard.display_text import (
    MARK_ICONS,
    empty,
    flag_badges,
    number,
    percent,
    score_words,
    shortened,
    span_words,
    weighed_html,
)
from dashboard.evidence_panels import evidence
from dashboard.gallery import mark_row, show_medium
from dashboard.media_preview import LARGE, frame_strip, original, playable, played, thumbnails
from dashboard.records import cards, marks_of, neighbour
from dashboard.url_state import BROWSE, SAMPLE, parse_view, reviewer, sample_query, wanted_row

WEIGHING = (
    "The similarity with each word, or two or three together, left out. Orange speaks against the medium, blue for it."
)

LOOKED_THROUGH = 200  # cards, for one that is not marked

found = source()
database = found.database


def medium(row: dict[str, Any]) -> bytes | None:
    """The medium, large; returns a video's bytes for its strip."""
    data = original(database, row) if row["kind"] == "video" and row["status"] == "ok" else None
    form = playable(data) if data else None
    if data and form:
        start, end = played(row)
        st.video(data, format=form, start_time=start, end_time=end)
        if row["start"] is not None:
            st.caption(span_words(row))
    else:
        (shown,) = thumbnails(LARGE).show(database, [row])
        show_medium(shown, row)
        if data and shown.jpeg:
            st.caption("Browsers do not play this codec; the frames below are those that were encoded.")
    return data


def reviewing(row: dict[str, Any]) -> None:
    """The buttons that keep a mark: on the first screen, beside the picture."""
    with st.container(horizontal=True, vertical_alignment="center", key="verdict"):
        for mark in MARKS:
            if st.button(mark, shortcut=mark[0], icon=MARK_ICONS[mark], key=f"mark-{mark}"):
                mark_row(database, row, mark, note_of(row))
                after, by = following(row) if st.session_state.get("go_on") else (None, 0)
                if after:
                    go(after, by)
        with st.popover("Note", icon=":material/edit_note:"):
            st.text_input("Note", key=note_key(row), placeholder="kept with your next mark")
        st.toggle("Go on", key="go_on", bind="query-params", help="After a mark, go on to the next.")


def note_key(row: dict[str, Any]) -> str:
    return f"note-{row['uid']}-{row['caption_index']}"


def note_of(row: dict[str, Any]) -> str:
    return str(st.session_state.get(note_key(row)) or "")


def reviewed(row: dict[str, Any]) -> None:
    """What reviewers said of this pair, and of the flagged pairs together."""
    marks = marks_of(database, row["uid"], row["caption_index"] or 0)
    if len({mark["mark"] for mark in marks}) > 1:
        st.markdown(":orange-badge[reviewers disagree]")
    if marks:
        st.dataframe(marks, hide_index=True)
    measured(precision(database))


def scores(row: dict[str, Any]) -> None:
    """The numbers, a line each; what one means is told when the pointer rests on it."""
    with st.container(key="scores", gap=None):
        for score in score_words(row, found.ask("percentiles", percentiles, row)):
            st.markdown(f"**{score.value}** :gray[{score.label}]", help=f"{score.label}: {score.words}.")


def weighed(row: dict[str, Any]) -> None:
    """On demand: which words of the caption speak against the medium."""
    if not st.toggle("Which words speak against it?", key="words", bind="query-params", help=WEIGHING):
        return
    try:
        with st.spinner("Asking the audit's text tower …"):
            told = found.ask(f"words of {row['uid']} {row['caption_index']}", weigh_words, row)
    except SearchError as error:
        empty("The words cannot be weighed", str(error), icon=":material/error:")
        return
    st.html(weighed_html([(word.word, word.gain) for word in told.words]))
    if told.phrase_gain > 0:
        st.caption(f"Without the phrase below the similarity would be {number(told.phrase_gain)} higher:")
        st.text(told.phrase)
    else:
        st.caption("No word or phrase makes it fit worse.")


def best_of_corpus(told: Explanation) -> None:
    """The caption of the corpus that fits this medium best, beside its own."""
    if told.captions and told.caption_rank is not None:
        best = told.captions[0]
        own = row["similarity"] if row else None
        st.caption(f"The best caption of the corpus for it: **{number(best.similarity)}**, its own **{number(own)}**")
        text, way = st.columns([5, 1], vertical_alignment="center")
        text.text(shortened(best.caption))
        way.page_link(SAMPLE, label="Open", query_params=sample_query(asdict(best)))


def siblings(row: dict[str, Any]) -> None:
    """The other captions of this medium."""
    rows = [other for other in own_captions if other["caption_index"] != row["caption_index"]]
    if not rows:
        return
    st.subheader("Its other captions", help="Each with its probability of a mismatch.")
    for other in rows:
        score, text, way = st.columns([1, 9, 1], vertical_alignment="center")
        score.markdown(f"**{number(other['p_mismatch'])}**")
        text.text(shortened(other["caption"]) or "(no caption)")
        way.page_link(SAMPLE, label="Open", query_params=sample_query(other, view, at))


def measured(judged: Precision) -> None:
    expected = percent(judged.expected, 0)
    if judged.measured is None:
        st.caption(f"Of all pairs flagged as mismatched {expected} should be; nobody has judged any yet.")
    else:
        interval = f"{percent(judged.low, 0)} to {percent(judged.high, 0)}"
        found_bad = f"**{percent(judged.measured, 0)}** of {judged.judged} ({interval})"
        st.caption(f"Flagged pairs that reviewers call bad: {found_bad}; expected: **{expected}**.")


def at_place(by: int) -> dict[str, Any] | None:
    return None if at is None else neighbour(database, condition, view, at + by)


def following(row: dict[str, Any]) -> tuple[dict[str, Any] | None, int]:
    """The next row and how far it is: a mark may take this row out of the selection, and the next into its place.

    Where cards are media, the captions of this one that are not marked yet come first.
    """
    if view.grouped and at is not None:
        left = [other for other in own_captions if (other["caption_index"] or 0) > (row["caption_index"] or 0)]
        if left:
            return left[0], 0
    if "review" in (condition or "").lower():
        here = at_place(0)
        if here is None or any(here[name] != row[name] for name in ("uid", "caption_index", "shard")):
            return here, 0
    return at_place(1), 1


def next_unmarked(row: dict[str, Any]) -> tuple[dict[str, Any] | None, int]:
    """The next row of the view that this reviewer has not marked, and how far it is; looks some hundred cards ahead."""
    marks = marks_by(database, reviewer())
    for by, card in enumerate(cards(database, condition, view, LOOKED_THROUGH, at or 0)):
        for one in card:
            key = (one["uid"], one["caption_index"] or 0)
            if key not in marks and key != (row["uid"], row["caption_index"] or 0):
                return one, by
    return None, 0


def go_to_unmarked(row: dict[str, Any]) -> None:
    words = "The next one that you have not marked."
    if not st.button("Go to unmarked", shortcut="n", key="next-unmarked", help=words, disabled=at is None):
        return
    after, by = next_unmarked(row)
    if after:
        go(after, by)
    else:
        st.toast(f"{reviewer()} has marked the next {LOOKED_THROUGH} rows, or all there are")


def go(row: dict[str, Any], by: int) -> None:
    """To another row; parameters of widgets (reviewer, go_on) stay as they are."""
    st.query_params.update(sample_query(row, view, None if at is None else at + by))
    st.rerun()


def step(words: str, row: dict[str, Any] | None, by: int, key: str) -> None:
    if st.button(words, disabled=row is None, shortcut=key, key=words.lower()) and row:
        go(row, by)


def over_time(told: Explanation, row: dict[str, Any], data: bytes | None) -> None:
    if told.frames:
        st.subheader("Frame by frame")
        st.altair_chart(
            charts.frames([asdict(frame) for frame in told.frames], told.best_frame),
            alt="Similarity of each frame to the caption",
        )
    strip = frame_strip(database, row, data, row["frames"] or 12) if data else []
    if strip:
        with st.container(key="strip-frames"):
            for column, (time, jpeg) in zip(st.columns(len(strip), gap="small"), strip, strict=True):
                column.image(jpeg, width="stretch", alt="a frame")
                column.caption(f"{time:.1f} s" if time is not None else "")


row = wanted_row(database)
if row is None:
    missing = "uid" in st.query_params
    st.title("Sample")
    empty(
        "There is no such row" if missing else "There is no pair to look at",
        "Open one from the gallery, or from a chart of the overview.",
    )
    st.page_link(BROWSE, label="Browse", icon=":material/photo_library:", query_params={})
    st.stop()
assert row is not None

view = parse_view(st.query_params.get("from", ""))
place = st.query_params.get("at", "" if "uid" in st.query_params else "0")  # without a row: the first of all
at = int(place) if place.isascii() and place.isdecimal() and len(place) < 12 else None
condition = view.selection.condition(database) if at is not None else None
own_captions = captions_of(database, row).to_pylist()

with st.container(horizontal=True, vertical_alignment="center"):
    step("Previous", at_place(-1), -1, "Left")
    step("Next", *following(row), "Right")
    go_to_unmarked(row)
    st.page_link(BROWSE, label="Back to the gallery", icon=":material/photo_library:", query_params=view.query(at or 0))
    st.text(
        f"{row['key']}  ·  {row['shard']}"
        + (f"  ·  caption {row['caption_index'] + 1}" if row["caption_index"] else "")
    )

left, right = st.columns([3, 2], gap="large")
with left, st.container(key="medium"):
    data = medium(row)
    size = f"{row['width']} × {row['height']}" if row["width"] else ""
    st.caption(
        " · ".join(
            part
            for part in (row["kind"] or "no medium", size, f"{row['duration']:.1f} s" if row["duration"] else "")
            if part
        )
    )
with right:
    with st.container(key="caption"):
        st.text(row["caption"] or "(no caption)")
    flag_badges(row)
    beside = st.container(key="best")
    if row["status"] != "ok":
        empty("This pair could not be measured", row["error_message"] or row["status"], icon=":material/error:")
    reviewing(row)
    scores(row)
    if row["status"] == "ok":
        weighed(row)
    reviewed(row)

siblings(row)
if row["status"] == "ok":
    with st.spinner("Looking through the corpus …"):
        told = found.ask("explain", explain, row["uid"], row["caption_index"], row["shard"])
    with beside:
        best_of_corpus(told)
    over_time(told, row, data)
    if told.compared_with == "nothing":
        empty("No evidence was kept", "The embeddings of this audit are not here, so nothing can be compared.")
    else:
        evidence(database, told)
with st.expander("All columns"):
    st.dataframe([{"column": name, "value": str(value)} for name, value in row.items()], hide_index=True, height=500)
