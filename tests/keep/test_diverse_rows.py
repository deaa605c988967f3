"""Diverse rows: the lazy greedy selection equals the plain one, and cells are read from the stored vectors."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from auditor.keep import diverse_rows
from auditor.keep.diverse_rows import select_representatives
from auditor.python_api import Audit
from auditor.run.audit_config import AuditConfig
from auditor.run.run_audit import run_audit
from auditor.vectors import Floats, Ints
from tests.support.corpora import make_picture, write_tar
from tests.support.stored import make_pairs, make_uids, write_datacomp


def select_naively(vectors: Floats, count: int) -> Ints:
    similarity = np.maximum(vectors @ vectors.T, 0)
    nearest, selected = np.zeros(len(vectors), np.float32), list[int]()
    for _ in range(count):
        gains = np.maximum(similarity - nearest, 0).sum(axis=1)
        gains[selected] = -1
        selected.append(int(gains.argmax()))
        nearest = np.maximum(nearest, similarity[selected[-1]])
    return np.array(selected)


@pytest.mark.parametrize(("rows", "count", "dim"), [(60, 20, 4), (200, 200, 16), (300, 7, 3)])
def test_lazy_and_plain_greedy_agree(rows: int, count: int, dim: int) -> None:
    vectors, _ = make_pairs(rows, dim, seed=rows)
    np.testing.assert_array_equal(select_representatives(vectors, count), select_naively(vectors, count))


def test_equal_vectors_are_selected_once_before_others_repeat() -> None:
    vectors = np.repeat(np.eye(5, dtype=np.float32), 6, axis=0)
    assert select_representatives(vectors, 5).tolist() == [0, 6, 12, 18, 24]


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("diverse")
    corpus = write_datacomp(place / "corpus", count=300)
    run_audit(AuditConfig(f"datacomp:{corpus}", str(place / "audit"), quiet=True))
    return place / "audit"


def test_the_selection_of_a_cell_is_that_of_its_vectors(audit: Path) -> None:
    vectors = {
        uid: vector
        for part in (0, 1)
        for uid, vector in zip(make_uids(300, part), make_pairs(300, seed=part)[0].astype(np.float16), strict=True)
    }
    with Audit(audit) as opened:
        condition = "similarity > 0.5"
        rows = opened.sql(
            f"SELECT uid, topic FROM samples WHERE {condition} ORDER BY p_mismatch, mismatch_score DESC, uid[17:]"
        ).to_pylist()
        kept = opened.keep(where=condition, diverse=True, balance="topic", count=120).to_arrow(["uid", "topic"])
    chosen: dict[int, set[str]] = {}
    for row in kept.to_pylist():
        chosen.setdefault(row["topic"], set()).add(row["uid"])
    assert kept.num_rows == 120
    for topic, uids in chosen.items():
        candidates = [row["uid"] for row in rows if row["topic"] == topic]
        matrix = np.array([vectors[uid] for uid in candidates], np.float32)
        assert uids == {candidates[row] for row in select_naively(matrix, len(uids))}


def test_edited_rows_are_chosen_beside_dropped_parts(audit: Path, tmp_path: Path) -> None:
    shutil.copytree(audit, tmp_path / "audit")
    with Audit(tmp_path / "audit") as opened:
        opened.edit(opened.page(limit=1)["key"][0].as_py(), "Edited by hand", reviewer="ann")
        kept = opened.keep(drop_weak_parts=0.5, diverse=True, count=120)
        assert len(kept) == 120 and len(opened.keep(diverse=True, count=120)) == 120


def test_without_balance_topics_keep_their_shares_and_large_cells_are_divided(
    audit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diverse_rows, "MOST_TOGETHER", 10)
    with Audit(audit) as opened:
        kept = opened.keep(diverse=True, share=0.3)
        assert kept.count == 180
        drift = kept.drift()
    assert all(abs(topic.kept * 180 - topic.whole * 180) < 1 for topic in drift.topics)


def test_each_medium_comes_before_its_second_caption(tmp_path: Path, random_model: str) -> None:
    captions = b"a red square\na blue circle\na green star"
    write_tar(tmp_path / "corpus/0.tar", [(f"{i}", {"jpg": make_picture(i), "txt": captions}) for i in range(12)])
    run_audit(AuditConfig(str(tmp_path / "corpus"), str(tmp_path / "audit"), random_model, quiet=True))
    with Audit(tmp_path / "audit") as opened:
        assert len(opened.keep(diverse=True, count=12).keys.unique()) == 12
        media = opened.keep(diverse=True, count=5, per_medium="any")
        assert (media.media, media.count) == (5, 15)
