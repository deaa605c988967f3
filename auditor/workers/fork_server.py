"""The fork server: one child process that has imported everything a decoder needs and forks decoder processes.

A new decoder takes milliseconds instead of the seconds that importing torch takes, and a few megabytes instead of 300.
All decoder pools of this process share one fork server. It ends with this process, for any reason, and its decoders end
with it. It never sees a file. A request is a JSON object, `fork` (followed by the file descriptors of the decoder's
socket and pixel slots) or `end`, answered before the next one comes, or `prepare`, which has no answer.
"""

import gc
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any

from auditor.errors import AuditorError
from auditor.workers.child_process import ChildProcess, DeadChildError, die_with_parent
from auditor.workers.decode_worker import run_decoder

START_SECONDS = 300.0  # to import torch on a very busy machine
GRACE_STEP = 0.005
ENVIRONMENT = {
    "MALLOC_ARENA_MAX": "2",  # an arena for each thread would reserve address space that counts against the file
    "OMP_NUM_THREADS": "1",  # threads do not survive a fork, and a decoder has one core
    "CUDA_VISIBLE_DEVICES": "",
    "PYTHONWARNINGS": "ignore",
}


class DecoderError(AuditorError):
    """Decoder processes cannot run at all: a fault of the installation, not of a file."""


class ForkServer:
    """The child process and its channel; several threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: ChildProcess | None = None
        self._owner = 0  # a fork of this process must not use the same child

    def prepare(self, *, exact: bool) -> None:
        """Start the child if there is none; it imports what decoders need while this process imports other modules."""
        with self._lock, suppress(OSError):  # `fork` reports what is wrong
            if self._child is None or self._owner != os.getpid():
                self._start_child().send(json.dumps({"prepare": {"exact": exact}}).encode())

    def fork(self, settings: dict[str, Any], handles: list[int]) -> int:
        """Fork a decoder process that uses the first handle as its socket; return its pid."""
        for attempt in range(2):  # the fork server itself may have been killed
            try:
                answer = self._request({"fork": settings, "handles": len(handles)}, handles)
                break
            except (OSError, ValueError) as error:
                if attempt:
                    raise DecoderError(f"no decoder process could be started: {error}; run `auditor doctor`") from error
        if "broken" in answer:
            raise DecoderError(f"decoders cannot import what they need: {answer['broken']}; run `auditor doctor`")
        return int(answer["pid"])

    def end(self, pid: int, grace: float) -> str:
        """Wait for a decoder, or kill it after `grace` seconds; return why it died, empty if it had to be killed."""
        try:
            return str(self._request({"end": pid, "grace": grace})["cause"])
        except (OSError, ValueError):
            return "SIGKILL"  # the fork server was killed, and its decoders with it

    def close(self) -> None:
        """Kill the child and all its decoders; the next `fork` starts another child."""
        with self._lock:
            if self._child is not None and self._owner == os.getpid():
                self._child.kill()
            self._child = None

    def _request(self, request: dict[str, Any], handles: Sequence[int] = ()) -> dict[str, Any]:
        with self._lock:
            if self._child is None or self._owner != os.getpid():
                if "fork" not in request:
                    raise ConnectionResetError("the fork server has ended")
                self._start_child()
            assert self._child is not None
            try:
                self._child.send(json.dumps(request).encode())
                for handle in handles:
                    send_handle(self._child.channel, handle, self._child.pid)
                answer: dict[str, Any] = json.loads(self._child.receive(START_SECONDS))
            except (DeadChildError, OSError) as error:
                self._child.kill()
                self._child = None
                raise ConnectionResetError("the process that starts them ends at once") from error
        return answer

    def _start_child(self) -> ChildProcess:
        self._owner = os.getpid()
        stderr = subprocess.DEVNULL  # libtiff and ffmpeg print into it
        self._child = ChildProcess(serve_fork_requests, environment=ENVIRONMENT, stderr=stderr)
        return self._child


FORK_SERVER = ForkServer()  # of this process


def serve_fork_requests(channel: Connection) -> None:
    """Run in the child: answer requests until the parent closes the channel."""
    decoders: set[int] = set()
    while True:
        request = json.loads(channel.recv_bytes())
        if "prepare" in request:
            with suppress(ImportError):  # the next request reports it
                import_decoder_modules(request["prepare"])
            continue
        if "fork" in request:
            handles = [recv_handle(channel) for _ in range(request["handles"])]
            answer = fork_decoder(request["fork"], channel, handles)
            for handle in handles:
                os.close(handle)
            decoders.update(answer.values() if "pid" in answer else ())
        elif request["end"] in decoders:  # it is not reaped yet, so the pid is still its own
            answer = end_decoder(request["end"], request["grace"])
            decoders.remove(request["end"])
        else:  # a decoder of an earlier fork server, which was killed with it
            answer = {"cause": "SIGKILL"}
        channel.send_bytes(json.dumps(answer).encode())


def fork_decoder(settings: dict[str, Any], channel: Connection, handles: list[int]) -> dict[str, Any]:
    """Fork a decoder with its socket in the first handle and the pixel slots, if any, in the second."""
    try:
        import_decoder_modules(settings)
        parent = os.getpid()
        pid = os.fork()
    except (ImportError, OSError) as error:
        return {"broken": str(error)}
    if pid == 0:
        code = 1
        try:
            channel.close()
            die_with_parent(parent)
            run_decoder(settings, *handles)
            code = 0
        finally:
            os._exit(code)
    return {"pid": pid}


def import_decoder_modules(settings: dict[str, Any]) -> None:
    """Import what the decoders need, and exempt it from garbage collection so that all decoders share its memory."""
    gc.disable()  # it would search the objects of all imports again and again
    import numpy as np  # noqa: F401

    import model.pixels
    import model.video.video_formats

    if not settings["exact"]:
        import torch

        import model.fast_pixels  # noqa: F401

        torch.set_num_threads(1)
    gc.freeze()
    gc.enable()


def end_decoder(pid: int, grace: float) -> dict[str, Any]:
    """Wait for a decoder, or kill it after `grace` seconds; return why it died."""
    deadline = time.monotonic() + grace
    while not (ended := os.waitpid(pid, os.WNOHANG))[0] and time.monotonic() < deadline:
        time.sleep(GRACE_STEP)
    if not ended[0]:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return {"cause": ""}
    code = os.waitstatus_to_exitcode(ended[1])
    return {"cause": signal.Signals(-code).name if code < 0 else f"exit code {code}"}
