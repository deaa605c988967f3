"""Faults: patterns that an audit has, and what would repair them, before and after, to accept or to refuse."""

from typing import Any

import streamlit as st

from auditor.audit_folder.fault_records import Fault, read_faults
from auditor.audit_folder.repair_marks import Verdict, mark_name, mark_repair, read_marks
from auditor.faults.repair import Repair, propose
from auditor.query.database import AuditDatabase
from auditor.query.row_queries import row as find_row
from auditor.query.sandbox import literal
from dashboard.audit_source import source
from dashboard.display_text import empty, percent, shortened
from dashboard.media_preview import SMALL, thumbnails
from dashboard.url_state import BROWSE, SAMPLE, sample_query

PAGE = 6  # repairs shown at once
SHOWN = 12  # faults in words

found = source()
database = found.database


def listed(faults: list[Fault]) -> None:
    """The first ones in words; all of them as a table."""
    for fault in faults[:SHOWN]:
        with st.container(border=True, horizontal=True, vertical_alignment="center"):
            words = [f"{fault.kind}: {fault.pattern}", f"{fault.rows:,} rows"]
            words += [f"p = {fault.p_value:.1g}"] if fault.p_value is not None else []
            st.text(fault.sentence)
            st.caption(" · ".join(words), width="content")
            if fault.shard:
                place = {"where": f"shard = {literal(fault.shard)}"}
                st.page_link(BROWSE, label="Browse the shard", query_params=place, width="content")
    with st.expander("As a table"):
        st.dataframe(
            [
                {"kind": fault.kind, "rows": fault.rows, "p-value": fault.p_value, "what": fault.sentence}
                for fault in faults
            ],
            hide_index=True,
            column_config={"p-value": st.column_config.NumberColumn(format="scientific")},
        )


def say(audit: AuditDatabase, repair: Repair, verdict: Verdict) -> None:
    mark_repair(audit.files.folder, repair.uid, repair.caption_index, verdict)


def compared(repair: Repair, verdict: str | None) -> None:
    """The caption with the medium it stands with and the one it belongs to."""
    before = find_row(database, repair.uid, repair.caption_index, repair.shard)
    after = find_row(database, repair.new_uid, None, repair.new_shard)
    if before is None or after is None:
        return
    with st.container(border=True, key=f"repair-{repair.uid}-{repair.caption_index}"):
        st.text(before["caption"])
        media = thumbnails(SMALL).show(database, [before, after])
        for column, row, medium, words in zip(st.columns(2), (before, after), media, ("before", "after"), strict=True):
            with column:
                st.caption(words)
                if medium.jpeg is not None:
                    st.image(medium.jpeg, width="stretch", alt=shortened(row["caption"], 120))
                else:
                    st.text(shortened(medium.problem, 160))
                st.page_link(SAMPLE, label=row["key"], query_params=sample_query(row))
        st.caption(f"{repair.pattern}, right with a probability of {percent(repair.confidence)}")
        with st.container(horizontal=True):
            button("Accept", repair, "accepted", verdict)
            button("Refuse", repair, "refused", verdict)


def proposed(audit: AuditDatabase, confidence: float) -> list[Repair]:
    """All that are that sure, also those that were refused: one may think again."""
    return propose(audit, confidence, heed_marks=False)


def button(label: str, repair: Repair, verdict: Verdict, given: str | None) -> None:
    st.button(
        label,
        key=f"{verdict}-{repair.uid}-{repair.caption_index}",
        type="primary" if given == verdict else "secondary",
        on_click=say,
        args=(database, repair, verdict),
    )


def repairs() -> None:
    st.subheader("Repairs")
    st.caption("What is refused is left out of `auditor repair`, what is accepted is in it.")
    confidence = st.slider("Right with at least", 0.5, 0.99, 0.9, 0.01, key="confidence", bind="query-params")
    offered: list[Repair] = found.ask("repairs", proposed, confidence)
    if not offered:
        empty("Nothing to repair", "No displaced caption has a medium that sure.")
        return
    marks: dict[str, Any] = dict(read_marks(database.files.folder))
    pages = -(-len(offered) // PAGE)
    page = st.number_input(f"Page of {pages:,}", 1, pages, 1, key="repairs", bind="query-params")
    st.markdown(f"**{len(offered):,}** captions to move")
    for start in range((page - 1) * PAGE, min(page * PAGE, len(offered)), 3):
        for column, repair in zip(st.columns(3), offered[start : start + 3], strict=False):
            with column:
                compared(repair, marks.get(mark_name(repair.uid, repair.caption_index)))


st.title("Faults")
known = read_faults(database.files.folder)
if known is None:
    empty("Nobody has looked for patterns yet", "Run this once:", f"auditor faults {database.path}")
elif not known:
    empty("No pattern was found", "No shift, no mixed-up block, no bad shard, no repeated caption.")
else:
    listed(known)
    if any(fault.kind in ("shift", "block") for fault in known):
        repairs()
