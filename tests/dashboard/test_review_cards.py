"""Decisions that come from the browser: kept once, in order, and undone."""

from pathlib import Path
from typing import Any

import pytest

from auditor.audit import Audit
from auditor.query.reviews import read_reviews
from auditor.review.review_queues import marks_by
from dashboard.review_cards import parts, take
from dashboard.url_state import identity
from tests.support.synthetic import write_corpus_audit


def test_decisions_are_kept_once_and_undone(
    small: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = write_corpus_audit(tmp_path)
    state: dict[str, Any] = {}
    monkeypatch.setattr("dashboard.review_cards.st.session_state", state)
    with Audit(folder) as audit:
        first, second = (identity(row) for row in audit.worst(n=2).to_pylist())
        audit.mark(parts(first)[0], "good", caption_index=parts(first)[1], reviewer="ann")
        sent = [{"n": 1, "ids": [first, second], "mark": "bad"}, {"n": 2, "ids": [second], "mark": "skip"}]
        state["deck-many"] = {"decisions": {"nonce": "x", "list": sent}}
        state["reviewer"] = "ann"
        monkeypatch.setattr("dashboard.review_cards.reviewer", lambda: "ann")
        for _ in range(2):  # the browser sends again what it does not know to be seen
            take(audit.database, many=True)
        assert marks_by(audit.database, "ann") == {parts(first): "bad", parts(second): "bad"}
        assert len(read_reviews(audit.database.files.folder)) == 3 and state["skipped"] == {second}
        sent.append({"n": 3, "ids": [first, second], "mark": "undo"})
        take(audit.database, many=True)
        assert marks_by(audit.database, "ann") == {parts(first): "good"}  # what it had before, or nothing
        sent.append({"n": 4, "ids": [first], "mark": "undo"})
        take(audit.database, many=True)
        assert marks_by(audit.database, "ann") == {parts(first): "good"}  # there is nothing more to undo
