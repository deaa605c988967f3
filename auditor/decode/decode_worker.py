"""One decoder process: takes files over a socket, one at a time, and gives back pixels or a reason.

Forked by auditor.decode.nursery_process; nothing else runs it. It may crash, hang or be killed at any time. With exact
pixels it has numpy and Pillow, else torch too; video libraries are imported with the first video.

A request is `REQUEST` (attempt, bytes, slot) and the file; an answer is `ANSWER` (bytes of JSON), the JSON, then the
pixels, unless they are in the slot (auditor.decode.slots). After an answer that says `spent` the process ends.
"""

import contextlib
import ctypes
import json
import os
import resource
import signal
import socket
import struct
import sys
from typing import Any

REQUEST = struct.Struct("<BQi")
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


def serve(connection: socket.socket, settings: dict[str, Any], slots: Any) -> None:
    from PIL import Image

    from model.pixels import Limits, PixelSpec

    limits = Limits(**settings["limits"])
    spec = PixelSpec.from_dict(settings["pixels"])
    Image.MAX_IMAGE_PIXELS = limits.max_pixels
    idle = memory()[1]
    answer(connection, {"ready": os.getpid()})
    while (request := receive(connection, REQUEST.size)) is not None:
        attempt, size, slot = REQUEST.unpack(request)
        allow_memory(limits.memory)
        try:
            data = receive(connection, size)
            if data is None:
                return
            header, stack = decode(bytes(data), spec, settings, limits, attempt)
            pixels = hand_over(header, stack, slots, slot)
            spent = memory()[1] - idle > KEPT_BYTES
        except MemoryError:
            header, pixels, spent = {"status": "too_large", "message": "the file does not fit in memory"}, b"", True
        data = stack = None
        answer(connection, {**header, "spent": spent}, pixels)
        if spent:
            return


def hand_over(header: dict[str, Any], stack: Any, slots: Any, slot: int) -> memoryview | bytes:
    """Put an image where the reader looks for it; returns what has to go through the socket."""
    import numpy as np

    if stack is None:
        return b""
    if slot >= 0 and len(stack) == 1:
        slots[slot] = stack[0]
        header["in_slot"] = True
        return b""
    return np.ascontiguousarray(stack).data.cast("B")


def decode(data: bytes, spec: Any, settings: dict[str, Any], limits: Any, attempt: int) -> tuple[dict[str, Any], Any]:
    """The facts about one file and its frames (F, H, W, 3). What it is, its content says: extensions lie."""
    from model.pixels import DecodeError
    from model.video.formats import is_video

    try:
        if is_video(data):
            stack, facts = decode_video(data, spec, settings["frames"], limits, attempt)
        else:
            stack, facts = decode_picture(data, spec, settings["exact"], limits)
    except DecodeError as error:
        return {"status": error.status, "message": str(error)}, None
    return {**facts, "shape": stack.shape}, stack


def decode_picture(data: bytes, spec: Any, exact: bool, limits: Any) -> tuple[Any, dict[str, Any]]:
    if exact:
        from model.pixels import decode_and_fit
    else:
        from model.fast_pixels import decode_and_fit
    pixels, (width, height) = decode_and_fit(data, spec, limits)
    return pixels[None], {"width": width, "height": height}


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
    import av  # noqa: F401

    with contextlib.suppress(ImportError):  # no wheel on some systems; PyAV then decodes all
        import decord  # noqa: F401


def run(settings: dict[str, Any], handle: int, shared: int | None = None) -> None:
    """The life of a decoder: `handle` is its socket, `shared` the memory for pixels."""
    from auditor.decode.slots import open_slots

    connection = socket.socket(fileno=handle)
    slots = None if shared is None else open_slots(shared, (*settings["pixels"]["size"], 3))
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        serve(connection, settings, slots)
