"""Every reading command on audits whose manifest and files were mutated: one line and exit 1, never a traceback."""

import contextlib
import copy
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from auditor.cli import run_command_line
from tests.support.damage import cut_in_half, empty_file, replace_by_broken_link, replace_by_folder, zero_bytes
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
    code = run_command_line([part.replace("{}", str(audit)) for part in command])
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


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("scoring", -1),
        ("corpus.carry", [None]),
        ("corpus.root", 7),
        ("settings.score", {"seed": 1e308}),
        ("settings.score", {"keep_duplicate": 3}),
        ("statistics.image.histogram.null", [0.5]),
        ("statistics.image.curve.p", [0.5]),
        ("fitted_on", "all"),
        ("drift", [None]),
    ],
)
def test_values_of_a_manifest_that_a_reader_would_stumble_over(
    audit: Path, tmp_path: Path, place: str, value: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    here = Path(shutil.copytree(audit, tmp_path / "audit"))
    manifest = json.loads((here / "manifest.json").read_text())
    manifest.setdefault("settings", {})
    (here / "manifest.json").write_text(mutated(manifest, tuple(place.split(".")), put(value)))
    assert run_command_line(["summary", str(here)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "is damaged" in line and place.split(".")[0] in line


def test_a_store_that_gives_nobody_access_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    s3fs = pytest.importorskip("s3fs")
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    s3fs.S3FileSystem.clear_instance_cache()
    try:
        assert check(Path("s3://nobody-has-this/audit"), ["verify", "s3://nobody-has-this/audit", "--files"], capsys)
    finally:
        s3fs.S3FileSystem.clear_instance_cache()


@contextlib.contextmanager
def told(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise AssertionError(f"{what}: {error!r}") from error


@pytest.mark.parametrize(
    "damage", [cut_in_half, zero_bytes, replace_by_folder, replace_by_broken_link, Path.unlink, empty_file]
)
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
@pytest.mark.parametrize(
    "command", [["filter", "{}", "--where", "true", "--out"], ["report", "{}", "--no-media", "--out"]]
)
def test_targets_that_cannot_be(
    audit: Path, tmp_path: Path, command: list[str], target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file.txt").write_text("mine")
    (tmp_path / "dangling").symlink_to("/nowhere/at/all")
    code = check(audit, [*command, str(tmp_path / target)], capsys)
    assert code == 1 or (command[0], target) == ("report", "dangling")  # a file takes the place of the link
    assert (tmp_path / "file.txt").read_text() == "mine"
