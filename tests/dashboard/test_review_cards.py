"""Decisions of the browser are saved once, in order, and can be undone."""

from pathlib import Path
from typing import Any

import pytest

from auditor.python_api import Audit
from auditor.query.reviews import read_reviews
from auditor.review.review_queues import fetch_reviewer_marks
from dashboard.review_cards import receive_decisions, split_identity
from dashboard.url_state import format_row_id
from tests.support.synthetic import write_corpus_audit


def test_decisions_are_kept_once_and_undone(
    small: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = write_corpus_audit(tmp_path)
    state: dict[str, Any] = {}
    monkeypatch.setattr("dashboard.review_cards.st.session_state", state)
    with Audit(folder) as audit:
        first, second = (format_row_id(row) for row in audit.worst(n=2).to_pylist())
        first_key, second_key = split_identity(first), split_identity(second)
        audit.mark(first_key[0], "good", caption_index=first_key[1], reviewer="ann")
        sent = [{"n": 1, "ids": [first, second], "mark": "bad"}, {"n": 2, "ids": [second], "mark": "skip"}]
        state["review-cards-grid"] = {"decisions": {"nonce": "x", "list": sent}}
        state["reviewer"] = "ann"
        monkeypatch.setattr("dashboard.review_cards.current_reviewer", lambda: "ann")
        for _ in range(2):  # the browser sends its decisions until they are acknowledged
            receive_decisions(audit.database, grid=True)
        assert fetch_reviewer_marks(audit.database, "ann") == {first_key: "bad", second_key: "bad"}
        assert len(read_reviews(audit.database.files.folder)) == 3 and state["skipped"] == {second}
        sent.append({"n": 3, "ids": [first, second], "mark": "undo"})
        receive_decisions(audit.database, grid=True)
        assert fetch_reviewer_marks(audit.database, "ann") == {first_key: "good"}  # the mark from before
        sent.append({"n": 4, "ids": [first], "mark": "undo"})
        receive_decisions(audit.database, grid=True)
        assert fetch_reviewer_marks(audit.database, "ann") == {first_key: "good"}  # nothing is left to undo
