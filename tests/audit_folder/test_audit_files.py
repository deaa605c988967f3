"""Find the files of a local or remote audit, and refuse other folders."""

import json
from pathlib import Path

import fsspec
import pytest

from auditor.audit_folder.audit_files import find_audit_files, get_shard_name
from auditor.audit_folder.folder import Folder
from auditor.audit_folder.manifest import Manifest
from auditor.errors import AuditError
from auditor.query.database import AuditDatabase
from auditor.schema import STORED
from tests.support.synthetic import write_audit

WRONG = {
    "it has no manifest.json": None,
    "is not JSON": "{",
    "does not describe one": "[1]",
    "has format 99": json.dumps({"format": 99}),
    "was made by an earlier version of the auditor: audit again": json.dumps({"format": 1}),
}


@pytest.mark.parametrize("message", WRONG)
def test_all_readers_give_the_same_error_for_a_folder_that_is_not_an_audit(tmp_path: Path, message: str) -> None:
    content = WRONG[message]
    if content is not None:
        (tmp_path / "manifest.json").write_text(content)
    for reader in (find_audit_files, AuditDatabase, lambda path: Manifest.load(Folder(path))):
        with pytest.raises(AuditError, match=message) as error:
            reader(tmp_path)
        assert "\n" not in str(error.value) and str(tmp_path) in str(error.value)


def test_shards_are_listed_scored_ones_first(tmp_path: Path) -> None:
    folder = write_audit(tmp_path / "audit", 30, 10)
    facts = Folder(folder).read_table("samples/00001.parquet")
    for name in ("00001.parquet", "00007.parquet", ".part-x.parquet"):
        Folder(folder).write_table(f"embeddings/{name}", facts)
    files = find_audit_files(folder)
    assert [get_shard_name(file) for file in files.all] == ["00000", "00001", "00002", "00007"]
    assert [get_shard_name(file) for file in files.swept] == ["00007"] and files.columns == STORED
    assert [get_shard_name(file) for file in files.only([1, 3]).all] == ["00001", "00007"]
    assert files.shard("00002").all == [str(folder / "samples" / "00002.parquet")]
    assert files.filesystem is None


def test_a_remote_audit_is_read_by_its_urls(tmp_path: Path) -> None:
    folder = write_audit(tmp_path / "audit", 20, 10)
    memory = fsspec.filesystem("memory")
    memory.put(str(folder), "/files-audit", recursive=True)
    files = find_audit_files("memory://files-audit")
    assert files.all == [f"memory:///files-audit/samples/0000{number}.parquet" for number in range(2)]
    assert files.filesystem is memory and files.manifest == find_audit_files(folder).manifest
