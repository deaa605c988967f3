"""Asks for the password, if the dashboard was started with one, before any page is shown.

A cookie keeps a browser logged in when it reloads the page. It holds a digest of the password, which is useless on a
server with another password.
"""

import hashlib
import hmac
import time

import streamlit as st

from auditor.dashboard_settings import read_settings

COOKIE = "auditor-password"
DELAY = 1.0  # seconds after a wrong password


def check_password() -> bool:
    """Whether this browser may see the pages; asks for the password if it may not yet."""
    password = read_settings().password
    if not password:
        return True
    digest = digest_password(password)
    if equal_in_constant_time(str(st.context.cookies.get(COOKIE, "")), digest):
        return True
    if st.session_state.get("unlocked"):
        script = f"document.cookie = '{COOKIE}={digest}; path=/; SameSite=Strict'"
        st.html(f"<script>{script}</script>", unsafe_allow_javascript=True)
        return True
    ask_password(password)
    return False


def ask_password(password: str) -> None:
    entry = st.text_input("Password", type="password", help="The person who started this dashboard has the password.")
    if entry and equal_in_constant_time(entry, password):
        st.session_state["unlocked"] = True
        st.rerun()
    elif entry:
        time.sleep(DELAY)
        st.error("That is not the password.")


def digest_password(password: str) -> str:
    return hashlib.blake2b(password.encode(), digest_size=16, person=b"auditor").hexdigest()


def equal_in_constant_time(first: str, second: str) -> bool:
    return hmac.compare_digest(first.encode(), second.encode())
