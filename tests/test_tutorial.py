"""The commands of docs/tutorial.md run as they are shown, on a folder of generated pictures with a small model."""

import re
import shlex
import tarfile
from pathlib import Path

import pytest

from auditor.cli import run_command_line
from auditor.python_api import Audit
from tests.support.tiny import tiny

TUTORIAL = Path(__file__).resolve().parents[1] / "docs" / "tutorial.md"
MODEL = "ViT-B-32@laion2b_s34b_b79k"


def write_photos(folder: Path) -> None:
    """Unpack the pictures of the small demo corpus with their captions."""
    folder.mkdir()
    for path in sorted(tiny().corpus.glob("*.tar")):
        with tarfile.open(path) as tar:
            pictures = {Path(name).stem for name in tar.getnames() if name.endswith((".jpg", ".png", ".webp"))}
            for member in tar:
                file = tar.extractfile(member)
                if file and Path(member.name).stem in pictures:
                    (folder / Path(member.name).name).write_bytes(file.read())


def list_commands() -> list[list[str]]:
    blocks = re.findall(r"```bash\n(.*?)```", TUTORIAL.read_text(encoding="utf-8"), re.DOTALL)
    return [shlex.split(line) for block in blocks for line in block.splitlines()]


def test_the_commands_of_the_tutorial_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_photos(tmp_path / "photos")
    monkeypatch.chdir(tmp_path)
    commands = list_commands()
    assert len(commands) >= 8 and all(command[0] == "auditor" for command in commands)
    for number, command in enumerate(commands):
        arguments = [str(tiny().model) if word == MODEL else word for word in command[1:]]
        assert run_command_line(arguments) == 0, command
        if number == 0:
            with Audit("first-look") as audit:
                assert any("random sample" in note for note in audit.summary().notes)
    with Audit("first-look") as audit:
        assert audit.summary().state == "complete" and not any("sample" in note for note in audit.summary().notes)
    assert list((tmp_path / "clean").glob("*.tar")) and (tmp_path / "clean" / "removed.parquet").is_file()
    assert (tmp_path / "kept.parquet").is_file() and "<html" in (tmp_path / "report.html").read_text()[:200]
