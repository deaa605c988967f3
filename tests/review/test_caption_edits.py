"""Edits by hand: who may change what, the list of edits with those whose row is gone, the command, and verify."""

import csv
import io
import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from auditor.audit_folder.edit_records import EditError
from auditor.cli import run_command_line
from auditor.python_api import Audit
from auditor.query.explain import ExplainError
from auditor.review.caption_edits import edit_row
from auditor.sweep.caption_facts import hash_caption
from tests.support.edited import change_rows
from tests.support.synthetic import write_corpus_audit


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_corpus_audit(tmp_path, captions=2)[0]


def list_statuses(audit: Audit) -> list[tuple[str, int, str, str, str]]:
    return [(edit.key, edit.caption_index, edit.status, edit.reviewer, edit.new_caption) for edit in audit.edits()]


def test_edits_by_key_and_uid_are_listed_and_taken_back(folder: Path) -> None:
    with Audit(folder) as audit:
        assert audit.edits() == []
        first = audit.edit("000003", " A dog\nruns ", caption_index=1, reviewer="ann")
        assert (first.new_caption, first.old_caption) == ("A dog runs", audit.row(first.uid, 1)["caption"])  # type: ignore[index]
        audit.edit(first.uid, "Two dogs run", caption_index=1, reviewer="bob")
        assert list_statuses(audit) == [
            ("000003", 1, "applied", "bob", "Two dogs run"),
            ("000003", 1, "replaced", "ann", "A dog runs"),
        ]
        audit.edit("000003", None, caption_index=1, reviewer="bob")
        assert list_statuses(audit) == [("000003", 1, "applied", "ann", "A dog runs")]
        with Audit(folder) as other:  # another process
            other.edit("000003", first.old_caption, caption_index=1, reviewer="bob")  # back to the audited text
        kept = audit.keep(where="key = '000003'")
        assert (
            kept.change_counts["changed"] == 0
            and first.old_caption in kept.to_arrow(["caption"])["caption"].to_pylist()
        )


def test_edits_that_change_nothing_are_refused(folder: Path) -> None:
    with Audit(folder) as audit:
        caption = audit.row(audit.edit("000003", "New", reviewer="ann").uid)["caption"]  # type: ignore[index]
        for text, reviewer, words in (
            ("New", "bob", "has this caption already"),
            (None, "bob", "bob has not edited"),
            ("", "ann", "cannot be empty"),
        ):
            with pytest.raises(EditError, match=words):
                audit.edit("000003", text, reviewer=reviewer)
        with pytest.raises(EditError, match="already"):
            audit.edit("000004", audit.sql("SELECT caption FROM samples WHERE key = '000004'")["caption"][0].as_py())
        with pytest.raises(ExplainError, match="no row 'nothing'"):
            audit.edit("nothing", "New")
        assert caption and len(audit.edits()) == 1


def test_two_open_audits_see_the_edits_of_each_other(folder: Path) -> None:
    with Audit(folder) as one, Audit(folder) as other:
        row = one.page("status = 'ok'", limit=1).to_pylist()[0]
        edit_row(one.database, row, "One", "ann")
        edit_row(other.database, row, "Other", "bob")
        for audit in (one, other):
            assert [edit.new_caption for edit in audit.edits()] == ["Other", "One"]


def test_an_edit_survives_another_audit_but_not_another_caption(folder: Path, tmp_path: Path) -> None:
    with Audit(folder) as audit:
        for key in ("000003", "000004"):
            audit.edit(key, f"Edited {key}", reviewer="ann")
        caption = str(audit.page("key = '000003'", limit=1)["caption"][0]).upper()
    change_rows(folder, {
        ("000003", 0): {"uid": "e" * 32, "caption": caption},  # spelled differently
        ("000004", 0): {"caption": "Something else", "caption_hash": hash_caption("Something else")},
    })  # fmt: skip
    with Audit(folder) as audit:
        audit.edit("000005", "To be withdrawn", reviewer="ann")
        audit.edit("000005", None, reviewer="ann")
        (applied, gone) = audit.edits()
        assert (applied.key, applied.status, applied.uid) == ("000003", "applied", "e" * 32)
        assert (gone.key, gone.status, gone.new_caption) == ("000004", "gone", "Edited 000004")
        assert audit.keep().change_counts["edited"] == 1
        assert "Something else" in audit.keep().to_arrow(["caption"])["caption"].to_pylist()
    shutil.copytree(folder, tmp_path / "copy")
    with Audit(tmp_path / "copy") as audit:
        assert len(audit.edits()) == 2


def test_the_command_lists_edits_and_no_cell_is_a_formula(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")  # characters of a line of the table
    assert run_command_line(["edits", str(folder)]) == 0
    assert capsys.readouterr().out.strip() == "nobody has edited a caption of this audit"
    with Audit(folder) as audit:
        audit.edit("000003", "=HYPERLINK(1)", reviewer="@ann")
    assert run_command_line(["edits", str(folder)]) == 0
    assert "=HYPERLINK(1)" in capsys.readouterr().out
    assert run_command_line(["edits", str(folder), "--csv"]) == 0
    (line,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (line["new_caption"], line["reviewer"], line["status"]) == ("'=HYPERLINK(1)", "'@ann", "applied")
    assert run_command_line(["edits", str(folder), "--json", "--parquet", str(tmp_path / "edits.parquet")]) == 0
    (entry,) = json.loads(capsys.readouterr().out)
    assert pq.read_table(tmp_path / "edits.parquet").to_pylist() == [entry]
    assert entry["new_caption"] == "=HYPERLINK(1)" and entry["key"] == "000003"


def test_explain_shows_the_edits(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Audit(folder) as audit:
        audit.edit("000003", "A dog runs", reviewer="ann")
        audit.edit("000003", "A dog \u202esnur", reviewer="bob")
    assert run_command_line(["explain", str(folder), "000003", "--caption", "0"]) == 0
    out = capsys.readouterr().out
    assert "edited by bob, 20" in out and "A dog \\u202esnur" in out and "replaced edit by ann" in out
    assert run_command_line(["explain", str(folder), "000003", "--caption", "0", "--json"]) == 0
    assert [edit["reviewer"] for edit in json.loads(capsys.readouterr().out)["edits"]] == ["bob", "ann"]
    assert run_command_line(["explain", str(folder), "000004"]) == 0
    assert "edited" not in capsys.readouterr().out


def test_verify_is_not_confused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_command_line(["verify", str(folder), "--files"])
    before = capsys.readouterr().out
    with Audit(folder) as audit:
        audit.edit("000003", "A dog runs", reviewer="ann")
    run_command_line(["verify", str(folder), "--files"])
    assert capsys.readouterr().out == before
