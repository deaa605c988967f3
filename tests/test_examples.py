"""The examples run as they are, from a checkout, and print what they promise."""

import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.support.corpora import make_picture
from tests.support.stored import write_datacomp
from tests.support.synthetic import write_corpus_audit

ROOT = Path(__file__).resolve().parents[1]
Run = Callable[..., str]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a script like `python examples/SCRIPT ARGUMENT...`, but in this process, and return what it prints."""

    def run_script(script: str, *arguments: object) -> str:
        monkeypatch.setattr("sys.argv", [script, *map(str, arguments)])
        runpy.run_path(str(ROOT / "examples" / script), run_name="__main__")
        return capsys.readouterr().out

    return run_script


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus_audit(tmp_path_factory.mktemp("examples"))[0]


def test_find_worst_captions(audit: Path) -> None:
    """As a process, to see that an example runs from a checkout."""
    command = [sys.executable, str(ROOT / "examples" / "find_worst_captions.py"), str(audit)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert process.returncode == 0, process.stderr
    shown = process.stdout
    assert "rows" in shown and "'pairs':" in shown


def test_train_on_the_good_part(audit: Path, run: Run) -> None:
    shown = run("train_on_the_good_part.py", audit)
    assert "rows are kept" in shown and "samples read from the original shards" in shown


def test_audit_a_folder(tmp_path: Path, random_model: str, run: Run) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    for number in range(30):
        (photos / f"{number}.jpg").write_bytes(make_picture(number))
        (photos / f"{number}.txt").write_text(f"picture number {number} of a field")
    shown = run("audit_a_folder.py", photos, tmp_path / "audit", random_model)
    assert "complete" in shown
    assert (tmp_path / "audit-kept.parquet").is_file()


def test_datacomp_subset(tmp_path: Path, run: Run) -> None:
    metadata = write_datacomp(tmp_path / "metadata")
    shown = run("datacomp_subset.py", metadata, tmp_path / "audit", tmp_path / "subset.npy")
    listed = np.load(tmp_path / "subset.npy")
    assert f"{len(listed):,} of 600 uids" in shown and 400 < len(listed) < 600
    assert listed.dtype == np.dtype("u8,u8") and (np.sort(listed) == listed).all()


def test_first_audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The notebook runs in a kernel of its own; its views are complete."""
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    import nbformat

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(ROOT / "examples" / "first_audit.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "store the notebook without outputs"
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    pages = [
        page for output in outputs if (page := output.get("data", {}).get("text/html", "")) and "auditor-view" in page
    ]
    assert len(pages) == 6 and not any("cannot be shown" in page or "cannot be drawn" in page for page in pages)
    printed = "".join(output.get("text", "") for output in outputs)
    flagged, hits = re.search(r"(\d+) pairs are flagged; (\d+) of the 20 captions", printed).groups()  # type: ignore[union-attr]
    assert int(hits) >= 15 and int(flagged) - int(hits) <= 5
    assert (tmp_path / "first_audit" / "kept.parquet").is_file()


def test_every_example_is_tested() -> None:
    scripts = {path.stem for path in (ROOT / "examples").glob("*.*") if path.suffix in (".py", ".ipynb")}
    assert scripts == {name.removeprefix("test_") for name in globals() if name.startswith("test_")} - {
        "every_example_is_tested"
    }
