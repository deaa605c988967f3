"""Columns computed from vectors: at the right rows, resumed, and the same in several processes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from auditor.audit_folder.folder import Folder
from auditor.choose.media_columns import MediaColumn, read_shard_media, store_media_column
from auditor.errors import AuditorError
from auditor.python_api import Audit
from auditor.run.audit_config import AuditConfig
from auditor.run.run_audit import run_audit
from auditor.vectors import Floats
from auditor.workers.process_pool import ProcessPool
from tests.support.corpora import make_picture, write_tar

PHOTOS = 10


@pytest.fixture
def audit(tmp_path: Path, random_model: str) -> Path:
    """Photos with two captions each in three shards, of which one cannot be decoded."""
    for shard in range(3):
        samples = [(f"{shard}{i}", {"jpg": make_picture(i), "txt": b"a dog\na cat"}) for i in range(PHOTOS)]
        samples.append((f"{shard}bad", {"jpg": b"no picture", "txt": b"a dog"}))
        write_tar(tmp_path / f"corpus/{shard}.tar", samples)
    run_audit(AuditConfig(str(tmp_path / "corpus"), str(tmp_path / "audit"), random_model, quiet=True))
    return tmp_path / "audit"


def read_first_number(visual: Floats) -> Floats:
    return visual[:, 0]


class Failing:
    """Fails at the third shard."""

    calls = 0

    def __call__(self, visual: Floats) -> Floats:
        self.calls += 1
        if self.calls == 3:
            raise RuntimeError("killed")
        return visual[:, 0]


def make_column(compute: Any = read_first_number) -> MediaColumn:
    return MediaColumn("first", compute, "mark", {"from": "a test"})


def test_each_caption_has_the_value_of_its_medium(audit: Path) -> None:
    with Audit(audit) as opened:
        result = store_media_column(opened.database, make_column())
        assert (result.columns, result.shards, result.rows) == (("first",), 3, 3 * (2 * PHOTOS + 1))
    with Audit(audit) as opened:
        rows = opened.sql(
            "SELECT shard, key, status, first FROM samples ORDER BY shard, key, caption_index"
        ).to_pylist()
        [source] = opened.database.files.sources
    assert source.about["from"] == "a test"
    assert {row["first"] for row in rows if row["status"] != "ok"} == {None}
    for shard in ("0", "1", "2"):
        visual, medium = read_shard_media(Folder(audit), shard)
        assert len(visual) == PHOTOS and (medium >= 0).sum() == 2 * PHOTOS
        stored = [row["first"] for row in rows if row["shard"] == shard and row["status"] == "ok"]
        np.testing.assert_array_equal(np.array(stored, np.float32), np.repeat(visual[:, 0], 2))


def test_an_interrupted_column_is_finished_by_the_next_call(audit: Path) -> None:
    with Audit(audit) as opened:
        with pytest.raises(RuntimeError, match="killed"):
            store_media_column(opened.database, make_column(Failing()))
        result = store_media_column(opened.database, make_column())
        assert (result.resumed, result.shards) == (2, 3)
    with Audit(audit) as opened:
        with pytest.raises(AuditorError, match="--force replaces"):
            store_media_column(opened.database, make_column())
        assert store_media_column(opened.database, make_column(), force=True).resumed == 0


def test_several_processes_store_the_same(audit: Path) -> None:
    with Audit(audit) as opened:
        store_media_column(opened.database, make_column(), engine=ProcessPool(2))
    with Audit(audit) as opened:
        assert opened.count("first IS NOT NULL") == opened.count("status = 'ok'") == 3 * 2 * PHOTOS


def test_missing_embeddings_are_one_line(audit: Path) -> None:
    for file in (audit / "embeddings").iterdir():
        file.unlink()
    with Audit(audit) as opened, pytest.raises(AuditorError, match="no embeddings of 3 shards, such as 0"):
        store_media_column(opened.database, make_column())
