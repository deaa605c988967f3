"""Every reading command on audits whose manifest and files were mutated: one line and exit 1, never a traceback."""

import contextlib
import copy
import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from auditor.cli import run
from tests.support.synthetic import write_corpus_audit

COMMANDS = [
    ["summary", "{}"],
    ["worst", "{}"],
    ["query", "{}", "SELECT count(*) FROM samples WHERE p_mismatch > 0.5"],
    ["thresholds", "{}"],
    ["filter", "{}", "--max-p-mismatch", "0.5", "--dry-run"],
    ["filter", "{}", "--max-p-mismatch", "0.5", "--out", "{}/../kept.npy", "--force"],
    ["compare", "{}", "{}"],
    ["explain", "{}", "000000"],
    ["report", "{}", "--out", "{}/../report.html", "--no-media", "--force"],
    ["verify", "{}", "--files"],
]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every field of a manifest."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield (*path, name)
            yield from places(inner, (*path, name))


def mutated(manifest: dict[str, Any], path: tuple[Any, ...], change: Callable[[dict[str, Any], Any], None]) -> str:
    changed = copy.deepcopy(manifest)
    holder = changed
    for name in path[:-1]:
        holder = holder[name]
    change(holder, path[-1])
    return json.dumps(changed)


def put(value: Any) -> Callable[[dict[str, Any], Any], None]:
    return lambda holder, name: holder.__setitem__(name, value)


CHANGES = [lambda holder, name: holder.pop(name), put(None), put("\x1b[31mtext"), put(-1), put([]), put({})]


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = write_corpus_audit(tmp_path_factory.mktemp("hostile"))
    return Path(made[0] if isinstance(made, tuple) else made)


def check(audit: Path, command: list[str], capsys: pytest.CaptureFixture[str]) -> int:
    """Run a command; a traceback is an exception here, and fails the test."""
    code = run([part.replace("{}", str(audit)) for part in command])
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("auditor:")]
    assert code in (0, 1) and len(said) == (1 if code else 0), (command, said)
    assert not any("\x1b" in line for line in said)
    return code


def test_a_mutated_manifest(audit: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here = Path(shutil.copytree(audit, tmp_path / "audit"))
    manifest = json.loads((here / "manifest.json").read_text())
    chance = random.Random(0)
    cases = [(path, change) for path in places(manifest) for change in CHANGES]
    refused = 0
    for path, change in chance.sample(cases, min(len(cases), 400)):
        (here / "manifest.json").write_text(mutated(manifest, path, change))
        command = chance.choice(COMMANDS)
        with told(f"{command[0]} with {'.'.join(map(str, path))} changed"):
            refused += check(here, command, capsys)
    assert refused > 20


@contextlib.contextmanager
def told(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise AssertionError(f"{what}: {error!r}") from error


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def zero(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 4 : len(data) // 2] = bytes(len(data) // 2 - len(data) // 4)
    file.write_bytes(data)


def to_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def dangle(file: Path) -> None:
    file.unlink()
    file.symlink_to("/nowhere/at/all")


@pytest.mark.parametrize("damage", [cut, zero, to_folder, dangle, Path.unlink, lambda file: file.write_bytes(b"")])
@pytest.mark.parametrize("name", ["manifest.json", "samples"])
def test_damaged_files(
    audit: Path, tmp_path: Path, name: str, damage: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    here = Path(shutil.copytree(audit, tmp_path / "audit"))
    file = here / name if name.endswith("json") else sorted((here / name).glob("*.parquet"))[0]
    damage(file)
    codes = [check(here, command, capsys) for command in COMMANDS]
    assert any(codes)


@pytest.mark.parametrize("target", ["file.txt", "file.txt/inside", "dangling", "dangling/inside"])
@pytest.mark.parametrize("command", [["filter", "{}", "--out"], ["report", "{}", "--no-media", "--out"]])
def test_targets_that_cannot_be(
    audit: Path, tmp_path: Path, command: list[str], target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file.txt").write_text("mine")
    (tmp_path / "dangling").symlink_to("/nowhere/at/all")
    code = check(audit, [*command, str(tmp_path / target)], capsys)
    assert code == 1 or (command[0], target) == ("report", "dangling")  # a file takes the place of the link
    assert (tmp_path / "file.txt").read_text() == "mine"
