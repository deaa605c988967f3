"""The command line as a whole: every command has help and an example; errors are one line."""

import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import click
import pytest

from auditor.cli import COMMANDS, MODULES, cli, run_command_line

ROOT = Path(__file__).resolve().parents[1]


def find(name: str) -> click.Command:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    return command


def test_every_command_module_is_listed_and_every_listed_command_exists() -> None:
    paths = (path.relative_to(ROOT).with_suffix("") for path in (ROOT / "auditor/commands").glob("*/*.py"))
    assert {".".join(path.parts) for path in paths if path.stem != "__init__"} == set(MODULES.values())


@pytest.mark.parametrize("name", list(COMMANDS))
def test_each_command_has_help_with_an_example(name: str) -> None:
    command = find(name)
    text = command.help or ""
    assert len(text.split()) > 8
    examples = re.findall(rf"^\s*(?:\$ )?auditor {name}\b.*", text, re.MULTILINE)
    assert examples, f"the help of {name} has no line that starts with `auditor {name}`"
    known = {opt for parameter in command.params for opt in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}
    used = {word for example in examples for word in re.findall(r"(?<=\s)--?[a-z][a-z-]*", example)}
    assert used <= known, f"{name}: the example uses {sorted(used - known)}, which it does not have"


@pytest.mark.parametrize("name", list(COMMANDS))
def test_each_option_has_a_word_of_help(name: str) -> None:
    silent = [p.opts[0] for p in find(name).params if isinstance(p, click.Option) and not p.help]
    assert not silent, f"{name}: no help for {silent}"


def test_an_unknown_command_and_an_unknown_option_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["sumary"]) == 2
    assert "No such command 'sumary'. Did you mean 'summary'?" in capsys.readouterr().err
    assert run_command_line(["xyzzy"]) == 2
    assert "Did you mean" not in capsys.readouterr().err
    assert run_command_line(["summary", "--colour"]) == 2
    assert "--colour" in capsys.readouterr().err


def test_an_option_of_names_without_a_name_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["audit", "t.csv", "--out", "x", "--model", "M", "--caption-column", " , "]) == 2
    assert "'--caption-column': ' , ' has no name" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["summary", "worst", "thresholds", "report", "score", "verify", "fit"])
def test_a_folder_that_is_no_audit_is_one_line(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    extra = ["--out", str(tmp_path / "out")] if name in {"report", "fit"} else []
    assert run_command_line([name, str(tmp_path), *extra]) == 1
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("auditor: ")
    assert str(tmp_path) in lines[0]
    assert list(tmp_path.iterdir()) in ([], [tmp_path / ".lock"])


def test_the_help_needs_no_torch() -> None:
    code = "import sys; from auditor import cli; cli.run_command_line(['--help']); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0
    for name in COMMANDS:
        assert re.search(rf"^  {name}\b", done.stdout, re.MULTILINE)


def test_versions_agree() -> None:
    import tomllib

    from auditor import __version__

    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == __version__


def test_no_constraint_names_a_host() -> None:
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        assert re.fullmatch(r"[A-Za-z0-9_.\[\]-]+==[A-Za-z0-9_.!+-]+", line), line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["audit", "/no/such/corpus", "--out", "x", "--model", "ViT-B-32"], "/no/such/corpus does not exist"),
        (["audit", ".", "--out", "x", "--model", "ViT-B-99"], "did you mean ViT-B-32"),
        (["audit", ".", "--out", "x", "--model", "local-dir:/no/folder"], "there is no folder /no/folder"),
        (["encoders", "/no/such/corpus", "--try", "ViT-B-32"], "/no/such/corpus does not exist"),
        (["score", "audit", "--model", "no-checkpoint"], "neither an open_clip model nor a folder"),
        (["evaluate", "coco", "--data", ".", "--model", "ViT-B-99"], "did you mean ViT-B-32"),
    ],
)
def test_wrong_names_are_refused_before_torch_is_imported(arguments: list[str], message: str, tmp_path: Path) -> None:
    code = (
        "import sys; from auditor.cli import run_command_line; "
        "code = run_command_line(sys.argv[1:]); assert 'torch' not in sys.modules; sys.exit(code)"
    )
    command = [sys.executable, "-c", code, *arguments]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 1 and message in result.stderr, result.stderr


def test_the_models_of_open_clip_are_known_without_importing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    open_clip = pytest.importorskip("open_clip")
    from model.model_names import list_model_names

    registered = list_model_names()
    assert registered == open_clip.list_models()  # with those that other tests have added
    monkeypatch.delitem(sys.modules, "open_clip")
    assert "ViT-B-32" in list_model_names() and set(list_model_names()) <= set(registered)


def test_a_command_ends_without_a_traceback_if_its_output_is_closed() -> None:
    command = ["sh", "-c", f"exec '{sys.executable}' -m auditor.cli --version >&-"]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, cwd=ROOT, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "output", "code"),
    [(["--version"], "pipe", 0), (["summary", "/none"], "pipe", 1), (["--version"], "full", 1)],
)
def test_the_end_of_a_command_keeps_its_output_and_its_exit_code(arguments: list[str], output: str, code: int) -> None:
    """What was registered to run at exit and threads that still work are waited for; a full disk is reported."""
    program = (
        "import atexit, sys, threading, time\nfrom auditor.cli import main\n"
        "def work():\n    time.sleep(0.3)\n    print('thread ended')\n"
        "threading.Thread(target=work).start()\n"
        f"sys.argv[1:] = {arguments}\nimport auditor.cli\n"
        "command = auditor.cli.run_command_line\n"
        "def run_and_register():\n    atexit.register(print, 'closed')\n    return command()\n"
        "auditor.cli.run_command_line = run_and_register\nmain()\n"
    )
    with open("/dev/full", "w") if output == "full" else nullcontext(subprocess.PIPE) as target:
        done = subprocess.run(
            [sys.executable, "-c", program], stdout=target, stderr=subprocess.PIPE, text=True, cwd=ROOT, timeout=120
        )
    assert done.returncode == code, done.stderr
    if output == "pipe":
        assert done.stdout.endswith("thread ended\nclosed\n") and ("auditor: /none" in done.stderr) == bool(code)
    else:
        assert "No space left" in done.stderr
