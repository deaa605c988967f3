"""Rows, records and downloads of the pages, against plain computations over all rows."""

import io
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from auditor.keep.rule_effects import measure_rule_effects
from auditor.python_api import Audit
from auditor.query.database import AuditDatabase
from auditor.query.row_queries import list_row_marks
from auditor.query.rules import Rules
from dashboard import records
from dashboard.row_selection import RowSelection
from dashboard.url_state import GalleryView
from tests.support.synthetic import write_audit, write_corpus_audit


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    return Audit(write_audit(tmp_path_factory.mktemp("audit"), 3000, 1000))


def test_the_ranges_of_a_cell_select_its_rows(audit: Audit) -> None:
    density = audit.density("similarity", "uncertainty_text", bins=12)
    row, column = np.unravel_index(density.counts.argmax(), density.counts.shape)
    parameters = records.cell_ranges(density, f"{column}-{row}")
    ranges = {name: (float(low), float(high)) for name, (low, high) in parameters.items()}
    count = audit.count(RowSelection(ranges=ranges).condition(audit.database))
    assert set(ranges) == {"similarity", "uncertainty_text"}
    assert density.counts.max() <= count <= density.counts.max() + 3  # both ends belong to a range


def test_kinds_with_an_estimate(audit: Audit) -> None:
    assert list(records.estimated_kinds(audit.database)) == ["image", "video"]


def test_pages_of_a_list() -> None:
    assert [records.count_pages(items, 6) for items in (0, 1, 6, 7)] == [1, 1, 1, 2]
    assert [list(records.list_page(range(7), number, 6)) for number in (1, 2)] == [[0, 1, 2, 3, 4, 5], [6]]


def test_neighbors_are_those_of_the_page(audit: Audit) -> None:
    view = GalleryView(RowSelection(), "similarity", True, grouped=False)
    page = audit.page("kind = 'video'", "similarity", True, limit=3).to_pylist()
    neighbors = [records.find_neighbor(audit.database, "kind = 'video'", view, position) for position in range(3)]
    assert [row["uid"] for row in neighbors if row] == [row["uid"] for row in page]
    assert records.find_neighbor(audit.database, "kind = 'video'", view, -1) is None
    assert records.find_neighbor(audit.database, "FALSE", view, 0) is None


def test_files_to_download(audit: Audit) -> None:
    table = pq.read_table(io.BytesIO(records.make_rows_file(audit.database, "status <> 'ok'")))
    assert table.num_rows == audit.count("status <> 'ok'") > 0
    assert pq.read_table(io.BytesIO(records.make_rows_file(audit.database, None, limit=7))).num_rows == 7
    kept = np.load(
        io.BytesIO(records.make_subset_file(audit.database, Rules.of(max_p_mismatch=0.1))), allow_pickle=False
    )
    assert kept.dtype == np.dtype("u8,u8") and len(kept) == audit.keep(max_p_mismatch=0.1).count


def test_downloads_agree_with_what_is_shown(tmp_path: Path) -> None:
    """Keys are those of media, uids those of pairs: both counts stand on the page."""
    database = AuditDatabase(write_corpus_audit(tmp_path, captions=5)[0])
    rules = Rules.of(max_p_mismatch=0.05)
    uids = np.load(io.BytesIO(records.make_subset_file(database, rules)), allow_pickle=False)
    keys = records.make_subset_file(database, rules, "txt").splitlines()
    assert len(uids) == measure_rule_effects(database, rules).kept
    assert len(keys) == records.count_kept_media(database, rules) < len(uids)


def test_a_corpus_that_moved_is_reported(tmp_path: Path) -> None:
    folder, corpus = write_corpus_audit(tmp_path)
    assert records.find_corpus_problem(AuditDatabase(folder)) is None
    corpus.rename(tmp_path / "elsewhere")
    assert "does not exist" in (records.find_corpus_problem(AuditDatabase(folder)) or "")
    assert records.find_corpus_problem(AuditDatabase(folder, tmp_path / "elsewhere")) is None


def test_a_corpus_out_of_reach_is_tried_again_without_asking_the_audit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, corpus = write_corpus_audit(tmp_path)
    database = Audit(path).database
    corpus.rename(tmp_path / "moved")
    assert records.find_corpus_problem(database)
    monkeypatch.setattr(type(database), "rows", lambda *_: pytest.fail("asked once more"))
    assert records.find_corpus_problem(database)
    (tmp_path / "moved").rename(corpus)
    assert records.find_corpus_problem(database) is None


def test_marks_of_a_row(tmp_path: Path) -> None:
    folder, _ = write_corpus_audit(tmp_path)
    audit = Audit(folder)
    uid = audit.page(limit=1).to_pylist()[0]["uid"]
    audit.mark(uid, "good", reviewer="ann")
    audit.mark(uid, "bad", reviewer="bob", note="<b>")
    assert [(row["reviewer"], row["mark"]) for row in list_row_marks(audit.database, uid, 0)] == [
        ("bob", "bad"),
        ("ann", "good"),
    ]
    assert audit.count(RowSelection(review="reviewed").condition(audit.database)) == 1
    assert audit.count(RowSelection(review="unsure").condition(audit.database)) == 1
    assert audit.count(RowSelection(review="none").condition(audit.database)) == audit.count() - 1


def test_an_audit_without_statistics_has_no_estimated_kinds(tmp_path: Path) -> None:
    folder = write_audit(tmp_path, 50)
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "statistics": {"image": {"pi0": None}}}))
    assert records.estimated_kinds(AuditDatabase(folder)) == {}
