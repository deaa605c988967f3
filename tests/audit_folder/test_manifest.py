"""The manifest: a missing field is named, and an audit of an earlier version is refused."""

from pathlib import Path
from typing import Any

import pytest

from auditor.audit_folder.folder import Folder
from auditor.audit_folder.manifest import FORMAT, MANIFEST_NAME, Manifest
from auditor.errors import AuditError

MODEL = {"spec": "m", "fingerprint": "f", "dim": 8, "logit_scale": 20.0, "frames": 1}


def saved(path: Path, corpus: dict[str, Any], settings: dict[str, Any]) -> Folder:
    folder = Folder(str(path))
    Manifest(corpus, MODEL, settings).save(folder)
    return folder


CORPUS = {"spec": "c", "shards": 1, "root": None, "carry": []}


def test_a_complete_manifest_opens(tmp_path: Path) -> None:
    assert Manifest.load(saved(tmp_path, CORPUS, {"score": {}})).corpus["spec"] == "c"


@pytest.mark.parametrize("name", CORPUS)
def test_a_missing_field_is_named(tmp_path: Path, name: str) -> None:
    folder = saved(tmp_path, {field: value for field, value in CORPUS.items() if field != name}, {"score": {}})
    with pytest.raises(AuditError, match=rf"{MANIFEST_NAME}.*no corpus\.{name}"):
        Manifest.load(folder)


def test_an_audit_of_an_earlier_version_is_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path, CORPUS, {"score": {}})
    folder.write_json(MANIFEST_NAME, {**folder.read_json(MANIFEST_NAME), "format": FORMAT - 1})
    with pytest.raises(AuditError, match="made by an earlier version of the auditor: audit again"):
        Manifest.load(folder)
