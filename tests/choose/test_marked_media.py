"""Marked rows from files and reviews: their vectors once for each medium, and one line for what cannot be used."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from auditor.choose.marked_media import read_marked_media
from auditor.choose.prompt_files import PromptError
from auditor.python_api import Audit
from tests.support.vector_audit import plant_media, write_vector_audit

VECTORS = [plant_media(30, 0.5, seed=seed)[0] for seed in (0, 1)]


@pytest.fixture
def audit(tmp_path: Path) -> Iterator[Audit]:
    with Audit(write_vector_audit(tmp_path / "audit", VECTORS)) as opened:
        yield opened


def test_keys_of_a_csv(audit: Audit, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("key,label\ns1-00007,1\ns0-00002,0\ns0-00003,1\nnowhere,1\n")  # s0-00003 is corrupt
    vectors, labels = read_marked_media(audit.database, str(tmp_path / "a.csv"))
    assert labels.tolist() == [False, True]
    np.testing.assert_allclose(vectors, [VECTORS[0][2], VECTORS[1][7]], atol=1e-3)


def test_uids_of_a_parquet_file_count_a_medium_once(audit: Audit, tmp_path: Path) -> None:
    rows = audit.sql("SELECT uid FROM samples WHERE key IN ('s0-00001', 's0-00002') ORDER BY key").to_pylist()
    table = pa.table({"uid": [row["uid"].upper() for row in rows], "watermark": [True, True, False, False]})
    pq.write_table(table, tmp_path / "a.parquet")
    vectors, labels = read_marked_media(audit.database, str(tmp_path / "a.parquet"))
    assert labels.tolist() == [True, False] and len(vectors) == 2


def test_reviews(audit: Audit) -> None:
    with pytest.raises(PromptError, match="has no reviews: mark rows on the Review page"):
        read_marked_media(audit.database, "reviews")
    rows = audit.sql("SELECT uid FROM samples WHERE key IN ('s0-00001', 's1-00002') AND caption_index = 0 ORDER BY key")
    for uid, mark in zip(rows["uid"].to_pylist(), ("bad", "good"), strict=True):
        audit.mark(uid, mark)
    assert read_marked_media(audit.database, "reviews")[1].tolist() == [True, False]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name,label\na,1\n", "needs a column uid or key"),
        ("key,label,other\na,1,2\nb,2,3\n", "of 0 or 1"),
        ("key,a,b\nx,1,2\n", "a column label of 0 and 1"),
        ("key,label\nx,\n", "of 0 or 1"),
        ("key,label\nx,1\n", "is a usable row"),
    ],
)
def test_a_mistake_is_one_line(audit: Audit, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(PromptError, match=message):
        read_marked_media(audit.database, str(tmp_path / "a.csv"))
