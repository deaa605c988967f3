"""Shards: which part of the corpus is bad, a line for every shard, topic or value of a column; a click browses it."""

import streamlit as st

from auditor.query.corpus_groups import Group, Groups, grouping_columns, groups_by
from dashboard.audit_source import source
from dashboard.display_text import empty, label
from dashboard.heat_table import heated
from dashboard.url_state import BROWSE, FAULTS

SORTS = ("mismatched", "unusable", "ambiguous", "rows", "name")

found = source()
database = found.database


def ordered(groups: list[Group], by: str) -> list[Group]:
    """The worst first; those without a number last."""
    if by == "name":
        return sorted(groups, key=lambda group: group.name)
    if by == "rows":
        return sorted(groups, key=lambda group: -group.rows)
    return sorted(groups, key=lambda group: -(share.share if (share := getattr(group, by)) else -1.0))


def record(group: Group, faults: bool) -> dict[str, object]:
    mismatched = group.mismatched
    return {
        "part": group.name,
        "rows": group.rows,
        "unusable": 100 * group.unusable.share,
        "mismatched": None if mismatched is None else 100 * mismatched.share,
        "at least": None if mismatched is None else 100 * mismatched.low,
        "at most": None if mismatched is None else 100 * mismatched.high,
        "ambiguous": None if group.ambiguous is None else 100 * group.ambiguous.share,
        "similarity": group.similarity,
        **({"faults": "; ".join(group.faults)} if faults else {}),
    }


def table(parts: Groups, groups: list[Group]) -> None:
    """The heat table; a click on any cell of a line browses its rows."""
    with_faults = any(group.faults for group in groups)
    columns = {name: st.column_config.NumberColumn(format="%.1f%%") for name in ("unusable", "mismatched", "ambiguous")}
    columns |= {name: st.column_config.NumberColumn(format="%.1f%%", width="small") for name in ("at least", "at most")}
    event = st.dataframe(
        heated([record(group, with_faults) for group in groups]),
        key=f"parts-{parts.by}",
        hide_index=True,
        height=min(35 * len(groups) + 38, 640),
        on_select="rerun",
        selection_mode="single-cell",
        column_config=columns
        | {
            "part": st.column_config.TextColumn(label(parts.by), width=340 if parts.by == "topic" else "medium"),
            "rows": st.column_config.NumberColumn(format="localized"),
            "similarity": st.column_config.NumberColumn("mean similarity", format="%.3f"),
            "faults": st.column_config.TextColumn(width="large"),
        },
    )
    if cells := event.selection.cells:
        st.switch_page(BROWSE, query_params={"where": groups[cells[0][0]].where})


st.title("Shards")
with st.container(horizontal=True, vertical_alignment="bottom"):
    by = st.selectbox("A line for each", grouping_columns(database), key="by", bind="query-params", width=320)
    sort = st.selectbox("Sort by", SORTS, key="first", bind="query-params", width=200)
parts: Groups = found.ask("groups", groups_by, by)
if not parts.groups:
    empty("Nothing has been audited yet", "Lines appear here while the audit runs.")
    st.stop()
groups = ordered(parts.groups, sort)
st.markdown(
    f"**{len(groups):,}** parts, the deeper the colour the worse; click one to browse its rows."
    + (f" {parts.left_out:,} smaller ones are not listed." if parts.left_out else "")
)
table(parts, groups)
st.caption(
    "Mismatched with its 90% interval (at least, at most). Small parts are drawn towards the whole corpus, so that a "
    "few rows do not make the worst one."
)
if any(group.faults for group in groups):
    st.page_link(FAULTS, label="All faults, and what would repair them", icon=":material/report:")
