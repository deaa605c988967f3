"""Sample: one pair in large, its scores in words, the evidence behind them, and the marks of reviewers."""

from dataclasses import asdict
from typing import Any, NoReturn

import streamlit as st

from auditor.query.distributions import compute_percentiles
from auditor.query.explain import Explanation, explain_row
from auditor.query.row_queries import list_captions, list_row_marks
from auditor.query.search import weigh_words
from auditor.report.charts import draw_lines
from auditor.review.flag_precision import measure_flag_precision
from auditor.review.review_queues import fetch_reviewer_marks
from auditor.schema import MARKS
from auditor.workers.encoder_client import SearchError
from dashboard import media_preview
from dashboard.audit_source import open_first_audit
from dashboard.caption_editor import show_caption, show_edit_form
from dashboard.chart_view import FULL, show_chart
from dashboard.display_text import (
    MARK_ICONS,
    describe_scores,
    describe_span,
    format_interval,
    format_number,
    format_percent,
    render_word_gains,
    shorten_text,
    show_empty_state,
    show_flag_badges,
)
from dashboard.evidence_panels import show_caption_line, show_evidence
from dashboard.gallery import mark_row, show_preview
from dashboard.records import find_neighbor, list_cards
from dashboard.url_state import (
    BROWSE,
    SAMPLE,
    current_reviewer,
    find_requested_row,
    parse_index,
    parse_view,
    sample_query,
)

Row = dict[str, Any]
WORDS_HELP = (
    "Each word, or two or three together, is left out and the similarity is measured again. "
    "Orange words speak against the medium, blue words for it."
)
CARDS_AHEAD = 200  # searched for an unmarked row

audit = open_first_audit()
database = audit.database


def show_medium(row: Row) -> bytes | None:
    """Show the medium in large and return the bytes of a video for its frame strip."""
    data = media_preview.read_original(database, row) if row["kind"] == "video" and row["status"] == "ok" else None
    mime_type = media_preview.video_mime_type(data) if data else None
    if data and mime_type:
        start, end = media_preview.playback_seconds(row)
        st.video(data, format=mime_type, start_time=start, end_time=end)
        if row["start"] is not None:
            st.caption(describe_span(row))
    else:
        (preview,) = media_preview.thumbnail_cache(media_preview.LARGE).show(database, [row])
        show_preview(preview, row)
        if data and preview.jpeg:
            st.caption("Browsers do not play this codec; the frames below are those that were encoded.")
    size = f"{row['width']} × {row['height']}" if row["width"] else ""
    duration = f"{row['duration']:.1f} s" if row["duration"] else ""
    st.caption(" · ".join(part for part in (row["kind"] or "no medium", size, duration) if part))
    return data


def show_mark_form(row: Row) -> None:
    with st.container(horizontal=True, vertical_alignment="center", key="verdict"):
        for mark in MARKS:
            if st.button(mark, shortcut=mark[0], icon=MARK_ICONS[mark], key=f"mark-{mark}"):
                mark_row(database, row, mark, str(st.session_state.get(note_key(row)) or ""))
                next_row, steps = find_next_row(row) if st.session_state.get("go_on") else (None, 0)
                if next_row:
                    go_to_row(next_row, steps)
        with st.popover("Note", icon=":material/edit_note:"):
            st.text_input("Note", key=note_key(row), placeholder="stored with your next mark")
        if row["caption"]:
            show_edit_form(database, row, medium_rows)
        st.toggle("Auto-advance", key="go_on", bind="query-params", help="Go to the next row after each mark.")


def note_key(row: Row) -> str:
    return f"note-{row['uid']}-{row['caption_index']}"


def show_marks(row: Row) -> None:
    marks = list_row_marks(database, row["uid"], row["caption_index"] or 0)
    if len({mark["mark"] for mark in marks}) > 1:
        st.markdown(":orange-badge[reviewers disagree]")
    if marks:
        st.dataframe(marks, hide_index=True)
    precision = measure_flag_precision(database)
    expected = format_percent(precision.expected, 0)
    if precision.measured is None:
        st.caption(f"Expected share of mismatches among the flagged pairs: {expected}. Nobody has judged any yet.")
    else:
        interval = format_interval(precision.low, precision.high, 0)
        measured = f"**{format_percent(precision.measured, 0)}** of {precision.judged} ({interval})"
        st.caption(f"Flagged pairs that reviewers call bad: {measured}; expected: **{expected}**.")


def show_scores(row: Row) -> None:
    with st.container(key="scores", gap=None):
        for score in describe_scores(row, audit.ask("percentiles", compute_percentiles, row)):
            st.markdown(f"**{score.value}** :gray[{score.label}]", help=f"{score.label}: {score.sentence}.")


def show_word_gains(row: Row) -> None:
    if not st.toggle("Which words speak against it?", key="words", bind="query-params", help=WORDS_HELP):
        return
    try:
        with st.spinner("Encoding the caption without its words …"):
            influence = audit.ask(f"words of {row['uid']} {row['caption_index']}", weigh_words, row)
    except SearchError as error:
        show_empty_state("The words cannot be compared", str(error), icon=":material/error:")
        return
    st.html(render_word_gains([(word.word, word.gain) for word in influence.words]))
    if influence.phrase_gain > 0:
        st.caption(f"Without this phrase the similarity would be {format_number(influence.phrase_gain)} higher:")
        st.text(influence.phrase)
    else:
        st.caption("No word or phrase lowers the similarity.")


def show_best_caption(row: Row, explanation: Explanation) -> None:
    if explanation.captions and explanation.caption_rank is not None:
        best = explanation.captions[0]
        similarity, own_similarity = format_number(best.similarity), format_number(row["similarity"])
        st.caption(f"Best caption in the corpus: similarity **{similarity}**, its own **{own_similarity}**")
        text, link = st.columns([5, 1], vertical_alignment="center")
        text.text(shorten_text(best.caption))
        link.page_link(SAMPLE, label="Open", query_params=sample_query(asdict(best)))


def show_sibling_captions(row: Row) -> None:
    siblings = [other for other in medium_rows if other["caption_index"] != row["caption_index"]]
    if not siblings:
        return
    st.subheader("Other captions of this medium", help="Each with its probability of a mismatch.")
    for other in siblings:
        query = sample_query(other, view, position)
        text = ": ".join(filter(None, (other["caption_source"], other["caption"])))
        show_caption_line(f"**{format_number(other['p_mismatch'])}**", text, query)


def find_row_at(steps: int) -> Row | None:
    return None if position is None else find_neighbor(database, condition, view, position + steps)


def find_next_row(row: Row) -> tuple[Row | None, int]:
    """The next row and its distance in cards.

    If cards are media, the later captions of this medium come first. If the selection depends on marks, a mark may
    have removed this row, and the next row has taken its position.
    """
    if view.grouped and position is not None:
        later_captions = [other for other in medium_rows if (other["caption_index"] or 0) > (row["caption_index"] or 0)]
        if later_captions:
            return later_captions[0], 0
    if database.freshness(condition):
        row_here = find_row_at(0)
        if row_here is None or any(row_here[name] != row[name] for name in ("uid", "caption_index", "shard")):
            return row_here, 0
    return find_row_at(1), 1


def show_unmarked_button(row: Row) -> None:
    label, hint = "Next unmarked", "Go to the next row that you have not marked."
    if not st.button(label, shortcut="n", key="next-unmarked", help=hint, disabled=position is None):
        return
    marks = fetch_reviewer_marks(database, current_reviewer())
    for steps, card in enumerate(list_cards(database, condition, view, CARDS_AHEAD, position or 0)):
        for other in card:
            key = (other["uid"], other["caption_index"] or 0)
            if key not in marks and key != (row["uid"], row["caption_index"] or 0):
                go_to_row(other, steps)
    st.toast(f"{current_reviewer()} has marked all of the next {CARDS_AHEAD} rows")


def go_to_row(row: Row, steps: int) -> NoReturn:
    """Open another row; the parameters of widgets (reviewer, go_on) stay as they are."""
    st.query_params.update(sample_query(row, view, None if position is None else position + steps))
    st.rerun()


def show_navigation(row: Row) -> None:
    steps = {"Previous": (find_row_at(-1), -1, "Left"), "Next": (*find_next_row(row), "Right")}
    for label, (target, distance, shortcut) in steps.items():
        if st.button(label, disabled=target is None, shortcut=shortcut, key=label.lower()) and target:
            go_to_row(target, distance)
    show_unmarked_button(row)
    query = view.query(position or 0)
    st.page_link(BROWSE, label="Back to the gallery", icon=":material/photo_library:", query_params=query)
    caption = f"caption {row['caption_index'] + 1}" if row["caption_index"] else None
    st.text("  ·  ".join(filter(None, (row["key"], row["shard"], caption, row["caption_source"]))))


def show_frames(explanation: Explanation, row: Row, data: bytes | None) -> None:
    points = [(frame.time, frame.similarity) for frame in explanation.frames if frame.time is not None]
    if points:
        st.subheader("Frame by frame")
        labels = "seconds", "similarity of the frame"
        size = FULL[0], 220.0
        show_chart(draw_lines({"frame": points}, *labels, size=size, highlight=explanation.best_frame), "frames")
    strip = media_preview.make_frame_strip(database, row, data, row["frames"] or 12) if data else []
    if strip:
        with st.container(key="strip-frames"):
            for column, (time, jpeg) in zip(st.columns(len(strip), gap="small"), strip, strict=True):
                column.image(jpeg, width="stretch", alt="a frame")
                column.caption(f"{time:.1f} s" if time is not None else "")


row = find_requested_row(database)
if row is None:
    st.title("Sample")
    show_empty_state(
        "There is no such row" if "uid" in st.query_params else "There is no pair to look at",
        "Open one from the gallery or from a chart on the Overview page.",
    )
    st.page_link(BROWSE, label="Browse", icon=":material/photo_library:", query_params={})
    st.stop()
assert row is not None

view = parse_view(st.query_params.get("from", ""))
position = parse_index(st.query_params.get("at", "" if "uid" in st.query_params else "0"), longest=11)
condition = view.selection.condition(database) if position is not None else None
medium_rows = list_captions(database, row).to_pylist()

with st.container(horizontal=True, vertical_alignment="center"):
    show_navigation(row)
left, right = st.columns([3, 2], gap="large")
with left, st.container(key="medium"):
    data = show_medium(row)
with right:
    show_caption(database, row)
    show_flag_badges(row)
    best_caption = st.container(key="best")
    if row["status"] != "ok":
        problem = row["error_message"] or row["status"]
        show_empty_state("This pair could not be measured", problem, icon=":material/error:")
    show_mark_form(row)
    show_scores(row)
    if row["status"] == "ok":
        show_word_gains(row)
    show_marks(row)

show_sibling_captions(row)
if row["status"] == "ok":
    with st.spinner("Searching the corpus …"):
        explanation = audit.ask("explain", explain_row, row["uid"], row["caption_index"], row["shard"])
    with best_caption:
        show_best_caption(row, explanation)
    show_frames(explanation, row, data)
    if explanation.compared_with == "nothing":
        show_empty_state("There is no evidence", "This audit has no embeddings to compare with.")
    else:
        show_evidence(database, explanation)
with st.expander("All columns"):
    st.dataframe([{"column": name, "value": str(value)} for name, value in row.items()], hide_index=True, height=500)
