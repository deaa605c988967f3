"""Where decoder processes come from: one process, started with the first decoder, that has imported all and forks them.

A fresh decoder takes milliseconds instead of the seconds that importing torch takes, and a few megabytes instead of
300. There is one nursery for all pools of this process; it ends with it, however it ends, and its decoders with it.
"""

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from auditor.errors import AuditorError

LONGEST_ANSWER = 1 << 16  # bytes
START_SECONDS = 300.0  # to import torch, on a machine that is very busy


class DecoderError(AuditorError):
    """Decoder processes cannot run at all: a fault of the installation, not of a file."""


class Nursery:
    """The process and the socket to it; any thread may ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None
        self._owner = 0  # a fork of this process must not talk to the same nursery

    def fork(self, settings: dict[str, Any], handles: list[int]) -> int:
        """The number of a new decoder process that talks through the first handle."""
        for attempt in range(2):  # the nursery itself may have been killed
            try:
                answer = self._ask({"fork": settings}, handles)
                break
            except (OSError, ValueError) as error:
                if attempt:
                    raise DecoderError(f"no decoder process could be started: {error}; run `auditor doctor`") from error
        if "broken" in answer:
            raise DecoderError(f"decoders cannot import what they need: {answer['broken']}; run `auditor doctor`")
        return int(answer["pid"])

    def kill(self, pid: int) -> None:
        self._try({"kill": pid})

    def end(self, pid: int, grace: float) -> str:
        """Be rid of a decoder; what it had died of, empty where it had to be killed."""
        return str(self._try({"end": pid, "grace": grace}).get("cause", ""))

    def close(self) -> None:
        """End the process and every decoder of it; another is started when it is asked for."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _try(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            return self._ask(request, [])
        except (OSError, ValueError):
            return {"cause": "SIGKILL"}  # the nursery was killed, and its decoders with it

    def _ask(self, request: dict[str, Any], handles: list[int]) -> dict[str, Any]:
        with self._lock:
            if self._connection is None or self._owner != os.getpid():
                if "fork" not in request:
                    raise ConnectionResetError("it has ended")
                self._connection, self._owner = start(), os.getpid()
            try:
                socket.send_fds(self._connection, [json.dumps(request).encode()], handles)
                text = self._connection.recv(LONGEST_ANSWER)
                if not text:
                    raise ConnectionResetError("the process that starts them ends at once")
            except OSError:
                self._connection.close()
                self._connection = None
                raise
        answer: dict[str, Any] = json.loads(text)
        return answer


def start() -> socket.socket:
    """Start a nursery; returns the socket to it."""
    mine, its = socket.socketpair()
    mine.settimeout(START_SECONDS)
    # -P: a model.py in the current folder is not ours.
    command = [sys.executable, "-P", "-W", "ignore", "-m", "auditor.workers.fork_server_process"]
    failure: list[OSError] = []
    started = threading.Event()

    def live() -> None:
        """The kernel kills a process with the thread that started it, so this one stays."""
        try:
            child = subprocess.Popen(
                [*command, str(its.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # libtiff and ffmpeg write where they like
                stderr=subprocess.DEVNULL,
                pass_fds=[its.fileno()],
                env=environment(),
                start_new_session=True,  # a Ctrl-C in the terminal is the parent's to handle
            )
        except OSError as error:
            failure.append(error)
            return
        finally:
            its.close()
            started.set()
        child.wait()

    threading.Thread(target=live, daemon=True, name="nursery").start()
    started.wait()
    if failure:
        mine.close()
        raise failure[0]
    return mine


def environment() -> dict[str, str]:
    root = str(Path(__file__).resolve().parents[2])  # found even where this project is not installed
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "MALLOC_ARENA_MAX": "2",  # each thread's own arena would reserve address space that counts against the file
        "OMP_NUM_THREADS": "1",  # threads do not survive a fork, and a decoder has one core
        "CUDA_VISIBLE_DEVICES": "",
    }


_shared = Nursery()


def shared_nursery() -> Nursery:
    """The one of this process."""
    return _shared
