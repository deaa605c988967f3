"""Who may look: where the dashboard was started with a password, no page is shown before it was given.

A cookie keeps a browser admitted when it loads the page again; it holds a digest, worth nothing to another server
with another password.
"""

import hashlib
import hmac
import time

import streamlit as st

from auditor.dashboard_settings import read_settings

COOKIE = "auditor-admitted"
DELAY = 1.0  # seconds after a wrong password


def admitted() -> bool:
    """Whether this browser may see the pages; asks for the password where it may not yet."""
    password = read_settings().password
    if not password:
        return True
    mark = mark_of(password)
    if same(str(st.context.cookies.get(COOKIE, "")), mark):
        return True
    if st.session_state.get("admitted"):
        keep = f"document.cookie = '{COOKIE}={mark}; path=/; SameSite=Strict'"
        st.html(f"<script>{keep}</script>", unsafe_allow_javascript=True)
        return True
    ask(password)
    return False


def ask(password: str) -> None:
    given = st.text_input("Password", type="password", help="Ask whoever started this dashboard.")
    if given and same(given, password):
        st.session_state["admitted"] = True
        st.rerun()
    elif given:
        time.sleep(DELAY)
        st.error("That is not the password.")


def mark_of(password: str) -> str:
    return hashlib.blake2b(password.encode(), digest_size=16, person=b"auditor").hexdigest()


def same(given: str, wanted: str) -> bool:
    """In a time that tells nothing."""
    return hmac.compare_digest(given.encode(), wanted.encode())
