"""The documentation is true: commands and options exist, generated pages are current, links lead somewhere."""

import re
from pathlib import Path

import click
import pytest

from auditor.cli import COMMANDS, cli
from docs.generate import PAGES

ROOT = Path(__file__).resolve().parents[1]
WRITTEN = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
SHOWN = re.compile(r"^ *(?:\$ )?auditor ([a-z-]+)(.*)$", re.MULTILINE)


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8").replace("\\\n", " ")


def options_of(name: str) -> set[str]:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    return {opt for parameter in command.params for opt in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}


@pytest.mark.parametrize("page", WRITTEN, ids=lambda path: path.name)
def test_commands_that_are_shown_exist_with_the_options_shown(page: Path) -> None:
    for name, rest in SHOWN.findall(text_of(page)):
        assert name in COMMANDS, name
        used = set(re.findall(r"(?<=\s)--[a-z][a-z-]*", rest.split("#")[0]))
        assert used <= options_of(name), f"auditor {name}: {sorted(used - options_of(name))}"


def test_the_pages_show_commands_at_all() -> None:
    assert sum(len(SHOWN.findall(text_of(page))) for page in WRITTEN) > 40


@pytest.mark.parametrize("name", list(COMMANDS))
def test_each_command_is_in_the_readme(name: str) -> None:
    assert f"auditor {name}" in text_of(ROOT / "README.md")


@pytest.mark.parametrize("name", sorted(PAGES))
def test_generated_pages_are_current(name: str) -> None:
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == PAGES[name](), "run python docs/generate.py"


@pytest.mark.parametrize("page", WRITTEN, ids=lambda path: path.name)
def test_links_lead_to_files_that_are_there(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", text_of(page))
    gone = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert not gone


@pytest.mark.parametrize("page", WRITTEN, ids=lambda path: path.name)
def test_benchmarks_that_are_named_exist(page: Path) -> None:
    for module in re.findall(r"python -m (tests\.bench\.\w+)", text_of(page)):
        assert (ROOT / (module.replace(".", "/") + ".py")).is_file(), module


def test_the_readme_is_the_first_ten_minutes() -> None:
    assert (ROOT / "README.md").stat().st_size <= 12_000


def test_every_room_has_a_line_in_the_tree_of_the_readme() -> None:
    tree = text_of(ROOT / "README.md").split("## The tree")[1]
    rooms = [path.parent.name for package in ("auditor", "model") for path in (ROOT / package).glob("*/__init__.py")]
    missing = [room for room in rooms if not re.search(rf"^ +{room}/ +\S", tree, re.MULTILINE)]
    assert not missing
