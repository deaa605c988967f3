"""One decoder process seen from the parent: starting it, talking to it with a deadline, replacing it when it dies.

`DecoderProcess` is a child that runs auditor.decode.decode_worker and the socket to it; `Decoder` always has a working
one and turns whatever becomes of a file into a result. The pool in auditor.decode.decoders runs several side by side.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from auditor.decode.decode_worker import ANSWER, REQUEST
from auditor.errors import AuditorError
from auditor.sample import Kind, Problem
from model.pixels import Pixels

START_SECONDS = 120.0  # to import numpy and Pillow, on a machine that is very busy
LONGEST_ANSWER = 1 << 20  # bytes of JSON


class DecoderError(AuditorError):
    """Decoder processes cannot run at all: a fault of the installation, not of a file."""


class DeadDecoderError(Exception):
    """The process ended in the middle of a file."""


@dataclass(frozen=True, slots=True, eq=False)
class Decoded:
    """What a medium gave: one frame for an image, at most as many as asked for a video."""

    pixels: Pixels  # (F, H, W, 3)
    width: int  # as displayed, before fitting
    height: int
    duration: float | None = None  # seconds; None for an image
    times: list[float] | None = None  # seconds of each frame
    decoder: str | None = None  # of a video: the library that gave the frames

    @property
    def kind(self) -> Kind:
        """What the content is; the name of the file may say otherwise."""
        return "image" if self.times is None else "video"


class DecoderProcess:
    """One child process and the socket to it."""

    def __init__(self, settings: str, most: tuple[int, int, int, int]) -> None:
        mine, its = socket.socketpair()
        root = str(Path(__file__).resolve().parents[2])  # found even where this project is not installed
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        # Each thread's own malloc arena would reserve address space that counts against the file.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "MALLOC_ARENA_MAX": "2"}
        # -P: a model.py in the current folder is not ours.
        command = [sys.executable, "-P", "-W", "ignore", "-m", "auditor.decode.decode_worker"]
        with contextlib.ExitStack() as unwind, its:
            unwind.callback(mine.close)
            self.child = subprocess.Popen(
                [*command, str(its.fileno()), str(os.getpid()), settings],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # libtiff and ffmpeg write where they like
                stderr=subprocess.DEVNULL,
                pass_fds=[its.fileno()],
                env=environment,
                start_new_session=True,  # a Ctrl-C in the terminal is the parent's to handle
            )
            unwind.pop_all()
        self.connection = mine
        self.most = most
        self.ready = False
        self.spent = False

    @property
    def usable(self) -> bool:
        return not self.spent and self.child.poll() is None

    def wait_until_ready(self) -> None:
        """Raises DecoderError where the child says that it cannot run."""
        if not self.ready:
            greeting, _ = self._answer(time.monotonic() + START_SECONDS)
            if "broken" in greeting:
                raise DecoderError(f"decoders cannot import what they need: {greeting['broken']}; run `auditor doctor`")
            self.ready = True

    def decode(self, data: bytes, attempt: int, seconds: float) -> Decoded | Problem:
        """Raises TimeoutError at the deadline and DeadDecoderError where the process ended; both leave it unusable."""
        deadline = time.monotonic() + seconds
        try:
            self.connection.settimeout(seconds)
            self.connection.sendall(REQUEST.pack(attempt, len(data)))
            self.connection.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise DeadDecoderError from error
        # A decoder that a file has taken over may say anything; nothing here may depend on its good will.
        try:
            facts, pixels = self._answer(deadline)
            self.spent = bool(facts["spent"])
            if "status" in facts:
                return Problem("too_large" if facts["status"] == "too_large" else "corrupt", str(facts["message"]))
            times = [float(t) for t in facts["times"]] if "times" in facts else None
            size = int(facts["width"]), int(facts["height"])
            return Decoded(pixels, *size, facts.get("duration"), times, facts.get("decoder"))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DeadDecoderError from error

    def _answer(self, deadline: float) -> tuple[dict[str, Any], Pixels]:
        (size,) = ANSWER.unpack(self._receive(ANSWER.size, deadline))
        facts: dict[str, Any] = json.loads(bytes(self._receive(min(size, LONGEST_ANSWER), deadline)))
        shape = tuple(facts.get("shape", (0, *self.most[1:])))
        if shape[0] > self.most[0] or shape[1:] != self.most[1:]:
            raise DeadDecoderError
        pixels: Pixels = np.empty(shape, dtype=np.uint8)
        if pixels.size:
            self._receive_into(pixels.data.cast("B"), deadline)
        return facts, pixels

    def _receive(self, size: int, deadline: float) -> bytearray:
        data = bytearray(size)
        self._receive_into(memoryview(data), deadline)
        return data

    def _receive_into(self, view: memoryview, deadline: float) -> None:
        while view:
            self.connection.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                count = self.connection.recv_into(view)
            except ConnectionResetError as error:
                raise DeadDecoderError from error
            if not count:
                raise DeadDecoderError
            view = view[count:]

    def kill(self) -> str:
        """End the process, wait for it, and say what it had died of."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.child.wait(0.2)  # it may be on its way out: its own reason is the better one
        died_before = self.child.poll() is not None
        self.child.kill()
        code = self.child.wait()
        self.connection.close()
        if not died_before:
            return ""
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"


class Decoder:
    """A decoder process that is replaced when it dies. One thread decodes; any thread may `stop` it."""

    def __init__(self, settings: str, most: tuple[int, int, int, int], seconds: float) -> None:
        self.settings, self.most, self.seconds = settings, most, seconds
        self.process: DecoderProcess | None = None
        self._stopped = False
        self._lock = threading.Lock()  # between starting a process and stopping for good

    def decode(self, data: bytes) -> Decoded | Problem:
        """A result for every file; DecoderError only where decoders cannot run at all."""
        cause = ""
        for attempt in range(2):  # the first death may be nobody's fault: a kill from outside
            process = self._ready()
            try:
                return process.decode(data, attempt, self.seconds)
            except TimeoutError:
                self.end()
                return Problem("timeout", f"not decoded within {self.seconds:g} seconds")
            except DeadDecoderError:
                cause = self.end()
        hint = " (out of memory, or killed by somebody)" if cause == "SIGKILL" else ""
        return Problem("corrupt", f"decoder died of {cause}{hint}")

    def start(self) -> DecoderProcess:
        """Start a process, without waiting for it to be ready."""
        with self._lock:
            if self._stopped:
                raise DecoderError("the decoder pool is closed")
            try:
                self.process = DecoderProcess(self.settings, self.most)
            except OSError as error:
                raise DecoderError(f"no decoder process could be started: {error}") from error
            return self.process

    def stop(self) -> None:
        """Kill the process and start no other; the decoding thread, if any, is left to `end`."""
        with self._lock:
            self._stopped = True
            if self.process is not None:
                self.process.child.kill()

    def end(self) -> str:
        """Be rid of the process; returns what it had died of."""
        process, self.process = self.process, None
        return process.kill() or "a broken answer" if process else ""

    def _ready(self) -> DecoderProcess:
        """A process that waits for a file: a fresh one where the last is spent or was killed in between."""
        for _ in range(3):
            process = self.process or self.start()
            if process.usable:
                try:
                    process.wait_until_ready()
                    return process
                except (DeadDecoderError, TimeoutError):
                    pass  # killed while it started
            self.end()
        raise DecoderError("decoder processes die while they start; run `auditor doctor`")
