"""What stands below a pair on the Sample page: reasons, captions and media that fit better, prototypes, duplicates."""

from dataclasses import asdict

import streamlit as st

from auditor.query.database import AuditDatabase
from auditor.query.explain import Explanation
from auditor.query.prototype_evidence import PrototypeBelief
from auditor.query.row_queries import row as find_row
from dashboard.display_text import number, shortened
from dashboard.gallery import gallery
from dashboard.url_state import SAMPLE, sample_query


def evidence(database: AuditDatabase, told: Explanation) -> None:
    if told.reasons:
        st.subheader("What speaks for it and against it")
        for reason in told.reasons:
            st.text(f"{reason[0].upper()}{reason[1:]}.")
    captions(told)
    media(database, told)
    left, right = st.columns(2, gap="large")
    with left:
        prototypes("What makes the medium uncertain", told.prototypes_visual)
    with right:
        prototypes("What makes the caption uncertain", told.prototypes_text)
    duplicates(database, told)


def captions(told: Explanation) -> None:
    """Captions of other media that fit this one best."""
    st.subheader("Captions that fit this medium")
    rank(told.caption_rank, told.captions_of)
    for fit in told.captions:
        score, text, way = st.columns([1, 9, 1], vertical_alignment="center")
        score.markdown(f"**{number(fit.similarity)}**")
        text.text(shortened(fit.caption))
        way.page_link(SAMPLE, label="Open", query_params=sample_query(asdict(fit)))


def media(database: AuditDatabase, told: Explanation) -> None:
    st.subheader("Media that fit this caption")
    rank(told.medium_rank, told.media_of)
    rows = [find_row(database, fit.uid, fit.caption_index, fit.shard) for fit in told.media]
    gallery(database, [[row] for row in rows if row], columns=5)


def rank(place: int | None, of: int) -> None:
    if place is not None:
        st.caption(f"Its own partner is number **{place:,}** of {of:,}.")


def duplicates(database: AuditDatabase, told: Explanation) -> None:
    if told.duplicates:
        st.subheader("Duplicates")
        rows = [find_row(database, d["uid"], d["caption_index"], d["shard"]) for d in told.duplicates[:10]]
        gallery(database, [[row] for row in rows if row], columns=5, first=100)


def prototypes(title: str, found: list[PrototypeBelief]) -> None:
    """Which prototypes gave the evidence."""
    if not found:
        return
    st.subheader(title)
    like = any(belief.like for belief in found)
    st.dataframe(
        [
            {
                "prototype": b.prototype,
                "evidence": b.belief,
                "cosine": b.cosine,
                **({"most like": b.like} if like else {}),
            }
            for b in found
        ],
        hide_index=True,
        height=320,
        column_config={
            "evidence": st.column_config.ProgressColumn(min_value=0.0, max_value=1.0, format="%.3f"),
            "cosine": st.column_config.NumberColumn(format="%.3f"),
        },
    )
