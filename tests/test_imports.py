"""The import rules of the design: one direction, and no torch or Ray for those who only read an audit."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ALLOWED = {
    "model": {"model"},
    "auditor": {"auditor", "model"},
    "dashboard": {"dashboard", "auditor"},
    "jobs": {"jobs", "auditor", "model"},
}
RAY_IN_AUDITOR = {"auditor/run/distribute.py"}


def imported(path: Path) -> set[str]:
    """Every module a file imports, at its top or inside functions."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module)
    return found


def sources(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_imports_point_one_way(package: str) -> None:
    ours = set(ALLOWED)
    wrong = {
        f"{path.relative_to(ROOT)} imports {name}"
        for path in sources(package)
        for name in imported(path)
        if name.split(".")[0] in ours - ALLOWED[package]
    }
    assert not wrong


def test_only_one_module_of_auditor_imports_ray() -> None:
    users = {
        str(path.relative_to(ROOT))
        for package in ("auditor", "model", "dashboard")
        for path in sources(package)
        if any(name.split(".")[0] == "ray" for name in imported(path))
    }
    assert users <= RAY_IN_AUDITOR


def test_no_device_is_hard_coded() -> None:
    calls = {
        str(path.relative_to(ROOT))
        for package in ALLOWED
        for path in sources(package)
        if ".cuda()" in path.read_text(encoding="utf-8")
    }
    assert not calls


READERS = [
    "auditor",
    "auditor.cli",
    "auditor.audit",
    "auditor.query.rules",
    "auditor.keep.effects",
    "auditor.keep.export",
    "auditor.query.compare",
    "auditor.query.thresholds",
    "auditor.query.explain",
    "auditor.report.report",
    "auditor.corpus.media",
    "auditor.corpus.reader",
]


@pytest.mark.parametrize("module", READERS)
def test_reading_an_audit_imports_no_torch_no_ray_and_no_model(module: str) -> None:
    code = (
        f"import {module}, sys; from auditor import Audit; "
        "bad = {'torch', 'ray', 'model', 'open_clip', 'streamlit'} & {m.split('.')[0] for m in sys.modules}; "
        "print(sorted(bad)); sys.exit(bool(bad))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_audit_can_be_read_beside_a_model_py_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("raise RuntimeError('the user\\'s own model.py was imported')\n")
    modules = "auditor.audit, auditor.keep.effects, auditor.keep.export"
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import {modules}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
