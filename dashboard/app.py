"""The dashboard: its pages, the sidebar that all pages share, and the messages if no audit can be shown.

Started by `auditor dashboard AUDIT`; see auditor/commands/everyday/dashboard.py.
"""

import logging
from pathlib import Path

import streamlit as st
from PIL import Image, ImageDraw

from auditor.dashboard_settings import read_settings
from auditor.errors import AuditorError
from auditor.query.database import AuditDatabase
from dashboard.audit_source import open_numbered_audit
from dashboard.display_text import show_empty_state
from dashboard.records import find_corpus_problem
from dashboard.url_state import remember_reviewer

PAGES = (
    ("overview", "Overview", ":material/insights:"),
    ("browse", "Browse", ":material/photo_library:"),
    ("review", "Review", ":material/checklist:"),
    ("sample", "Sample", ":material/search:"),
    ("thresholds", "Thresholds", ":material/tune:"),
    ("map", "Map", ":material/scatter_plot:"),
    ("shards", "Shards", ":material/grid_on:"),
    ("faults", "Faults", ":material/report:"),
    ("compare", "Compare", ":material/compare_arrows:"),
    ("benchmarks", "Benchmarks", ":material/leaderboard:"),
)
REVIEWER_HELP = "Stored with your marks. If you enter no name, this browser gets a generated one and keeps it."

# A changed filter sets the gallery back to its first page. Streamlit would warn that the widget also has a default.
logging.getLogger("streamlit.elements.lib.policies").setLevel(logging.ERROR)


def main() -> None:
    st.set_page_config(page_title="auditor", page_icon=draw_icon(), layout="wide")
    st.html(Path(__file__).with_name("style.css"))
    pages = [
        st.Page(f"screens/{name}_page.py", title=title, icon=icon, url_path=name, default=name == "overview")
        for name, title, icon in PAGES
    ]
    page = st.navigation(pages)
    needs_audit = page.url_path != "benchmarks"
    audit = None
    try:
        audit = open_numbered_audit()
        if audit is None and needs_audit:
            show_empty_state("There is no audit to show", "Start the dashboard with one:", "auditor dashboard AUDIT")
    except AuditorError as error:
        show_empty_state("This audit cannot be opened", str(error), icon=":material/error:")
    if audit is not None:
        show_sidebar(audit.database)
    elif needs_audit:
        return
    try:
        page.run()
    except AuditorError as error:
        show_empty_state("This page cannot be shown", str(error), icon=":material/error:")


def draw_icon() -> Image.Image:
    """A check mark, drawn here because Streamlit fetches icons with a name from a server."""
    icon = Image.new("RGB", (64, 64), "#2f6fd0")
    ImageDraw.Draw(icon).line([(14, 34), (27, 47), (50, 18)], fill="white", width=8, joint="curve")
    return icon


def show_sidebar(database: AuditDatabase) -> None:
    with st.sidebar:
        st.text(database.path.rstrip("/").rsplit("/", 1)[-1] or database.path, help="The open audit.")
        for note in database.notes:
            with st.container(border=True):
                st.markdown(":orange[:material/pending:] **Not the whole corpus**")
                st.text(note)
        if problem := find_corpus_problem(database):
            with st.container(border=True):
                st.markdown(":orange[:material/folder_off:] **Media cannot be shown**")
                st.text(problem)
                st.caption("If the corpus has moved, restart the dashboard with `--corpus` and its new location.")
        st.text_input("Reviewer", key="reviewer", bind="query-params", placeholder="your name", help=REVIEWER_HELP)
        remember_reviewer()
        if read_settings().password:
            st.html('<a href="/logout" target="_self">Log out</a>')


main()
