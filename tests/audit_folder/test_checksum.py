"""The checksum detects a changed byte anywhere in a file."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from auditor.audit_folder.folder import Folder


@pytest.fixture
def written(tmp_path: Path) -> Path:
    generator = np.random.default_rng(0)
    table = pa.table({"key": [f"k{i}" for i in range(500)], "value": generator.normal(size=500)})
    Folder(tmp_path).write_table("some/file.parquet", table, {"note": "kept"})
    return tmp_path / "some/file.parquet"


def test_any_changed_byte_is_detected(written: Path, tmp_path: Path) -> None:
    folder, data = Folder(tmp_path), written.read_bytes()
    assert folder.is_sound("some/file.parquet") is True
    places = {0, 4, len(data) // 2, len(data) - 1, *np.random.default_rng(1).integers(0, len(data), 300).tolist()}
    for place in places:
        written.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        assert folder.is_sound("some/file.parquet") is not True, place
    for cut in (0, 3, 100, len(data) - 1):
        written.write_bytes(data[:cut])
        assert folder.is_sound("some/file.parquet") is False


def test_other_readers_can_read_a_file_with_a_checksum(written: Path, tmp_path: Path) -> None:
    assert pq.read_table(written).num_rows == 500
    stored = Folder(tmp_path).table_metadata("some/file.parquet")
    assert stored["note"] == "kept" and stored["checksum"] != "blake2b:" + "0" * 32


def test_a_file_without_a_checksum_is_neither_sound_nor_damaged(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "old.parquet")
    assert Folder(tmp_path).is_sound("old.parquet") is None
    assert Folder(tmp_path).is_sound("none.parquet") is False
