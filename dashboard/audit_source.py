"""The audit that the pages show: opened once for all sessions, opened again when its files change, answers kept.

Answers are kept by the audit's path and state, so an unfinished audit is seen to grow and a finished one is asked once.
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
LIMITS = Limits(memory="4GB", seconds=30.0)  # nobody looks at a page for longer


@dataclass(frozen=True)
class Source:
    """An open audit and what makes its answers its own."""

    database: AuditDatabase
    identity: str

    def ask(self, name: str, question: Callable[..., Answer], *arguments: Any) -> Answer:
        """`question(database, *arguments)`, asked once; `name` and arguments tell answers apart."""
        given = repr(arguments)
        marks = (
            self.database.reviews_version if "review" in given.lower() else ""
        )  # which change while the audit stays as it is
        answer: Answer = _kept(f"{self.identity} {marks}", name, given, lambda: question(self.database, *arguments))
        return answer


@st.cache_data(max_entries=400, show_spinner=False)
def _kept(identity: str, name: str, arguments: str, _question: Callable[[], Any]) -> Any:
    return _question()


@st.cache_resource(max_entries=3, show_spinner="Opening the audit …")
def _open(path: str, corpus: str | None, state: str) -> AuditDatabase:
    return AuditDatabase(path, corpus, limits=LIMITS).load_into_memory(later=True)


def state_of(path: str) -> str:
    """Changes when a local audit does; one on an object store is looked at once."""
    try:
        written = os.stat(os.path.join(path, "manifest.json")).st_mtime_ns
        shards = sum(
            sum(file.endswith(".parquet") and not file.startswith(".") for file in os.listdir(folder))
            for name in ("samples", "embeddings")
            if os.path.isdir(folder := os.path.join(path, name))
        )
    except OSError:
        return ""
    return f"{written}-{shards}"


def open_source(number: int = 0) -> Source | None:
    """The first or second audit of the command line; None where there is none. Raises AuditError."""
    settings = read_settings()
    if number >= len(settings.audits):
        return None
    path = settings.audits[number]
    corpus = settings.corpus if number == 0 else None
    state = state_of(path)
    database = _open(path, corpus, state)
    database.see_new_marks()
    return Source(database, f"{path} {corpus} {state}")


def source() -> Source:
    """For pages: app.py has made sure that there is one."""
    found = open_source()
    assert found is not None
    return found
