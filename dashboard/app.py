"""The dashboard: which pages there are, what every page shows beside itself, and what is said where there is no audit.

Started by `auditor dashboard AUDIT`; see auditor/commands/dashboard.py.
"""

import logging
from pathlib import Path

import streamlit as st
from PIL import Image, ImageDraw

from auditor.dashboard_settings import read_settings
from auditor.errors import AuditorError
from auditor.query.database import AuditDatabase
from dashboard.audit_source import Source, open_source
from dashboard.display_text import empty
from dashboard.password import admitted
from dashboard.records import corpus_problem

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
NO_AUDIT = {"benchmarks"}  # pages that need none

REVIEWER = "Your marks carry it. Without a name they carry one that is made up for this window."

# A filter that changes sets the gallery back to its first page; Streamlit would warn of a default beside such a value.
logging.getLogger("streamlit.elements.lib.policies").setLevel(logging.ERROR)


def main() -> None:
    st.set_page_config(page_title="auditor", page_icon=icon(), layout="wide")
    st.html(Path(__file__).with_name("style.css"))
    pages = [
        st.Page(f"screens/{name}_page.py", title=title, icon=icon, url_path=name, default=name == "overview")
        for name, title, icon in PAGES
    ]
    may_look = admitted()
    page = st.navigation(pages, position="sidebar" if may_look else "hidden")
    if not may_look:
        return
    try:
        found = open_source()
    except AuditorError as error:
        found = None
        empty("This audit cannot be opened", str(error), icon=":material/error:")
        if page.url_path not in NO_AUDIT:
            return
    if found is None and page.url_path not in NO_AUDIT:
        if not read_settings().audits:
            empty("There is no audit to show", "Start the dashboard with one:", "auditor dashboard AUDIT")
        return
    if found is not None:
        beside(found)
    try:
        page.run()
    except AuditorError as error:
        empty("That cannot be shown", str(error), icon=":material/error:")


def icon() -> Image.Image:
    """A tick, drawn here: an icon by name would be fetched from a server of others."""
    drawn = Image.new("RGB", (64, 64), "#2f6fd0")
    ImageDraw.Draw(drawn).line([(14, 34), (27, 47), (50, 18)], fill="white", width=8, joint="curve")
    return drawn


def beside(found: Source) -> None:
    """The sidebar of every page: which audit, what to know before believing it, and who is looking."""
    database = found.database
    with st.sidebar:
        st.text(database.path.rstrip("/").rsplit("/", 1)[-1] or database.path, help="The audit that is shown.")
        for note in database.notes:
            with st.container(border=True):
                st.markdown(":orange[:material/pending:] **Not the whole corpus**")
                st.text(note)
        problem = unreadable(found)
        if problem:
            with st.container(border=True):
                st.markdown(":orange[:material/folder_off:] **Media cannot be shown**")
                st.text(problem)
                st.caption("If the corpus has moved, start with `--corpus` and its new place.")
        st.text_input("Reviewer", key="reviewer", bind="query-params", placeholder="your name", help=REVIEWER)


def unreadable(found: Source) -> str | None:
    """Why media cannot be shown. Only a good answer is kept: a store may be out of reach for a moment."""
    try:
        found.ask("corpus", check_corpus)
    except AuditorError as error:
        return str(error)
    return None


def check_corpus(database: AuditDatabase) -> None:
    if problem := corpus_problem(database):
        raise AuditorError(problem)


main()
