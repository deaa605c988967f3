"""Croissant metadata, loaded by the package of MLCommons."""

import json
import sys
from pathlib import Path

import pytest

from auditor.audit_folder.fault_records import Fault, write_faults
from auditor.audit_folder.folder import Folder
from auditor.cli import run_command_line
from auditor.python_api import Audit
from auditor.schema import COLUMNS, STORED
from tests.support.synthetic import write_audit


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    audit = write_audit(tmp_path_factory.mktemp("croissant") / "audit", 60, 30)
    write_faults(Folder(audit), [Fault("caption", "repeated", None, None, None, None, 3, 0.5, "a sentence")])
    return audit


@pytest.mark.filterwarnings("ignore")  # of rdflib and pandas
def test_mlcroissant_reads_the_rows(audit: Path, tmp_path: Path) -> None:
    mlc = pytest.importorskip("mlcroissant", reason="pip install 'pau-auditor[croissant]'")
    target = audit.parent / "croissant.json"
    assert run_command_line(["card", str(audit), "--out", str(tmp_path / "c.md"), "--croissant", str(target)]) == 0
    dataset = mlc.Dataset(str(target))  # raises if the metadata are not valid
    assert {record_set.id for record_set in dataset.metadata.record_sets} == {"samples-rows", "faults-rows"}
    rows = list(dataset.records("samples-rows"))
    expected = Audit(audit).sql("SELECT uid, width, p_mismatch FROM samples ORDER BY uid").to_pylist()
    assert len(rows) == 60 and set(rows[0]) == {f"samples-rows/{name}" for name in STORED}
    by_uid = sorted(rows, key=lambda row: row["samples-rows/uid"])
    assert [row["samples-rows/uid"].decode() for row in by_uid] == [row["uid"] for row in expected]
    assert [int(row["samples-rows/width"]) for row in by_uid] == [row["width"] for row in expected]
    [fault] = dataset.records("faults-rows")
    assert fault["faults-rows/sentence"] == b"a sentence" and fault["faults-rows/p_value"] == 0.5
    fields = json.loads(target.read_text())["recordSet"][0]["field"]
    meanings = {field["name"]: field["description"] for field in fields}
    assert meanings["p_mismatch"] == COLUMNS["p_mismatch"].meaning


def test_without_the_package_it_says_what_to_install(
    audit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "mlcroissant", None)
    target = tmp_path / "croissant.json"
    assert run_command_line(["card", str(audit), "--out", str(tmp_path / "c.md"), "--croissant", str(target)]) == 1
    [line] = capsys.readouterr().err.strip().splitlines()
    assert "mlcroissant is not installed; pip install" in line and not target.exists()


def test_a_remote_file_is_refused(audit: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("mlcroissant", reason="pip install 'pau-auditor[croissant]'")
    options = ["--out", str(tmp_path / "c.md"), "--croissant", "memory://bucket/croissant.json"]
    assert run_command_line(["card", str(audit), *options]) == 1
    assert "--croissant needs a local audit and a local file" in capsys.readouterr().err
