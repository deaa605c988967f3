"""One decoder process: takes files over a socket, one at a time, and gives back pixels or a reason.

Started by auditor.decode.decoder_process as `python -m auditor.decode.decode_worker SOCKET PARENT SETTINGS`; nothing
else runs it. It may crash, hang or be killed at any time. It imports numpy and Pillow, video libraries with the first
video, never torch.

A request is `REQUEST` (attempt, bytes) and the file; an answer is `ANSWER` (bytes of JSON), the JSON, then the
pixels. After an answer that says `spent` the process ends.
"""

import ctypes
import json
import os
import resource
import signal
import socket
import struct
import sys
from typing import Any

REQUEST = struct.Struct("<BQ")
ANSWER = struct.Struct("<I")
PR_SET_PDEATHSIG = 1
KEPT_BYTES = 512 << 20  # a process that holds on to more than this after a file makes way for a fresh one


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent goes, however that goes."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it went before the line above
        os._exit(0)


def memory() -> tuple[int, int]:
    """Bytes of address space and of real memory this process has; zeros where the system does not say."""
    if sys.platform != "linux":
        return 0, 0
    with open("/proc/self/statm") as statm:
        space, resident = statm.read().split()[:2]
    return int(space) * resource.getpagesize(), int(resident) * resource.getpagesize()


def allow_memory(extra: int) -> None:
    """Let this process grow by `extra` bytes of address space: beyond, an allocation fails and one file pays."""
    if sys.platform == "linux":
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        soft = memory()[0] + extra
        resource.setrlimit(resource.RLIMIT_AS, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def receive(connection: socket.socket, size: int) -> bytearray | None:
    """Exactly `size` bytes, or None where the other side has gone."""
    data = bytearray(size)
    view = memoryview(data)
    while view:
        count = connection.recv_into(view)
        if not count:
            return None
        view = view[count:]
    return data


def answer(connection: socket.socket, header: dict[str, Any], pixels: memoryview | bytes = b"") -> None:
    text = json.dumps(header).encode()
    connection.sendall(ANSWER.pack(len(text)) + text)
    if len(pixels):
        connection.sendall(pixels)


def serve(connection: socket.socket, settings: dict[str, Any]) -> None:
    from PIL import Image

    from model.pixels import Limits, PixelSpec

    limits = Limits(**settings["limits"])
    spec = PixelSpec.from_dict(settings["pixels"])
    Image.MAX_IMAGE_PIXELS = limits.max_pixels
    idle = memory()[1]
    answer(connection, {"ready": os.getpid()})
    while (request := receive(connection, REQUEST.size)) is not None:
        attempt, size = REQUEST.unpack(request)
        allow_memory(limits.memory)
        try:
            data = receive(connection, size)
            if data is None:
                return
            header, pixels = decode(bytes(data), spec, settings["frames"], limits, attempt)
            spent = memory()[1] - idle > KEPT_BYTES
        except MemoryError:
            header, pixels, spent = {"status": "too_large", "message": "the file does not fit in memory"}, b"", True
        data = None
        answer(connection, {**header, "spent": spent}, pixels)
        if spent:
            return


def decode(data: bytes, spec: Any, frames: int, limits: Any, attempt: int) -> tuple[dict[str, Any], memoryview | bytes]:
    """The answer to one file. What it is, its content says: extensions lie."""
    import numpy as np

    from model.pixels import DecodeError, decode_image, fit_to
    from model.video.formats import is_video

    try:
        if is_video(data):
            stack, facts = decode_video(data, spec, frames, limits, attempt)
        else:
            image = decode_image(data, limits)
            stack, facts = fit_to(spec, image)[None], {"width": image.width, "height": image.height}
    except DecodeError as error:
        return {"status": error.status, "message": str(error)}, b""
    return {**facts, "shape": stack.shape}, np.ascontiguousarray(stack).data.cast("B")


def decode_video(data: bytes, spec: Any, frames: int, limits: Any, attempt: int) -> tuple[Any, dict[str, Any]]:
    import numpy as np

    from model.video.decode import decode_frames

    if "av" not in sys.modules:
        load_video_libraries()
        allow_memory(limits.memory)  # the libraries themselves are no fault of the file
    found = decode_frames(data, frames, limits, spec, distrust_pyav=attempt > 0)
    facts = {name: getattr(found, name) for name in ("width", "height", "duration", "times", "decoder")}
    return np.stack(found.images), facts


def load_video_libraries() -> None:
    import contextlib

    import av  # noqa: F401

    with contextlib.suppress(ImportError):  # no wheel on some systems; PyAV then decodes all
        import decord  # noqa: F401


def main() -> None:
    handle, parent, settings = sys.argv[1:]
    die_with(int(parent))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent says when to end
    connection = socket.socket(fileno=int(handle))
    try:
        serve(connection, json.loads(settings))
    except (BrokenPipeError, ConnectionResetError):
        pass
    except ImportError as error:
        answer(connection, {"broken": str(error)})


if __name__ == "__main__":
    main()
