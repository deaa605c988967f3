"""The sentences and other captions that the editor offers, and edits made on the Sample page and on cards."""

from pathlib import Path
from typing import Any

import pytest

from auditor.python_api import Audit
from dashboard.caption_editor import list_choices, list_sentences
from dashboard.review_cards import receive_decisions
from dashboard.url_state import format_row_id
from tests.support.synthetic import write_corpus_audit


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("A dog runs. It is wet!", ["A dog runs. ", "It is wet!"]),
        ("狗在跑。天空是蓝色的。", ["狗在跑。", "天空是蓝色的。"]),
        ('He says "no." She left', ['He says "no." ', "She left"]),
        ("Wait... what? (Yes.)", ["Wait... ", "what? ", "(Yes.)"]),
        ("one sentence", []),
        ("", []),
        ("a. " * 200, []),  # too many to list
    ],
)
def test_sentences_to_drop(text: str, sentences: list[str]) -> None:
    assert list_sentences({"caption": "something else", "part_ends": "3 9"}, text) == sentences
    assert not sentences or "".join(sentences) == text


def test_parts_of_the_audit_are_the_sentences_of_its_caption() -> None:
    row = {"caption": "a dog, b cat. c", "part_ends": "6 15"}
    assert list_sentences(row, row["caption"]) == ["a dog,", " b cat. c"]
    for ends in ("6 99", "9 6 15", "6 x 15", "9" * 9999, None):  # not those of this caption
        assert list_sentences({**row, "part_ends": ends}, row["caption"]) == ["a dog, b cat. ", "c"]


def test_other_captions_of_the_medium_are_choices() -> None:
    captions = [("A", "alt"), ("B", "raw"), ("A", None), (None, None), ("C", None)]
    rows = [{"caption": a, "caption_index": n, "caption_source": b} for n, (a, b) in enumerate(captions)]
    assert list_choices(rows[0], "A", rows) == [{"name": "raw", "text": "B"}, {"name": "caption 5", "text": "C"}]
    assert list_choices(rows[0], "edited", rows)[0] == {"name": "as audited", "text": "A"}


def test_edits_of_cards_are_kept_once_and_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, _ = write_corpus_audit(tmp_path)
    state: dict[str, Any] = {}
    monkeypatch.setattr("dashboard.review_cards.st.session_state", state)
    monkeypatch.setattr("dashboard.review_cards.current_reviewer", lambda: "ann")
    with Audit(folder) as audit:
        (row,) = audit.worst(n=1).to_pylist()
        card = format_row_id(row)
        sent: list[dict[str, Any]] = [{"n": 1, "ids": [card], "mark": "edit", "text": "A dog\nruns"}]

        def send(*decisions: dict[str, Any]) -> list[str]:
            sent.extend(decisions)
            state["review-cards-single"] = {"decisions": {"nonce": "x", "list": sent}}
            receive_decisions(audit.database, grid=False)
            return [edit.new_caption for edit in audit.edits()]

        assert send() == send() == ["A dog runs"]  # sent until it is acknowledged
        assert send({"n": 2, "ids": [card], "mark": "edit", "text": "Two dogs"}) == ["Two dogs"]
        assert send({"n": 3, "ids": [card], "mark": "bad"}) == ["Two dogs"]
        assert send({"n": 4, "ids": [card], "mark": "undo"}, {"n": 5, "ids": [card], "mark": "undo"}) == ["A dog runs"]
        assert send({"n": 6, "ids": [card], "mark": "undo"}) == []
        assert send({"n": 7, "ids": [card], "mark": "edit", "text": "a\0b"}) == []
        assert "control character" in state.pop("edit_problem")
        assert send({"n": 8, "ids": [card], "mark": "undo"}) == [] and "edit_problem" not in state  # of what failed
        assert send({"n": 9, "ids": [card], "mark": "edit", "text": ["list"]}) == []
        assert audit.sql("SELECT mark FROM reviews").num_rows == 0  # the mark was undone, too
