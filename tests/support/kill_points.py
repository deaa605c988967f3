"""What a command leaves if it is killed before any of its file operations, and what the same command then does.

    python -m tests.support.kill_points TEMPLATE WORK MODULE ARGUMENT...

MODULE is imported before an `auditor` command runs; `module:function` is called instead of the command. `{}` in an
argument is a copy of TEMPLATE. The command runs once. Before each of its operations, if anything has changed, the copy
is copied again: this is what a kill at that moment leaves. Then the command runs again on each of these folders, always
at the same place. One process imports MODULE and forks for every run, so that a run costs only its own work.

Prints one line of JSON per kill: the operation, and the exit code and stderr of the next run. Operations are Python's
audit events below the copy: files opened for writing, renamed or removed, and folders made. tests/run/test_run_audit.py
kills real processes.
"""

import contextlib
import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class KilledRun(NamedTuple):
    """Result of a run that was killed before an operation, and of the run after it."""

    number: int
    operation: str  # empty if the run finished
    folder: Path
    next_exit: int
    stderr: str  # of the next run


def folder_after_kill(folder: Path) -> Path:
    """Copy of the folder as the killed run left it."""
    return folder.with_name(f"{folder.name}-killed")


def kill_everywhere(template: Path, work: Path, module: str, *arguments: str) -> list[KilledRun]:
    """A result for every operation of the command, and at last for the run that finished."""
    command = [sys.executable, "-m", "tests.support.kill_points", str(template), str(work), module, *arguments]
    process = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert process.returncode == 0, process.stderr
    lines = [json.loads(line) for line in process.stdout.splitlines() if line.startswith("{")]
    return [KilledRun(**{**line, "folder": Path(line["folder"])}) for line in lines]


def main() -> None:
    template, work, module, *arguments = sys.argv[1:]
    name, _, function = module.partition(":")
    call = getattr(import_module(name), function) if function else run_auditor
    folder = Path(work) / "run"
    filled = [argument.replace("{}", str(folder)) for argument in arguments]
    shutil.copytree(template, folder, symlinks=True)
    exit_code, stderr = run_in_child(partial(run_with_copies, call, folder), filled)
    assert exit_code == 0, stderr
    operations = [*(Path(work) / "operations").read_text().splitlines(), ""]
    import_modules((Path(work) / "modules").read_text().split())
    folder.rename(folder_after_kill(place_of(folder, len(operations))))
    for number, operation in enumerate(operations, 1):
        left = place_of(folder, number)
        shutil.copytree(folder_after_kill(left), folder, symlinks=True)
        next_exit, stderr = run_in_child(call, filled)
        folder.rename(left)
        print(json.dumps(KilledRun(number, operation, left, next_exit, stderr)._asdict(), default=str), flush=True)


def place_of(folder: Path, number: int) -> Path:
    """The folder of a kill after the next run."""
    return folder.with_name(f"{number:03d}")


def run_with_copies(call: Callable[..., int], folder: Path, *arguments: str) -> int:
    """Call the command, copy the folder before each operation, and write down the operations and imported modules."""
    lock = threading.Lock()
    number = 0
    last_state: dict[Path, tuple[int, int]] | None = None

    def hook(event: str, details: tuple[Any, ...]) -> None:
        nonlocal number, last_state
        if not is_change(event, details) or not str(details[0]).startswith(f"{folder}/"):
            return
        with lock:  # other threads wait with their changes
            state = {path: (info.st_size, info.st_mtime_ns) for path in folder.rglob("*") if (info := path.lstat())}
            if state != last_state:  # otherwise the last operation changed nothing
                number, last_state = number + 1, state
                shutil.copytree(folder, folder_after_kill(place_of(folder, number)), symlinks=True)
                with folder.with_name("operations").open("a") as file:
                    file.write(f"{event} {details[0]}\n")

    sys.addaudithook(hook)
    code = call(*arguments)
    folder.with_name("modules").write_text("\n".join(list(sys.modules)))
    return code


def import_modules(names: Sequence[str]) -> None:
    """Import what the first run imported, so that later children are forked with it."""
    for name in names:
        with contextlib.suppress(Exception):  # modules created at run time
            import_module(name)
    gc.collect()
    gc.freeze()  # or the collector of each child would copy all of this memory


def run_auditor(*arguments: str) -> int:
    from auditor.cli import run_command_line

    return run_command_line(arguments)


def run_in_child(work: Callable[..., int], arguments: Sequence[str]) -> tuple[int, str]:
    """Exit code (negative for a signal) and stderr."""
    with tempfile.TemporaryFile() as stderr:
        child = os.fork()
        if child == 0:
            os.dup2(stderr.fileno(), 2)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            code = 70
            try:
                code = work(*arguments)
            except Exception:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        _, status = os.waitpid(child, 0)
        stderr.seek(0)
        return os.waitstatus_to_exitcode(status), stderr.read().decode(errors="replace")


def is_change(event: str, arguments: tuple[Any, ...]) -> bool:
    if event == "open":
        return isinstance(arguments[0], str) and bool(arguments[2] & WRITING)
    return event in CHANGES


if __name__ == "__main__":
    main()
