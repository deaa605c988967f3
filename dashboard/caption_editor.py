"""Editing a caption: on the Sample page a form, on the Review page an editor in the card (review_cards.js).

A person writes another text, drops a sentence, or takes another caption of the medium. Captions are shown as text.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from auditor.audit_folder.edit_records import LONGEST, EditError
from auditor.query.database import AuditDatabase
from auditor.review.caption_edits import edit_row
from auditor.schema.caption_spans import list_caption_spans
from dashboard.display_text import render_caption_parts, shorten_text, show_empty_state
from dashboard.url_state import current_reviewer, format_row_id

Row = Mapping[str, Any]
MOST_SENTENCES, MOST_CHOICES = 60, 12
_SENTENCE = re.compile(r"[^.!?。！？…]+[.!?。！？…]*[\"'”’»)\]]*\s*|.+", re.S)


def list_sentences(row: Row, text: str) -> list[str]:
    """The parts of a caption in which it was judged, else its sentences; none if there is only one."""
    parts = [span.text for span in list_caption_spans(row)] if text == row["caption"] else []
    if sum(map(len, parts)) < len(text):  # it was not judged in parts, or not to its end
        parts = _SENTENCE.findall(text)
    return parts if 1 < len(parts) <= MOST_SENTENCES else []


def list_choices(row: Row, text: str, medium_rows: Sequence[Row]) -> list[dict[str, str]]:
    """Other texts for a caption, with their names: the audited one if it was edited, then those of its medium."""
    named_texts = [("as audited", row["caption"])]
    for other in medium_rows:
        named_texts.append((other.get("caption_source") or f"caption {other['caption_index'] + 1}", other["caption"]))
    names = {choice: name for name, choice in reversed(named_texts)}  # the first name of a text
    choices = dict.fromkeys(choice for _, choice in named_texts if choice and choice != text)
    return [{"name": names[choice], "text": choice} for choice in choices][:MOST_CHOICES]


def show_caption(database: AuditDatabase, row: Row) -> None:
    """Show the audited caption of a row, which scores and marks are about, and its edits."""
    with st.container(key="caption", gap="small"):
        if marked_caption := render_caption_parts(row):
            st.html(marked_caption)
        else:
            st.text(row["caption"] or "(no caption)")
        edits = database.read_row_edits().find(row)
        if edits:
            with st.container(key="edits", gap=None):
                st.text(f"Edited by {edits[0].reviewer}, {edits[0].time[:10]}: {edits[0].new_caption}")
                for edit in edits[1:]:
                    st.text(f"Before that by {edit.reviewer}, {edit.time[:10]}: {shorten_text(edit.new_caption)}")


def show_edit_form(database: AuditDatabase, row: Row, medium_rows: Sequence[Row]) -> None:
    """Show the form that edits the caption of a row, or takes the reviewer's edit back. It closes once that is done."""
    edits, reviewer = database.read_row_edits().find(row), current_reviewer()
    text = edits[0].new_caption if edits else row["caption"]
    key = f"edit-{format_row_id(row)}-{reviewer}-{edits[0].time if edits else ''}"
    with st.popover("Edit", icon=":material/edit:", key=key):
        written = st.text_area(
            "Caption", text, key=f"text-{key}", max_chars=max(LONGEST, len(text)), label_visibility="collapsed"
        )
        with st.container(horizontal=True):
            unchanged = written.strip() in ("", text)
            if st.button("Save", key="save-edit", type="primary", disabled=unchanged):
                save_edit(database, row, written)
            if reviewer in {edit.reviewer for edit in edits} and st.button("Take back", key="take-back"):
                save_edit(database, row, None)
        show_other_texts(f"text-{key}", list_sentences(row, written), list_choices(row, text, medium_rows))


def show_other_texts(key: str, sentences: Sequence[str], choices: Sequence[Mapping[str, str]]) -> None:
    """Show buttons that drop a sentence of the text area `key`, or put another caption into it."""
    texts = ["".join([*sentences[:place], *sentences[place + 1 :]]).strip() for place in range(len(sentences))]
    show_texts("Without this sentence", "Drop", key, list(zip(map(str.strip, sentences), texts, strict=True)))
    lines = [(f"{choice['name']}: {choice['text']}", choice["text"]) for choice in choices]
    show_texts("Another caption instead", "Use", key, lines)


def show_texts(title: str, verb: str, key: str, lines: Sequence[tuple[str, str]]) -> None:
    """Show lines with a button each, which writes the line's text into the text area `key`."""
    if lines:
        st.caption(title)
    for number, (line, text) in enumerate(lines):
        label, button = st.columns([5, 1], vertical_alignment="center")
        label.text(shorten_text(line))
        button.button(verb, key=f"{verb}-{number}-{key}", on_click=st.session_state.update, args=({key: text},))


def save_edit(database: AuditDatabase, row: Row, text: str | None) -> None:
    try:
        edit_row(database, row, text, current_reviewer())
    except EditError as error:
        show_empty_state("The caption was not changed", str(error), icon=":material/error:")
        return
    st.toast("the edit was taken back" if text is None else "the caption was edited; exports write it so")
    st.rerun()
