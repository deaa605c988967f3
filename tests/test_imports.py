"""The plan of the house: which folder and which room may import which, no cycle anywhere, and no torch for readers.

Rooms are the folders of auditor/, in the order of their layers: a room imports only those to its left. Imports inside
functions and behind TYPE_CHECKING count like all others.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.synthetic import write_audit

ROOT = Path(__file__).resolve().parents[1]
ALLOWED = {
    "model": {"model"},
    "auditor": {"auditor", "model"},
    "dashboard": {"dashboard", "auditor"},
    "jobs": {"jobs", "auditor", "model"},
}
# Modules that stand in auditor/ itself are rooms of their own.
LAYERS = (
    "cores",
    *("errors", "terminal", "console", "notebook_view", "schema", "vectors", "dashboard_settings", "regular_files"),
    *("audit_folder", "corpus", "workers", "sweep", "score", "query", "keep", "review", "faults", "report", "check"),
    *("choose", "run", "research", "python_api", "__init__", "demo", "commands", "cli"),
)
# Rooms that read an audit or a corpus: neither torch nor Ray nor `model`, not even inside a function.
LIGHT = (
    "cores",
    *("errors", "terminal", "console", "notebook_view", "schema", "vectors", "dashboard_settings", "regular_files"),
    *("audit_folder", "corpus", "query", "keep", "review", "faults", "report", "check", "python_api"),
)
LIGHT_SUBROOMS = ("auditor.score.statistics", "auditor.research.retrieval")
HEAVY = {"torch", "ray", "open_clip", "model"}
RAY_IN_AUDITOR = {"auditor/run/ray_engine.py"}
LARGEST_ROOM = 20  # files


def sources(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


OURS = {module_of(path): path for package in ALLOWED for path in sources(package)}


def imported(path: Path) -> Iterator[str]:
    """Every module a file imports, wherever; `from auditor import console` names auditor.console."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path} has a relative import"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in OURS else node.module


def room_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


MODULES = {module: sorted({name for name in imported(path) if name in OURS}) for module, path in OURS.items()}


def find_cycle(graph: dict[str, list[str]]) -> list[str]:
    """A cycle of a graph, or nothing."""
    done: set[str] = set()

    def visit(node: str, way: list[str]) -> list[str]:
        if node in way:
            return [*way[way.index(node) :], node]
        if node in done:
            return []
        done.add(node)
        return next((found for other in graph[node] if (found := visit(other, [*way, node]))), [])

    return next((found for node in graph if (found := visit(node, []))), [])


def test_cycles_are_found() -> None:
    assert find_cycle({"a": ["b"], "b": ["c", "d"], "c": [], "d": ["b"]}) == ["b", "d", "b"]
    assert find_cycle({"a": ["b", "c"], "b": ["c"], "c": []}) == []


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_imports_point_one_way(package: str) -> None:
    wrong = {
        f"{module} imports {name}"
        for module, names in MODULES.items()
        for name in names
        if module.split(".")[0] == package and name.split(".")[0] not in ALLOWED[package]
    }
    assert not wrong


def test_every_room_has_its_layer() -> None:
    assert {room_of(module) for module in OURS if module.split(".")[0] == "auditor"} == set(LAYERS)


def test_a_room_imports_only_rooms_below_it() -> None:
    wrong = {
        f"{module} imports {name}"
        for module, names in MODULES.items()
        for name in names
        if module.startswith("auditor")
        and name.startswith("auditor")
        and LAYERS.index(room_of(name)) > LAYERS.index(room_of(module))
    }
    assert not wrong


def test_modules_import_each_other_in_no_circle() -> None:
    assert find_cycle(MODULES) == []


def test_rooms_that_read_import_nothing_heavy() -> None:
    wrong = {
        f"{module} imports {name}"
        for module, path in OURS.items()
        if module.startswith(("dashboard", *LIGHT_SUBROOMS))
        or (module.startswith("auditor.") and room_of(module) in LIGHT)
        for name in imported(path)
        if name.split(".")[0] in HEAVY
    }
    assert not wrong


def test_only_one_module_of_auditor_imports_ray() -> None:
    users = {
        str(path.relative_to(ROOT))
        for module, path in OURS.items()
        if module.split(".")[0] != "jobs" and any(name.split(".")[0] == "ray" for name in imported(path))
    }
    assert users <= RAY_IN_AUDITOR


def test_no_device_is_hard_coded() -> None:
    assert not {module for module, path in OURS.items() if ".cuda()" in path.read_text(encoding="utf-8")}


def folders() -> list[Path]:
    return sorted({path.parent for path in OURS.values()})


@pytest.mark.parametrize("folder", folders(), ids=lambda folder: str(folder.relative_to(ROOT)))
def test_no_room_is_a_hall(folder: Path) -> None:
    files = [path.name for path in folder.glob("*.py") if path.name != "__init__.py"]
    assert len(files) <= LARGEST_ROOM, files


def test_tests_stand_in_the_rooms_of_what_they_test() -> None:
    """tests/ROOM is of auditor/ROOM, tests/model/ROOM of model/ROOM; modules of auditor/ itself: tests/."""
    helpers = {"support", "bench"}
    found = {path.parent.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")}
    rooms = {Path(".")} | {
        folder.relative_to(ROOT / "auditor") if folder.is_relative_to(ROOT / "auditor") else folder.relative_to(ROOT)
        for folder in folders()
    }
    assert {room for room in found if room.parts[:1] not in {(helper,) for helper in helpers}} <= rooms


def test_reading_an_audit_imports_no_torch_no_ray_and_no_model() -> None:
    """One process imports the modules one after the other and names the first with a heavy import."""
    modules = [name for name in OURS if name.startswith("auditor.") and room_of(name) in LIGHT]
    code = (
        "import importlib, sys\nfrom auditor import Audit\n"
        f"for module in {['auditor.cli', *modules]}:\n"
        "    importlib.import_module(module)\n"
        f"    bad = {HEAVY | {'streamlit'}} & {{name.split('.')[0] for name in sys.modules}}\n"
        "    assert not bad, (module, bad)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 0, done.stderr


def test_processes_that_work_on_stored_vectors_import_no_torch() -> None:
    """Importing torch takes longer than many shards: prototypes are arrays there."""
    modules = (
        "auditor.workers.process_pool, auditor.score.score, auditor.sweep.vector_sweep, auditor.faults.find_faults, "
        "auditor.run.run_audit"  # the process that starts them sweeps stored vectors while it imports torch
    )
    code = f"import sys, {modules}; assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 0, done.stderr


def test_an_audit_can_be_read_beside_a_model_py_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("raise RuntimeError('the user\\'s own model.py was imported')\n")
    modules = ", ".join(module for module in OURS if module.startswith("auditor.") and room_of(module) in LIGHT)
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import {modules}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr


# Modules that take long to import, and that no short command on a local audit needs; each entered unnoticed once.
SLOW = {"asyncio", "fsspec", "jinja2", "pandas", "pyarrow.compute", "scipy"}
SHORT_COMMANDS = {
    "summary": ["summary", "AUDIT"],
    "query": ["query", "AUDIT", "SELECT count(*) FROM samples"],
    "thresholds": ["thresholds", "AUDIT"],
    "worst": ["worst", "AUDIT"],
}


@pytest.mark.parametrize("name", SHORT_COMMANDS)
def test_short_commands_import_nothing_slow(name: str, tmp_path: Path) -> None:
    audit = write_audit(tmp_path / "audit", 300)
    arguments = [str(audit) if argument == "AUDIT" else argument for argument in SHORT_COMMANDS[name]]
    code = (
        "import sys\nfrom auditor.cli import run_command_line\n"
        f"assert run_command_line({arguments}) == 0\n"
        f"bad = {SLOW | HEAVY} & {{*sys.modules, *(name.split('.')[0] for name in sys.modules)}}\n"
        "assert not bad, bad\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["summary", "--help"], ["no-command"]])
def test_help_imports_neither_arrow_nor_numpy(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom auditor.cli import run_command_line\n"
        f"run_command_line({arguments})\n"
        "bad = {'numpy', 'pyarrow', 'duckdb', 'rich'} & set(sys.modules)\nassert not bad, bad\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("module", "arguments", "message"),
    [
        ("auditor.commands.everyday.audit", ["NONE", "--out", "OUT"], "does not exist"),
        ("jobs.audit", ["NONE", "--out", "OUT"], "does not exist"),
        ("jobs.encoders", ["NONE", "--try", "ViT-B-32@openai"], "does not exist"),
        ("jobs.evaluate", ["coco", "--data", "d", "--model", "local-dir:NONE", "--out", "OUT"], "none"),
    ],
)
def test_wrong_paths_are_refused_without_torch_and_ray(
    module: str, arguments: list[str], message: str, tmp_path: Path
) -> None:
    places = [part.replace("NONE", f"{tmp_path}/none").replace("OUT", f"{tmp_path}/out") for part in arguments]
    code = (
        f"import sys\nfrom auditor.cli import run_command_line\nfrom {module} import command\n"
        f"assert run_command_line({places}, command) == 1\n"
        "bad = {'torch', 'ray', 'scipy'} & set(sys.modules)\nassert not bad, bad\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 0, done.stderr
    assert message in done.stderr
