"""Files are written atomically on disk and on object stores; an audit has one writer."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import fsspec
import pyarrow as pa
import pytest

from auditor.audit_folder.folder import TEMPORARY, Folder, StorageError, split_target
from auditor.audit_folder.lock import LockedError, hold_folder_lock


def leftovers(folder: Path) -> list[Path]:
    return list(folder.rglob(f"{TEMPORARY}*"))


@pytest.fixture(params=["disk", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    if request.param == "disk":
        return Folder(tmp_path / "audit")
    fsspec.filesystem("memory").store.clear()
    return Folder("memory://bucket/audit")


def test_tables_come_back_with_their_metadata(folder: Folder) -> None:
    table = pa.table({"a": [1, 2, 3], "b": ["x", None, "z"]})
    folder.write_table("samples/s.parquet", table, {"score": "17"})
    assert folder.read_table("samples/s.parquet", ["b"]).to_pydict() == {"b": ["x", None, "z"]}
    assert folder.table_metadata("samples/s.parquet")["score"] == "17"
    assert folder.names("samples", ".parquet") == ["s"]
    assert folder.names("nowhere", ".parquet") == []
    assert folder.table_metadata("samples/other.parquet") == {}
    folder.remove("samples/s.parquet")
    assert not folder.exists("samples/s.parquet")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write_json("manifest.json", {"old": True})

    def write_half() -> None:
        with folder.writing("manifest.json") as path:
            path.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_half()
    assert folder.read_json("manifest.json") == {"old": True}
    assert leftovers(tmp_path) == []


def test_numbers_that_json_cannot_hold_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        Folder(tmp_path).write_json("manifest.json", {"x": float("nan")})
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_gives_a_one_line_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(StorageError, match="cannot write"):
        Folder(tmp_path / "file").write_json("manifest.json", {})


def test_temporary_files_of_a_killed_run_are_removed(tmp_path: Path) -> None:
    (tmp_path / "embeddings").mkdir()
    (tmp_path / "embeddings" / f"{TEMPORARY}abc").write_text("half a table")
    folder = Folder(tmp_path)
    assert folder.names("embeddings", ".parquet") == []
    folder.sweep_temporary("", "embeddings", "samples")
    assert leftovers(tmp_path) == []


def test_the_second_writer_is_refused_and_the_next_one_is_not(folder: Folder) -> None:
    with (
        hold_folder_lock(folder),
        pytest.raises(LockedError, match="another run"),
        hold_folder_lock(Folder(folder.url)),
    ):
        pass
    with hold_folder_lock(folder):
        pass


def test_the_lock_dies_with_its_process(tmp_path: Path) -> None:
    code = (
        "import sys, time; from auditor.audit_folder.lock import hold_folder_lock;"
        " from auditor.audit_folder.folder import Folder\n"
        "with hold_folder_lock(Folder(sys.argv[1])): print('held', flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(LockedError, match=f"pid {holder.pid}"), hold_folder_lock(Folder(tmp_path)):
        pass
    holder.kill()
    holder.wait()
    holder.stdout.close()
    with hold_folder_lock(Folder(tmp_path)):
        pass


def test_a_lock_that_is_not_renewed_is_taken_over() -> None:
    fsspec.filesystem("memory").store.clear()
    folder = Folder("memory://bucket/stale")
    folder.write_json("lock.json", {"host": "gone", "pid": 1, "time": time.time() - 3600})
    with hold_folder_lock(folder):
        assert folder.read_json("lock.json")["pid"] == os.getpid()
    assert not folder.exists("lock.json")


def test_a_file_is_named_by_a_path_or_a_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for out in ("memory://bucket/of/r.json", "memory://bucket/r.json", "r.json", "deep/r.json"):
        folder, name = split_target(out)
        with folder.writing(name) as partial:
            partial.write_text('{"a": 1}')
        assert name == "r.json" and folder.read_json(name) == {"a": 1}
    assert json.loads((tmp_path / "deep" / "r.json").read_text()) == {"a": 1}
    assert not list(tmp_path.glob("memory:*"))
    for out in ("s3://r.json", "s3://bucket/"):
        with pytest.raises(StorageError, match="is not a file"):
            split_target(out)


def test_a_path_and_its_url_are_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths do without fsspec, URLs do not."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a:b").mkdir()
    (tmp_path / "a:b" / "link").symlink_to("nowhere")
    for folder in map(
        Folder,
        (tmp_path / "a:b", f"file://{tmp_path}/a:b", "a:b/", "./a:b", "~/a:b", "/" + str(tmp_path)[1:] + "//a:b"),
    ):
        assert folder.local and folder.root == str(tmp_path / "a:b") and folder.exists()
        assert not folder.exists("nothing")
    folder = Folder("audit")
    assert folder.root == str(tmp_path / "audit") and not folder.exists()
    folder.write_json("x/y.json", 1)
    assert folder.exists("x/y.json") and folder.fs.exists(folder.path("x/y.json")) and folder.bytes_in("x") == 2
    folder.remove("x")
    assert not folder.exists("x/y.json")
