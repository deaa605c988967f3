"""The process that forks decoders: it imports numpy, Pillow and torch once, so that each decoder shares their memory.

Started by auditor.workers.fork_server as `python -m auditor.workers.fork_server_process SOCKET PARENT`; nothing else runs it. It
never sees a file. A request is a JSON object, `fork` (with the decoder's socket and slots as file descriptors), `kill`
or `end`, and is answered by one before the next comes.
"""

import gc
import json
import os
import signal
import socket
import sys
import time
from typing import Any

from auditor.workers.decode_worker import die_with, run

GRACE_STEP = 0.005


def import_for(settings: dict[str, Any]) -> None:
    """Import here what the decoder would import, and keep the collector from touching it in every child."""
    import numpy as np  # noqa: F401

    import model.pixels
    import model.video.video_formats

    if not settings["exact"]:
        import torch

        import model.fast_pixels  # noqa: F401

        torch.set_num_threads(1)
    gc.collect()
    gc.freeze()


def fork(settings: dict[str, Any], connection: socket.socket, handles: list[int]) -> dict[str, Any]:
    """Fork a decoder that talks through the first of the handles and writes pixels into the second, if there is one."""
    try:
        import_for(settings)
        me = os.getpid()
        pid = os.fork()
    except (ImportError, OSError) as error:
        return {"broken": str(error)}
    if pid == 0:
        code = 1
        try:
            connection.close()
            die_with(me)
            run(settings, *handles)
            code = 0
        finally:
            os._exit(code)
    return {"pid": pid}


def end(pid: int, grace: float) -> dict[str, Any]:
    """Reap a decoder, killing it where it does not end by itself within `grace` seconds; says what it had died of."""
    deadline = time.monotonic() + grace
    done, status = os.waitpid(pid, os.WNOHANG)
    while not done and time.monotonic() < deadline:
        time.sleep(GRACE_STEP)
        done, status = os.waitpid(pid, os.WNOHANG)
    if not done:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return {"cause": ""}
    code = os.waitstatus_to_exitcode(status)
    return {"cause": signal.Signals(-code).name if code < 0 else f"exit code {code}"}


def serve(connection: socket.socket) -> None:
    living: set[int] = set()
    while True:
        text, handles, _, _ = socket.recv_fds(connection, 1 << 16, 2)
        if not text:
            return
        request = json.loads(text)
        if "fork" in request:
            answer = fork(request["fork"], connection, handles)
            for handle in handles:
                os.close(handle)
            living.update(answer.values() if "pid" in answer else ())
        elif "kill" in request and request["kill"] in living:
            os.kill(request["kill"], signal.SIGKILL)  # not reaped yet, so the number is still its own
            answer = {}
        elif "end" in request and request["end"] in living:
            answer = end(request["end"], request["grace"])
            living.remove(request["end"])
        else:  # of another nursery, which was killed, and it was killed with it
            answer = {"cause": "SIGKILL"}
        connection.sendall(json.dumps(answer).encode())


def main() -> None:
    handle, parent = sys.argv[1:]
    die_with(int(parent))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent says when to end
    serve(socket.socket(fileno=int(handle)))


if __name__ == "__main__":
    main()
