"""Opens the audits that the pages show: once for all sessions, and again when their files change.

Answers are cached by the path and the state of the audit, so an unfinished audit grows on the page and a finished one
is queried once.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import streamlit as st

from auditor.dashboard_settings import read_settings
from auditor.query.database import AuditDatabase
from auditor.query.sandbox import Limits

Answer = TypeVar("Answer")
LIMITS = Limits(memory="4GB", seconds=30.0)  # nobody waits longer for a page


@dataclass(frozen=True)
class OpenAudit:
    """An open audit; `identity` is the part of every cache key that stands for its path and state."""

    database: AuditDatabase
    identity: str

    def ask(self, name: str, question: Callable[..., Answer], *arguments: Any, version: str = "") -> Answer:
        """`question(database, *arguments)`, computed once for each name, arguments and version.

        An answer that changes with the marks of reviewers needs their version, as of `database.freshness(condition)`.
        """
        key = f"{self.identity} {version} {name} {arguments!r}"
        answer: Answer = _cached_answer(key, lambda: question(self.database, *arguments))
        return answer


@st.cache_data(max_entries=400, show_spinner=False)
def _cached_answer(key: str, _question: Callable[[], Any]) -> Any:
    return _question()


@st.cache_resource(max_entries=3, show_spinner="Opening the audit …")
def _open_database(path: str, corpus: str | None, state: str) -> AuditDatabase:
    return AuditDatabase(path, corpus, limits=LIMITS).load_into_memory(in_background=True)


def read_audit_state(path: str) -> str:
    """A text that changes when a local audit changes; empty for an audit in an object store."""
    try:
        modified = os.stat(os.path.join(path, "manifest.json")).st_mtime_ns
        shards = sum(
            sum(file.endswith(".parquet") and not file.startswith(".") for file in os.listdir(folder))
            for name in ("samples", "embeddings")
            if os.path.isdir(folder := os.path.join(path, name))
        )
    except OSError:
        return ""
    return f"{modified}-{shards}"


def open_numbered_audit(number: int = 0) -> OpenAudit | None:
    """The first or second audit of the command line, or None if there is no such one. Raises AuditError."""
    settings = read_settings()
    if number >= len(settings.audits):
        return None
    path = settings.audits[number]
    corpus = settings.corpus if number == 0 else None
    state = read_audit_state(path)
    database = _open_database(path, corpus, state)
    database.reload_changed_reviews()
    return OpenAudit(database, f"{path} {corpus} {state}")


def open_first_audit() -> OpenAudit:
    """The audit for a page; app.py runs pages only if there is one."""
    audit = open_numbered_audit()
    assert audit is not None
    return audit
