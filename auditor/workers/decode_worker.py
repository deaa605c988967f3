"""One decoder process: takes files over a socket, one at a time, and gives back pixels or a reason.

Forked by auditor.workers.fork_server_process; nothing else runs it. It may crash, hang or be killed at any time. With exact
pixels it has numpy and Pillow, else torch too; video libraries are imported with the first video.

A request is `REQUEST` (attempt, bytes of JSON, bytes of the file, slot), what is asked as JSON, and the file. An answer
is `ANSWER` (bytes of JSON), the JSON, then the pixels, unless they are in the slot (auditor.workers.pixel_slots). Frames of
spans come in several answers: all but the last say `more`. After one that says `spent` the process ends.
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
from dataclasses import asdict, dataclass
from typing import Any

REQUEST = struct.Struct("<BIQi")
ANSWER = struct.Struct("<I")
PR_SET_PDEATHSIG = 1
PART = 64  # frames sent at once
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
        attempt, asked_size, size, slot = REQUEST.unpack(request)
        allow_memory(limits.memory)
        try:
            asked, data = receive(connection, asked_size), receive(connection, size)
            if asked is None or data is None:
                return
            header, stack = Job(bytes(data), json.loads(asked), attempt, settings, spec, limits).decode(connection)
            pixels = hand_over(header, stack, slots, slot)
            spent = memory()[1] - idle > KEPT_BYTES
        except MemoryError:
            header, pixels, spent = {"status": "too_large", "message": "the file does not fit in memory"}, b"", True
        asked = data = stack = None
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


@dataclass
class Job:
    """One file and what is asked of it: `spans` with their `context`, of which `skip` frames were given before."""

    data: bytes
    asked: dict[str, Any]
    attempt: int
    settings: dict[str, Any]
    spec: Any
    limits: Any

    def decode(self, connection: socket.socket) -> tuple[dict[str, Any], Any]:
        """The facts about the file and its frames (F, H, W, 3). What it is, its content says: extensions lie."""
        from auditor.workers.pixel_facts import pixel_facts
        from model.pixels import DecodeError
        from model.video.video_formats import is_video

        try:
            if not is_video(self.data):
                stack, facts = decode_picture(self.data, self.spec, self.settings["exact"], self.limits)
            elif "spans" in self.asked:
                return self.decode_spans(connection), None
            else:
                stack, facts = self.decode_whole()
        except DecodeError as error:
            return {"status": error.status, "message": str(error)}, None
        if self.settings["measure"]:
            facts["measured"] = asdict(pixel_facts(stack))
        return {**facts, "shape": stack.shape}, stack

    def decode_whole(self) -> tuple[Any, dict[str, Any]]:
        import numpy as np

        from model.video.truncation import truncation
        from model.video.video_decode import decode_frames

        load_video_libraries(self.limits)
        found = decode_frames(
            self.data,
            self.settings["frames"],
            self.limits,
            self.spec,
            distrust_pyav=self.attempt > 0,
            motion=self.settings["motion"],
        )
        facts = {name: getattr(found, name) for name in ("width", "height", "duration", "times", "decoder")}
        facts |= {"facts": found.facts and asdict(found.facts), "note": truncation(self.data)}
        return np.stack(found.images), facts

    def decode_spans(self, connection: socket.socket) -> dict[str, Any]:
        """Sends the frames in parts as they are decoded; the last answer says which frames are of which span."""
        from model.video.truncation import truncation
        from model.video.video_decode import Wanted, span_video

        load_video_libraries(self.limits)
        wanted = Wanted(self.asked["spans"], self.settings["frames"], self.asked["context"], self.asked["skip"])
        with span_video(self.data, wanted, self.limits, self.spec, motion=self.settings["motion"]) as video:
            send_parts(connection, video)
            facts = {"duration": video.index.duration, "decoder": "pyav", "facts": asdict(video.facts())}
            plan = {"times": video.times(), "of_span": video.plan.of_span, "around": video.plan.around}
            note = {"note": truncation(self.data)}
            return {"width": video.size[0], "height": video.size[1], **facts, **plan, **note}


def send_parts(connection: socket.socket, video: Any) -> None:
    """Send frames as they are decoded, `PART` at a time, with their places in the plan."""
    place = {number: position for position, number in enumerate(video.plan.frames)}
    waiting: list[tuple[int, Any]] = []
    for number, image in video.pictures():
        waiting.append((place[number], image))
        if len(waiting) == PART:
            send_part(connection, waiting)
    if waiting:
        send_part(connection, waiting)


def send_part(connection: socket.socket, waiting: list[tuple[int, Any]]) -> None:
    import numpy as np

    stack = np.stack([image for _, image in waiting])
    answer(connection, {"more": [at for at, _ in waiting], "shape": stack.shape}, stack.data.cast("B"))
    waiting.clear()


def decode_picture(data: bytes, spec: Any, exact: bool, limits: Any) -> tuple[Any, dict[str, Any]]:
    if exact:
        from model.pixels import decode_and_fit
    else:
        from model.fast_pixels import decode_and_fit
    pixels, (width, height) = decode_and_fit(data, spec, limits)
    return pixels[None], {"width": width, "height": height}


def load_video_libraries(limits: Any) -> None:
    """With the first video; the libraries themselves are no fault of the file."""
    if "av" in sys.modules:
        return
    import av  # noqa: F401

    with contextlib.suppress(ImportError):  # no wheel on some systems; PyAV then decodes all
        import decord  # noqa: F401
    allow_memory(limits.memory)


def run(settings: dict[str, Any], handle: int, shared: int | None = None) -> None:
    """The life of a decoder: `handle` is its socket, `shared` the memory for pixels."""
    from auditor.workers.pixel_slots import open_slots

    connection = socket.socket(fileno=handle)
    slots = None if shared is None else open_slots(shared, (*settings["pixels"]["size"], 3))
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        serve(connection, settings, slots)
