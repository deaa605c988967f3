"""A child process with a message channel: start it, exchange messages with a deadline, kill it and learn why it died.

    python -P -m auditor.workers.child_process DESCRIPTOR

The child runs a function of this project: `serve(channel, *arguments)`. A message is a byte string. Trusted children
answer with pickles; a child that decodes untrusted bytes answers with JSON. The child is a fresh interpreter, so the
script or notebook that started it does not run a second time. It dies with the process that started it, in any case.
"""

import ctypes
import importlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[2]
PR_SET_PDEATHSIG = 1


class DeadChildError(Exception):
    """The child process has closed its channel."""


class ChildProcess:
    """A running child. Any thread may use it, one at a time."""

    def __init__(
        self,
        serve: Callable[..., None],
        *arguments: object,
        environment: Mapping[str, str] | None = None,
        stderr: int | IO[bytes] | None = None,
    ) -> None:
        early = EARLY.pop(serve.__module__) if serve.__module__ in EARLY else None
        self.process, self.channel = early or start_interpreter(environment or {}, stderr)
        self.send(pickle.dumps((serve, arguments), pickle.HIGHEST_PROTOCOL))

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def send(self, message: bytes) -> None:
        """Send a message; if the child is dead, the next `receive` raises."""
        with suppress(OSError):
            self.channel.send_bytes(message)

    def receive(self, seconds: float | None = None) -> bytes:
        """Return the next message. Raises TimeoutError after `seconds`, and DeadChildError if the child has died."""
        try:
            if seconds is not None and not self.channel.poll(seconds):
                raise TimeoutError
            return self.channel.recv_bytes()
        except (EOFError, ConnectionError) as error:
            raise DeadChildError from error

    def kill(self) -> None:
        """Kill the process and wait for it; no effect the second time."""
        self.channel.close()
        self.process.kill()
        self.process.wait()


EARLY: dict[str, tuple["subprocess.Popen[bytes]", Connection]] = {}  # interpreters, by the module that they import


@contextmanager
def start_early(module: str) -> Iterator[None]:
    """Let a child import a module while this process does so too; the first ChildProcess that serves it is this child.

    It saves time only on a second core. A child that nobody has taken is killed at the end.
    """
    with suppress(OSError):  # then the ChildProcess fails too, and says so
        EARLY[module] = start_interpreter({}, subprocess.DEVNULL, module)
    try:
        yield
    finally:
        if idle := EARLY.pop(module, None):
            idle[1].close()
            idle[0].kill()
            idle[0].wait()


def start_interpreter(
    environment: Mapping[str, str], stderr: int | IO[bytes] | None, module: str = ""
) -> tuple["subprocess.Popen[bytes]", Connection]:
    """Start a child that imports a module, if one is named, and waits for its function."""
    parent_socket, child_socket = socket.socketpair()
    with parent_socket, child_socket:
        process = start_process(child_socket, environment, stderr)
        channel = Connection(parent_socket.detach())
    greeting = pickle.dumps((sys.path, os.getcwd(), os.getpid(), module))
    with suppress(OSError):  # it is dead
        channel.send_bytes(greeting)
    return process, channel


def start_process(
    child_socket: socket.socket, environment: Mapping[str, str], stderr: int | IO[bytes] | None
) -> "subprocess.Popen[bytes]":
    """Start the interpreter from a thread that waits for it: Linux kills a child with the thread that started it."""
    # -P: a model.py in the current folder is not ours.
    command = [sys.executable, "-P", "-m", "auditor.workers.child_process", str(child_socket.fileno())]
    python_path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    start: Future[subprocess.Popen[bytes]] = Future()

    def start_and_wait() -> None:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # a library must not print into the output of a command
                stderr=stderr,
                pass_fds=[child_socket.fileno()],
                env={**os.environ, "PYTHONPATH": python_path, **environment},
                start_new_session=True,  # the parent handles Ctrl-C in the terminal
            )
        except OSError as error:
            start.set_exception(error)
        else:
            start.set_result(process)
            process.wait()

    threading.Thread(target=start_and_wait, daemon=True, name="child process").start()
    return start.result()


def wait_for_messages(children: Sequence[ChildProcess]) -> list[ChildProcess]:
    """Wait until at least one child has sent a message or has died; return all such children."""
    ready = set(wait([child.channel for child in children]))
    return [child for child in children if child.channel in ready]


def die_with_parent(parent: int) -> None:
    """Make the kernel kill this process when its parent ends, for any reason."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the line above
        os._exit(0)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C does
    channel = Connection(int(sys.argv[1]))
    import_paths, folder, parent, module = pickle.loads(channel.recv_bytes())
    sys.path[:] = [str(ROOT), *import_paths]  # our own `model` comes before a user's model.py
    os.chdir(folder)
    die_with_parent(parent)
    if module:
        importlib.import_module(module)
    serve, arguments = pickle.loads(channel.recv_bytes())
    with suppress(EOFError, ConnectionError):  # the parent has closed the channel
        serve(channel, *arguments)


if __name__ == "__main__":
    main()
