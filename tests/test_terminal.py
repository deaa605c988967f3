"""Hostile keys, captions and paths on a terminal and in a spreadsheet: shown, never obeyed."""

import ast
import json
from pathlib import Path

import pytest

from auditor import console
from auditor.terminal import format_value, neutralize_formula, print_line, to_json

ROOT = Path(__file__).resolve().parents[1]
HOSTILE = "a\x1b[2J\x07\x9b31m\x7f\u202egpj\u2028\r"


def obeyed(text: str) -> set[str]:
    return {c for c in text if c in "\x1b\x07\x9b\x7f\u202e\u2028\r"}


def test_controls_are_shown_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    assert format_value(HOSTILE) == r"a\x1b[2J\x07\x9b31m\x7f\u202egpj\u2028\r"
    assert format_value("two\nlines") == "two lines"
    print_line(HOSTILE)
    console.print_table([{HOSTILE: HOSTILE}], title=HOSTILE)
    assert not obeyed(capsys.readouterr().out)


@pytest.mark.parametrize("text", ["été", "日本語", "👨‍👩‍👧", "a\u00a0b", "שלום"])
def test_what_people_write_stays_as_it_is(text: str) -> None:
    assert format_value(text) == text


def test_markup_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_table([{"[red]name[/red]": "[link=x]y[/link]"}], title="[bold]t[/bold]")
    said = capsys.readouterr().out
    assert all(text in said for text in ("[red]name[/red]", "[link=x]y[/link]", "[bold]t[/bold]"))


def test_json_holds_the_same_text_without_what_a_terminal_obeys() -> None:
    text = to_json({HOSTILE: [HOSTILE, float("nan"), "\ud800"]})
    assert not obeyed(text) and text.encode()
    assert json.loads(text) == {HOSTILE: [HOSTILE, None, "\ud800"]}


def test_no_cell_or_header_is_a_formula(capsys: pytest.CaptureFixture[str]) -> None:
    console.write_csv([{"=1+1": "=cmd|' /C calc'!A0", "n": -5, "b": "+1", "c": "-1", "d": "@x", "e": "plain"}])
    assert capsys.readouterr().out == "'=1+1,n,b,c,d,e\n'=cmd|' /C calc'!A0,-5,'+1,'-1,'@x,plain\n"
    assert neutralize_formula("\t=1") == "'\t=1"


def test_csv_on_a_terminal_is_escaped_and_in_a_file_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    console.write_csv([{"a": HOSTILE}])
    assert HOSTILE in capsys.readouterr().out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    console.write_csv([{"a": HOSTILE}])
    assert not obeyed(capsys.readouterr().out)


def test_nothing_is_printed_past_it() -> None:
    wrong = []
    for path in [*(ROOT / "auditor").rglob("*.py"), *(ROOT / "jobs").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if name in ("click.echo", "click.secho", "print") and path.name != "terminal.py":
                wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}")  # type: ignore[attr-defined]
    assert not wrong
