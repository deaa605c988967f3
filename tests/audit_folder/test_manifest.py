"""The manifest: what older versions wrote opens, what is missing is named."""

from pathlib import Path
from typing import Any

import pytest

from auditor.audit_folder.folder import Folder
from auditor.audit_folder.manifest import NAME, Manifest
from auditor.errors import AuditError

MODEL = {"spec": "m", "fingerprint": "f", "dim": 8, "logit_scale": 20.0, "frames": 1}


def saved(path: Path, corpus: dict[str, Any], settings: dict[str, Any]) -> Folder:
    folder = Folder(str(path))
    Manifest(corpus, MODEL, settings).save(folder)
    return folder


def test_a_manifest_of_the_first_version_opens(tmp_path: Path) -> None:
    """It carried no columns and did not keep the settings of scoring."""
    folder = saved(tmp_path, {"spec": "c", "shards": 1, "root": None}, {})
    assert Manifest.load(folder).corpus["spec"] == "c"


def test_what_every_version_wrote_must_be_there(tmp_path: Path) -> None:
    folder = saved(tmp_path, {"spec": "c", "root": None}, {})
    with pytest.raises(AuditError, match=rf"{NAME}.*no corpus\.shards"):
        Manifest.load(folder)
