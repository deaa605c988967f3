"""Faults: patterns of faults in the corpus, and proposed repairs, before and after, to accept or to refuse."""

from functools import partial
from typing import Any

import streamlit as st

from auditor.audit_folder.fault_records import Fault, read_faults
from auditor.audit_folder.side_files import Verdict, format_mark_key, mark_repair, read_repair_marks
from auditor.faults.repair import Repair, propose_repairs
from auditor.query.row_queries import read_row
from dashboard.audit_source import open_first_audit
from dashboard.display_text import format_percent, shorten_text, show_empty_state
from dashboard.media_preview import SMALL, thumbnail_cache
from dashboard.records import count_pages, list_page
from dashboard.url_state import BROWSE, SAMPLE, rows_query, sample_query

REPAIRS_ON_PAGE = 6
REPAIR_COLUMNS = 3
FAULTS_IN_WORDS = 40

audit = open_first_audit()
database = audit.database


def show_faults(faults: list[Fault]) -> None:
    for fault in faults[:FAULTS_IN_WORDS]:
        with st.container(border=True, horizontal=True, vertical_alignment="center"):
            p_value = "" if fault.p_value is None else f" · p = {fault.p_value:.1g}"
            st.text(fault.sentence)
            st.caption(f"{fault.kind}: {fault.pattern} · {fault.rows:,} rows{p_value}", width="content")
            if fault.where:
                st.page_link(BROWSE, label="Show the rows", query_params=rows_query(fault.where), width="content")
    if faults[FAULTS_IN_WORDS:]:
        st.code(f"auditor faults {database.path}  # {len(faults) - FAULTS_IN_WORDS:,} more", language="bash")


def show_repair(repair: Repair, verdict: str | None) -> None:
    old_row = read_row(database, repair.uid, repair.caption_index, repair.shard)
    new_row = read_row(database, repair.new_uid, None, repair.new_shard)
    if old_row is None or new_row is None:
        return
    with st.container(border=True, key=f"repair-{repair.uid}-{repair.caption_index}"):
        st.text(old_row["caption"])
        previews = thumbnail_cache(SMALL).show(database, [old_row, new_row])
        sides = zip(st.columns(2), (old_row, new_row), previews, ("before", "after"), strict=True)
        for column, row, preview, title in sides:
            with column:
                st.caption(title)
                if preview.jpeg is not None:
                    st.image(preview.jpeg, width="stretch", alt=shorten_text(row["caption"], 120))
                else:
                    st.text(shorten_text(preview.problem, 160))
                st.page_link(SAMPLE, label=row["key"], query_params=sample_query(row))
        st.caption(f"{repair.pattern}, correct with a probability of {format_percent(repair.confidence)}")
        with st.container(horizontal=True):
            show_verdict_button("Accept", repair, "accepted", verdict)
            show_verdict_button("Refuse", repair, "refused", verdict)


def show_verdict_button(label: str, repair: Repair, verdict: Verdict, current: str | None) -> None:
    key = f"{verdict}-{repair.uid}-{repair.caption_index}"
    arguments = (database.files.folder, repair.uid, repair.caption_index, verdict)
    style: Any = "primary" if current == verdict else "secondary"
    st.button(label, key=key, type=style, on_click=mark_repair, args=arguments)


def show_repairs() -> None:
    st.subheader("Repairs")
    st.caption("`auditor repair` includes accepted repairs and leaves out refused ones.")
    confidence = st.slider("Confidence of at least", 0.5, 0.99, 0.9, 0.01, key="confidence", bind="query-params")
    propose_all = partial(propose_repairs, heed_marks=False)  # refused ones too, so that a verdict can be changed
    repairs: list[Repair] = audit.ask("repairs", propose_all, confidence)
    if not repairs:
        show_empty_state("Nothing to repair", "No displaced caption has a medium with that confidence.")
        return
    verdicts: dict[str, Any] = dict(read_repair_marks(database.files.folder))
    pages = count_pages(len(repairs), REPAIRS_ON_PAGE)
    page_number = st.number_input(f"Page of {pages:,}", 1, pages, 1, key="repairs", bind="query-params")
    st.markdown(f"**{len(repairs):,}** captions to move")
    page_repairs = list_page(repairs, page_number, REPAIRS_ON_PAGE)
    for start in range(0, len(page_repairs), REPAIR_COLUMNS):
        for column, repair in zip(st.columns(REPAIR_COLUMNS), page_repairs[start:], strict=False):
            with column:
                show_repair(repair, verdicts.get(format_mark_key(repair.uid, repair.caption_index)))


st.title("Faults")
faults = read_faults(database.files.folder)
if faults is None:
    show_empty_state("Nobody has looked for patterns yet", "Run this command once:", f"auditor faults {database.path}")
elif not faults:
    show_empty_state("No pattern was found", "No shift, no permuted block, no bad shard, no repeated caption.")
else:
    show_faults(faults)
    if any(fault.kind in ("shift", "block") for fault in faults):
        show_repairs()
