"""Kills a command at every file operation, each time on a fresh copy of a folder, and runs it again to the end.

    python -m tests.support.kill_points TEMPLATE WORK MODULE ARGUMENT...

MODULE is what to import before an `auditor` command is run, or `module:function` to call that instead with the
arguments; `{}` in an argument is the copy. One process imports MODULE and forks for every run, so that a kill point
takes the time of the work alone. What a killed run leaves is kept beside the copy (`left_by_kill`). Prints a line of
JSON for each: the operation, what the killed run and the next one ended with, and what that said. Operations are
counted by Python's audit events: files opened for writing, renamed, removed, folders made, all below the copy.
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


class Killed(NamedTuple):
    """What became of a run that was killed at an operation, and of the one after it."""

    number: int
    operation: str
    folder: Path
    exit: int  # -9, or 0 where it came to its end before
    again: int
    said: str


def left_by_kill(folder: Path) -> Path:
    """What the folder was like when the killed run had left it."""
    return folder.with_name(f"{folder.name}-killed")


def kill_everywhere(template: Path, work: Path, module: str, *arguments: str) -> list[Killed]:
    """A result for every operation of the command; the last is of a run that was not killed."""
    command = [sys.executable, "-m", "tests.support.kill_points", str(template), str(work), module, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return [Killed(**{**line, "folder": Path(line["folder"])}) for line in lines]


def main() -> None:
    template, work, module, *arguments = sys.argv[1:]
    name, _, function = module.partition(":")
    work_of = getattr(import_module(name), function) if function else command_line
    import_what_it_needs(work_of, arguments, Path(template), Path(work))
    number, ended = 0, -signal.SIGKILL
    while ended == -signal.SIGKILL:
        number += 1
        folder = Path(work) / f"{number:03d}"
        shutil.copytree(template, folder, symlinks=True)
        given = [argument.replace("{}", str(folder)) for argument in arguments]
        ended, operation = run_in_child(work_of, given, folder, number)
        shutil.copytree(folder, left_by_kill(folder), symlinks=True)
        again, said = run_in_child(work_of, given, folder, 0)
        fields = (number, operation.strip().rpartition("\n")[2], str(folder), ended, again, said)
        print(json.dumps(dict(zip(Killed._fields, fields, strict=True))), flush=True)


def import_what_it_needs(work_of: Callable[..., int], arguments: Sequence[str], template: Path, work: Path) -> None:
    """Here, once, what a first run in a child imports on its way: children are then forked with it."""
    folder, names = work / "000", work / "000.modules"
    shutil.copytree(template, folder, symlinks=True)

    def run_and_list(*given: str) -> int:
        code = work_of(*given)
        names.write_text("\n".join(list(sys.modules)))
        return code

    run_in_child(run_and_list, [argument.replace("{}", str(folder)) for argument in arguments], folder, 0)
    for name in names.read_text().split() if names.exists() else ():
        with contextlib.suppress(Exception):  # names that are made at run time
            import_module(name)
    shutil.rmtree(folder)


def command_line(*arguments: str) -> int:
    from auditor.cli import run

    return run(arguments)


def run_in_child(work: Callable[..., int], arguments: Sequence[str], folder: Path, number: int) -> tuple[int, str]:
    """Exit code (negative: of a signal) and what it said on stderr."""
    with tempfile.TemporaryFile() as said:
        child = os.fork()
        if child == 0:
            os.dup2(said.fileno(), 2)
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
        said.seek(0)
        return os.waitstatus_to_exitcode(status), said.read().decode(errors="replace")


def kill_at(number: int, folder: str) -> None:
    """End this process without warning just before the operation of that number below the folder."""
    left = number

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if not changes(event, arguments) or not str(arguments[0]).startswith(folder):
            return
        left -= 1
        if left == 0:
            os.write(2, f"\n{event} {arguments[0]}".encode())
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def changes(event: str, arguments: tuple[Any, ...]) -> bool:
    if event == "open":
        return isinstance(arguments[0], str) and bool(arguments[2] & WRITING)
    return event in CHANGES


if __name__ == "__main__":
    main()
