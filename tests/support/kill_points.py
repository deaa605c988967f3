"""Kill a command at every file operation, each time on a fresh copy of a folder, and run it again to the end.

    python -m tests.support.kill_points TEMPLATE WORK MODULE ARGUMENT...

MODULE is imported before an `auditor` command runs; `module:function` is called instead of the command. `{}` in an
argument is the copy. One process imports MODULE and forks for every run, so that a run costs only its own work. The
folder that a killed run leaves is kept next to the copy (`folder_after_kill`). Prints one line of JSON per run: the
operation, the exit codes of the killed run and of the next one, and the latter's stderr. Operations are counted by
Python's audit events below the copy: files opened for writing, renamed or removed, and folders made.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class KilledRun(NamedTuple):
    """Result of a run that was killed at an operation, and of the run after it."""

    number: int
    operation: str
    folder: Path
    exit: int  # -9, or 0 if it finished first
    next_exit: int
    stderr: str  # of the next run


def folder_after_kill(folder: Path) -> Path:
    """Copy of the folder as the killed run left it."""
    return folder.with_name(f"{folder.name}-killed")


def kill_everywhere(template: Path, work: Path, module: str, *arguments: str) -> list[KilledRun]:
    """A result for every operation of the command. The last run is not killed."""
    command = [sys.executable, "-m", "tests.support.kill_points", str(template), str(work), module, *arguments]
    process = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert process.returncode == 0, process.stderr
    lines = [json.loads(line) for line in process.stdout.splitlines() if line.startswith("{")]
    return [KilledRun(**{**line, "folder": Path(line["folder"])}) for line in lines]


def main() -> None:
    template, work, module, *arguments = sys.argv[1:]
    name, _, function = module.partition(":")
    call = getattr(import_module(name), function) if function else run_auditor
    preload_modules(call, arguments, Path(template), Path(work))
    number, exit_code = 0, -signal.SIGKILL
    while exit_code == -signal.SIGKILL:
        number += 1
        folder = Path(work) / f"{number:03d}"
        shutil.copytree(template, folder, symlinks=True)
        filled = [argument.replace("{}", str(folder)) for argument in arguments]
        exit_code, operation = run_in_child(call, filled, folder, number)
        shutil.copytree(folder, folder_after_kill(folder), symlinks=True)
        next_exit, stderr = run_in_child(call, filled, folder, 0)
        fields = (number, operation.strip().rpartition("\n")[2], str(folder), exit_code, next_exit, stderr)
        print(json.dumps(dict(zip(KilledRun._fields, fields, strict=True))), flush=True)


def preload_modules(call: Callable[..., int], arguments: Sequence[str], template: Path, work: Path) -> None:
    """Import everything that a first run in a child imports, so that later children are forked with it."""
    folder, names = work / "000", work / "000.modules"
    shutil.copytree(template, folder, symlinks=True)

    def run_and_list(*filled: str) -> int:
        code = call(*filled)
        names.write_text("\n".join(list(sys.modules)))
        return code

    run_in_child(run_and_list, [argument.replace("{}", str(folder)) for argument in arguments], folder, 0)
    for name in names.read_text().split() if names.exists() else ():
        with contextlib.suppress(Exception):  # modules created at run time
            import_module(name)
    shutil.rmtree(folder)


def run_auditor(*arguments: str) -> int:
    from auditor.cli import run_command_line

    return run_command_line(arguments)


def run_in_child(work: Callable[..., int], arguments: Sequence[str], folder: Path, number: int) -> tuple[int, str]:
    """Exit code (negative for a signal) and stderr."""
    with tempfile.TemporaryFile() as stderr:
        child = os.fork()
        if child == 0:
            os.dup2(stderr.fileno(), 2)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            code = 70
            try:
                if number:
                    kill_at(number, str(folder))
                code = work(*arguments)
            except Exception:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        _, status = os.waitpid(child, 0)
        stderr.seek(0)
        return os.waitstatus_to_exitcode(status), stderr.read().decode(errors="replace")


def kill_at(number: int, folder: str) -> None:
    """Kill this process just before the operation of this number below the folder."""
    remaining = number

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal remaining
        if not is_change(event, arguments) or not str(arguments[0]).startswith(folder):
            return
        remaining -= 1
        if remaining == 0:
            os.write(2, f"\n{event} {arguments[0]}".encode())
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def is_change(event: str, arguments: tuple[Any, ...]) -> bool:
    if event == "open":
        return isinstance(arguments[0], str) and bool(arguments[2] & WRITING)
    return event in CHANGES


if __name__ == "__main__":
    main()
