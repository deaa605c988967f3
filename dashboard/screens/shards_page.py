"""Shards: which part of the corpus is bad. One line for each shard, topic or value of a column; a click browses it."""

import streamlit as st

from auditor.query.corpus_groups import Group, Groups, group_rows, list_grouping_columns
from auditor.report.source_comparison import compare_sources
from dashboard.audit_source import open_first_audit
from dashboard.display_text import column_label, show_empty_state, show_source_table, style_heat_table
from dashboard.gallery import show_compact_gallery
from dashboard.records import group_record
from dashboard.review_cards import resend_pictures
from dashboard.row_selection import RowSelection
from dashboard.url_state import BROWSE, FAULTS, GalleryView

SORTS = ("mismatched", "unusable", "ambiguous", "rows", "name")
CARDS = 12  # of the worst group
LINE, HEADER, TALLEST = 35, 38, 640  # pixels of a table

audit = open_first_audit()
database = audit.database


def sort_groups(groups: list[Group], sort: str) -> list[Group]:
    """The worst groups first, those without a number last."""
    if sort == "name":
        return sorted(groups, key=lambda group: group.name)
    if sort == "rows":
        return sorted(groups, key=lambda group: -group.rows)
    return sorted(groups, key=lambda group: -(share.share if (share := getattr(group, sort)) else -1.0))


def show_table(column: str, groups: list[Group]) -> None:
    """Show the heat table; a click on a cell browses the rows of its line."""
    with_faults = any(group.faults for group in groups)
    number = st.column_config.NumberColumn
    shares = {name: number(format="%.1f%%") for name in ("unusable", "mismatched", "ambiguous")}
    ends = {name: number(format="%.1f%%", width="small") for name in ("at least", "at most")}
    event = st.dataframe(
        style_heat_table([group_record(group, with_faults) for group in groups]),
        key=f"parts-{column}",
        hide_index=True,
        height=min(LINE * len(groups) + HEADER, TALLEST),
        on_select="rerun",
        selection_mode="single-cell",
        column_config={
            **shares,
            **ends,
            "group": st.column_config.TextColumn(column_label(column), width=340 if column == "topic" else "medium"),
            "rows": number(format="localized"),
            "similarity": number("mean similarity", format="%.3f"),
            "faults": st.column_config.TextColumn(width="large"),
        },
    )
    if cells := event.selection.cells:
        st.switch_page(BROWSE, query_params={"where": groups[cells[0][0]].where})


st.title("Shards")
with st.container(horizontal=True, vertical_alignment="bottom"):
    column = st.selectbox("One line per", list_grouping_columns(database), key="by", bind="query-params", width=320)
    sort = st.selectbox("Sort by", SORTS, key="first", bind="query-params", width=200)
result: Groups = audit.ask("groups", group_rows, column, version=database.reviews_version)
if not result.groups:
    show_empty_state("Nothing has been audited yet", "Lines appear here while the audit runs.")
    st.stop()
groups = sort_groups(result.groups, sort)
noun = "group" if len(groups) == 1 else "groups"
st.markdown(
    f"**{len(groups):,}** {noun}. The deeper the color, the worse the group; click one to browse its rows."
    + (f" {result.left_out:,} smaller groups are not listed." if result.left_out else "")
)
show_table(column, groups)
if column == "caption_source":
    show_source_table(audit.ask("sources", compare_sources))
st.caption(
    "Mismatched pairs are estimated with a 90% interval (at least, at most). The estimates of small groups are shrunk "
    "toward the whole corpus, so that a few rows do not make a group the worst."
)
if any(group.faults for group in groups):
    st.page_link(FAULTS, label="All faults and their repairs", icon=":material/report:")
if sort not in ("rows", "name"):
    st.subheader("The most suspicious pairs of the first group")
    resend_pictures()
    worst = GalleryView(RowSelection(where=groups[0].where), size=CARDS)
    show_compact_gallery(audit, worst.selection.condition(database), worst, browsing=False)
