"""The panels below a pair on the Sample page: reasons, captions and media that fit better, prototypes, duplicates."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import streamlit as st

from auditor.query.database import AuditDatabase
from auditor.query.explain import Explanation
from auditor.query.prototype_evidence import PrototypeBelief
from auditor.query.row_queries import read_row
from dashboard.display_text import format_number, shorten_text
from dashboard.gallery import show_gallery
from dashboard.url_state import SAMPLE, sample_query


def show_evidence(database: AuditDatabase, explanation: Explanation) -> None:
    if explanation.reasons:
        st.subheader("Evidence for and against the pair")
        for reason in explanation.reasons:
            st.text(f"{reason[0].upper()}{reason[1:]}.")
    st.subheader("Captions that fit this medium")
    show_rank("caption", explanation.caption_rank, explanation.captions_of)
    for fit in explanation.captions:
        show_caption_line(f"**{format_number(fit.similarity)}**", fit.caption, sample_query(asdict(fit)))
    st.subheader("Media that fit this caption")
    show_rank("medium", explanation.medium_rank, explanation.media_of)
    show_rows(database, [asdict(fit) for fit in explanation.media])
    left, right = st.columns(2, gap="large")
    with left:
        show_prototypes("What makes the medium uncertain", explanation.prototypes_visual)
    with right:
        show_prototypes("What makes the caption uncertain", explanation.prototypes_text)
    if explanation.duplicates:
        st.subheader("Duplicates")
        show_rows(database, explanation.duplicates[:10], first=100)


def show_caption_line(score: str, caption: str | None, query: Mapping[str, str]) -> None:
    """Show a score in Markdown, a caption and a link to its row on one line."""
    number, text, link = st.columns([1, 6, 1], vertical_alignment="center")
    number.markdown(score)
    text.text(shorten_text(caption) or "(no caption)")
    link.page_link(SAMPLE, label="Open", query_params=query)


def show_rank(noun: str, rank: int | None, total: int) -> None:
    if rank is not None:
        st.caption(f"Its own {noun} ranks **{rank:,}** of {total:,}.")


def show_rows(database: AuditDatabase, places: Sequence[Mapping[str, Any]], first: int = 0) -> None:
    rows = [read_row(database, place["uid"], place["caption_index"], place["shard"]) for place in places]
    show_gallery(database, [[row] for row in rows if row], columns=5, first=first)


def show_prototypes(title: str, beliefs: list[PrototypeBelief]) -> None:
    if not beliefs:
        return
    st.subheader(title)
    with_examples = any(belief.like for belief in beliefs)
    st.dataframe(
        [
            {"prototype": belief.prototype, "evidence": belief.belief, "cosine": belief.cosine}
            | ({"most similar to": belief.like} if with_examples else {})
            for belief in beliefs
        ],
        hide_index=True,
        height=320,
        column_config={
            "evidence": st.column_config.ProgressColumn(min_value=0.0, max_value=1.0, format="%.3f"),
            "cosine": st.column_config.NumberColumn(format="%.3f"),
        },
    )
