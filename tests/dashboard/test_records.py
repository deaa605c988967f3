"""What pages ask of an audit, against the same by hand over all rows."""

import io
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from auditor.audit import Audit
from auditor.keep.rule_effects import rule_effects
from auditor.query.database import AuditDatabase
from auditor.query.rules import Rules
from dashboard import records
from dashboard.row_selection import Selection
from dashboard.url_state import View
from tests.support.synthetic import write_audit, write_corpus_audit


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    return Audit(write_audit(tmp_path_factory.mktemp("audit"), 3000, 1000))


def test_cells_and_bars_hold_every_row_once(audit: Audit) -> None:
    usable = audit.count("status = 'ok'")
    found = records.cells(audit.density("similarity", "uncertainty_text", bins=12))
    assert sum(cell["rows"] for cell in found) == usable and all(cell["rows"] for cell in found)
    cell = max(found, key=lambda one: one["rows"])
    ranges = {"similarity": (cell["x_low"], cell["x_high"]), "uncertainty_text": (cell["y_low"], cell["y_high"])}
    there = audit.count(Selection(ranges=ranges).condition(audit.database))
    assert cell["rows"] <= there <= cell["rows"] + 3  # both ends belong to a range
    drawn = records.bars(audit.histogram("similarity", bins=20))
    assert sum(bar["rows"] for bar in drawn) == usable
    assert sum(bar["share"] for bar in drawn) == pytest.approx(1)


def test_null_curves_are_shares(audit: Audit) -> None:
    found = records.null_curves(audit.database, "image")
    assert sum(row["all pairs"] for row in found) == pytest.approx(1)
    assert sum(row["mismatched"] for row in found) == pytest.approx(0.07)
    assert records.null_curves(audit.database, "sound") == []
    assert records.statistics_kinds(audit.database) == ["image", "video"]


def test_neighbours_are_those_of_the_page(audit: Audit) -> None:
    view = View(Selection(), "similarity", True, grouped=False)
    page = audit.page("kind = 'video'", "similarity", True, limit=3).to_pylist()
    found = [records.neighbour(audit.database, "kind = 'video'", view, at) for at in range(3)]
    assert [row["uid"] for row in found if row] == [row["uid"] for row in page]
    assert records.neighbour(audit.database, "kind = 'video'", view, -1) is None
    assert records.neighbour(audit.database, "FALSE", view, 0) is None


def test_files_to_download(audit: Audit) -> None:
    table = pq.read_table(io.BytesIO(records.rows_file(audit.database, "status <> 'ok'")))
    assert table.num_rows == audit.count("status <> 'ok'") > 0
    assert pq.read_table(io.BytesIO(records.rows_file(audit.database, None, most=7))).num_rows == 7
    kept = np.load(io.BytesIO(records.subset_file(audit.database, Rules.of(max_p_mismatch=0.1))), allow_pickle=False)
    assert kept.dtype == np.dtype("u8,u8") and len(kept) == audit.keep(max_p_mismatch=0.1).count


def test_downloads_agree_with_what_is_shown(tmp_path: Path) -> None:
    """Keys are those of media, uids those of pairs: both counts stand on the page."""
    database = AuditDatabase(write_corpus_audit(tmp_path, captions=5)[0])
    rules = Rules.of(max_p_mismatch=0.05)
    uids = np.load(io.BytesIO(records.subset_file(database, rules)), allow_pickle=False)
    keys = records.subset_file(database, rules, "txt").splitlines()
    assert len(uids) == rule_effects(database, rules).kept
    assert len(keys) == records.media_kept(database, rules) < len(uids)


def test_a_corpus_that_moved_is_told(tmp_path: Path) -> None:
    folder, corpus = write_corpus_audit(tmp_path)
    assert records.corpus_problem(AuditDatabase(folder)) is None
    corpus.rename(tmp_path / "elsewhere")
    assert "does not exist" in (records.corpus_problem(AuditDatabase(folder)) or "")
    assert records.corpus_problem(AuditDatabase(folder, tmp_path / "elsewhere")) is None


def test_a_corpus_out_of_reach_is_tried_again_without_asking_the_audit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, corpus = write_corpus_audit(tmp_path)
    database = Audit(path).database
    corpus.rename(tmp_path / "moved")
    assert records.corpus_problem(database)
    monkeypatch.setattr(type(database), "rows", lambda *_: pytest.fail("asked once more"))
    assert records.corpus_problem(database)
    (tmp_path / "moved").rename(corpus)
    assert records.corpus_problem(database) is None


def test_marks_of_a_row(tmp_path: Path) -> None:
    folder, _ = write_corpus_audit(tmp_path)
    audit = Audit(folder)
    uid = audit.page(limit=1).to_pylist()[0]["uid"]
    audit.mark(uid, "good", reviewer="ann")
    audit.mark(uid, "bad", reviewer="bob", note="<b>")
    assert [(row["reviewer"], row["mark"]) for row in records.marks_of(audit.database, uid, 0)] == [
        ("bob", "bad"),
        ("ann", "good"),
    ]
    assert audit.count(Selection(review="any").condition(audit.database)) == 1
    assert audit.count(Selection(review="unsure").condition(audit.database)) == 1
    assert audit.count(Selection(review="none").condition(audit.database)) == audit.count() - 1


def test_an_audit_without_statistics_has_no_curves(tmp_path: Path) -> None:
    folder = write_audit(tmp_path, 50)
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "statistics": {"image": {"pi0": None}}}))
    assert records.statistics_kinds(AuditDatabase(folder)) == []
