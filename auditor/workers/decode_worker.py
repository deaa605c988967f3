"""One decoder process: receives files over a socket, one at a time, and answers with pixels or a reason.

auditor.workers.fork_server forks it; nothing else runs it. It may crash, hang or be killed at any time. For exact
pixels it needs numpy and Pillow, else torch too; the first video imports the video libraries.

A request is `REQUEST` (attempt, bytes of JSON, bytes of the file, slot), a JSON object, and the file. An answer is
`ANSWER` (bytes of JSON), the JSON, then the pixels, unless they are in the slot (auditor.workers.pixel_slots). Frames
of spans come in several answers: all but the last have the key `more`. After an answer with `spent`, the process ends.
"""

import contextlib
import json
import os
import resource
import socket
import struct
import sys
from dataclasses import asdict, dataclass
from typing import Any

REQUEST = struct.Struct("<BIQi")
ANSWER = struct.Struct("<I")
PART = 64  # frames sent at once
LEAK_BYTES = 512 << 20  # a process that still holds more than this after a file is replaced


def measure_memory() -> tuple[int, int]:
    """Return the bytes of address space and of resident memory of this process; zeros if the system has no /proc."""
    if sys.platform != "linux":
        return 0, 0
    with open("/proc/self/statm") as statm:
        space, resident = statm.read().split()[:2]
    return int(space) * resource.getpagesize(), int(resident) * resource.getpagesize()


def allow_memory(extra: int) -> None:
    """Limit this process to `extra` more bytes of address space; beyond it an allocation fails, for one file only."""
    if sys.platform == "linux":
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        soft = measure_memory()[0] + extra
        resource.setrlimit(resource.RLIMIT_AS, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def receive_exactly(connection: socket.socket, size: int) -> bytearray | None:
    """Return exactly `size` bytes, or None if the other side has closed the connection."""
    data = bytearray(size)
    view = memoryview(data)
    while view:
        count = connection.recv_into(view)
        if not count:
            return None
        view = view[count:]
    return data


def send_answer(connection: socket.socket, header: dict[str, Any], pixels: memoryview | bytes = b"") -> None:
    text = json.dumps(header).encode()
    connection.sendall(ANSWER.pack(len(text)) + text)
    if len(pixels):
        connection.sendall(pixels)


def serve_files(connection: socket.socket, settings: dict[str, Any], slots: Any) -> None:
    """Answer requests until the other side closes the connection or the process is spent."""
    from PIL import Image

    from model.pixels import DecodeLimits, PixelSpec

    limits = DecodeLimits(**settings["limits"])
    spec = PixelSpec.from_dict(settings["pixels"])
    Image.MAX_IMAGE_PIXELS = limits.max_pixels
    idle = measure_memory()[1]
    send_answer(connection, {"ready": os.getpid()})
    while (request := receive_exactly(connection, REQUEST.size)) is not None:
        attempt, options_size, size, slot = REQUEST.unpack(request)
        allow_memory(limits.memory)
        try:
            options, data = receive_exactly(connection, options_size), receive_exactly(connection, size)
            if options is None or data is None:
                return
            header, stack = FileDecoding(bytes(data), json.loads(options), attempt, settings, spec, limits).decode(
                connection
            )
            pixels = place_pixels(header, stack, slots, slot)
            spent = measure_memory()[1] - idle > LEAK_BYTES
        except MemoryError:
            header, pixels, spent = {"status": "too_large", "message": "the file does not fit in memory"}, b"", True
        options = data = stack = None
        send_answer(connection, {**header, "spent": spent}, pixels)
        if spent:
            return


def place_pixels(header: dict[str, Any], stack: Any, slots: Any, slot: int) -> memoryview | bytes:
    """Write an image into its slot, if there is one; return the bytes that go through the socket."""
    import numpy as np

    if stack is None:
        return b""
    if slot >= 0 and len(stack) == 1:
        slots[slot] = stack[0]
        header["in_slot"] = True
        return b""
    return np.ascontiguousarray(stack).data.cast("B")


@dataclass
class FileDecoding:
    """The decoding of one file. `options` may have `spans` with their `context`; the first `skip` frames were sent."""

    data: bytes
    options: dict[str, Any]
    attempt: int
    settings: dict[str, Any]
    spec: Any
    limits: Any

    def decode(self, connection: socket.socket) -> tuple[dict[str, Any], Any]:
        """Return the facts about the file and its frames (F, H, W, 3). The content decides its kind, not its name."""
        from auditor.workers.pixel_facts import measure_pixels
        from model.pixels import DecodeError
        from model.video.video_formats import is_video

        try:
            if not is_video(self.data):
                stack, facts = decode_picture(self.data, self.spec, self.settings["exact"], self.limits)
            elif "spans" in self.options:
                return self.decode_spans(connection), None
            else:
                stack, facts = self.decode_whole()
        except DecodeError as error:
            return {"status": error.status, "message": str(error)}, None
        if self.settings["measure"]:
            facts["measured"] = asdict(measure_pixels(stack))
        return {**facts, "shape": stack.shape}, stack

    def decode_whole(self) -> tuple[Any, dict[str, Any]]:
        import numpy as np

        from model.video.video_decode import decode_frames
        from model.video.video_formats import describe_truncation

        load_video_libraries(self.limits)
        video = decode_frames(
            self.data,
            self.settings["frames"],
            self.limits,
            self.spec,
            distrust_pyav=self.attempt > 0,
            motion=self.settings["motion"],
        )
        facts = {name: getattr(video, name) for name in ("width", "height", "duration", "times", "decoder")}
        facts |= {"facts": video.facts and asdict(video.facts), "note": describe_truncation(self.data)}
        return np.stack(video.images), facts

    def decode_spans(self, connection: socket.socket) -> dict[str, Any]:
        """Send the frames in parts as they are decoded; return the last answer, which assigns frames to spans."""
        from model.video.video_decode import SpanRequest, open_span_video
        from model.video.video_formats import describe_truncation

        load_video_libraries(self.limits)
        request = SpanRequest(
            self.options["spans"], self.settings["frames"], self.options["context"], self.options["skip"]
        )
        with open_span_video(self.data, request, self.limits, self.spec, motion=self.settings["motion"]) as video:
            send_parts(connection, video)
            facts = {"duration": video.index.duration, "decoder": "pyav", "facts": asdict(video.facts())}
            plan = {"times": video.times(), "of_span": video.plan.span_positions, "around": video.plan.grid_positions}
            note = {"note": describe_truncation(self.data)}
            return {"width": video.size[0], "height": video.size[1], **facts, **plan, **note}


def send_parts(connection: socket.socket, video: Any) -> None:
    """Send frames as they are decoded, `PART` at a time, with their places in the plan."""
    places = {number: position for position, number in enumerate(video.plan.frames)}
    waiting: list[tuple[int, Any]] = []
    for number, image in video.decode_images():
        waiting.append((places[number], image))
        if len(waiting) == PART:
            send_part(connection, waiting)
    if waiting:
        send_part(connection, waiting)


def send_part(connection: socket.socket, waiting: list[tuple[int, Any]]) -> None:
    import numpy as np

    stack = np.stack([image for _, image in waiting])
    send_answer(connection, {"more": [place for place, _ in waiting], "shape": stack.shape}, stack.data.cast("B"))
    waiting.clear()


def decode_picture(data: bytes, spec: Any, exact: bool, limits: Any) -> tuple[Any, dict[str, Any]]:
    if exact:
        from model.pixels import decode_and_fit
    else:
        from model.fast_pixels import decode_and_fit
    pixels, (width, height) = decode_and_fit(data, spec, limits)
    return pixels[None], {"width": width, "height": height}


def load_video_libraries(limits: Any) -> None:
    """Import the video libraries; the memory that they take does not count against the file."""
    if "av" in sys.modules:
        return
    import av  # noqa: F401

    with contextlib.suppress(ImportError):  # some systems have no wheel; PyAV then decodes everything
        import decord  # noqa: F401
    allow_memory(limits.memory)


def run_decoder(settings: dict[str, Any], handle: int, slots_handle: int | None = None) -> None:
    """Run a decoder process until its socket closes; `slots_handle` is the shared memory for pixels."""
    from auditor.workers.pixel_slots import open_slots

    connection = socket.socket(fileno=handle)
    slots = None if slots_handle is None else open_slots(slots_handle, (*settings["pixels"]["size"], 3))
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        serve_files(connection, settings, slots)
