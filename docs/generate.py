"""Write the pages of docs/ that the code already says: every command with its options.

    python docs/generate.py        # after a change to a command; a test compares

Nothing here is written by hand twice: the text is what `auditor COMMAND --help` prints.
"""

import sys
from pathlib import Path

import click

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent))  # a checkout works without being installed

from auditor.cli import COMMANDS, cli  # noqa: E402

WIDTH = 100
HEAD = """# Commands

Every command with its options, as `auditor COMMAND --help` prints them. This page is written by
`python docs/generate.py`; a test fails when it is out of date.

| command | what it is for |
|---|---|
"""


def help_of(name: str) -> str:
    """What `auditor NAME --help` prints, at a fixed width."""
    parent = click.Context(cli, info_name="auditor")
    command = cli.get_command(parent, name)
    assert command is not None, name
    context = click.Context(command, info_name=name, parent=parent, max_content_width=WIDTH, terminal_width=WIDTH)
    return command.get_help(context)


def commands_page() -> str:
    rows = "".join(f"| [`{name}`](#{name}) | {purpose} |\n" for name, purpose in COMMANDS.items())
    sections = (f"\n## {name}\n\n```\n{help_of(name)}\n```\n" for name in COMMANDS)
    return HEAD + rows + "".join(sections)


PAGES = {"commands.md": commands_page}


def main() -> None:
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
