"""Parquet in Python file objects: only the calling thread may hold the file."""

import io
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from auditor.audit_folder.folder import Folder
from auditor.audit_folder.parquet_reader import PythonParquetFile

ROWS, COLUMNS = 2000, 12


class Watched(io.BytesIO):
    """Records the threads that read and release it."""

    def __init__(self, data: bytes, threads: set[int]) -> None:
        super().__init__(data)
        self.threads = threads

    def read(self, *arguments: Any) -> bytes:
        self.threads.add(threading.get_native_id())
        return super().read(*arguments)

    def __del__(self) -> None:
        self.threads.add(threading.get_native_id())


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return pa.table({f"c{i}": np.random.default_rng(i).random(ROWS) for i in range(COLUMNS)})


@pytest.mark.parametrize(
    "read",
    [
        lambda file: file.read(["c1", "c3"]),
        lambda file: file.read(),
        lambda file: file.read_row_group(1),
        lambda file: file.read_row_groups([0, 2], ["c2"]),
        lambda file: list(file.iter_batches(100, columns=["c5", "c6"])),
    ],
    ids=["columns", "all", "one group", "groups", "batches"],
)
def test_only_the_calling_thread_reads(table: pa.Table, read: Callable[[Any], Any]) -> None:
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=500)
    threads: set[int] = set()
    for _ in range(20):
        read(PythonParquetFile(Watched(sink.getvalue(), threads)))
    assert threads == {threading.get_native_id()}


def test_the_values_are_those_of_pyarrow(table: pa.Table) -> None:
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=500)
    file = PythonParquetFile(io.BytesIO(sink.getvalue()))
    assert file.read(["c3", "c1"]) == table.select(["c3", "c1"])
    assert pa.Table.from_batches(file.iter_batches(300)).combine_chunks() == table.combine_chunks()
    assert file.read_row_groups([1, 3]) == pa.concat_tables([table.slice(500, 500), table.slice(1500, 500)])


def test_a_local_table_is_opened_by_pyarrow(table: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Folder(tmp_path)
    folder.write_table("t.parquet", table)

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a Python file was opened")

    monkeypatch.setattr(type(folder.fs), "open", refuse)
    assert folder.read_table("t.parquet", ["c1"])["c1"] == table["c1"]
    assert folder.table_schema("t.parquet").names == table.column_names
    assert folder.table_metadata("t.parquet")


def test_a_remote_table_is_read_by_one_thread(table: pa.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Folder("memory://tables")
    folder.write_table("t.parquet", table)
    data, threads = folder.read_bytes("t.parquet"), set[int]()
    monkeypatch.setattr(fsspec.get_filesystem_class("memory"), "open", lambda *_, **__: Watched(data, threads))
    assert folder.read_table("t.parquet", ["c1", "c2"])["c2"] == table["c2"]
    assert threads == {threading.get_native_id()}
