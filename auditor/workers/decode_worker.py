"""One decoder process: receives files, one or a batch at a time, and answers with pixels or a reason.

auditor.workers.fork_server forks it; nothing else runs it. It may crash, hang or be killed at any time. For exact
pixels it needs numpy and Pillow, else torch too; the first video imports the video libraries.

A request for one file is a JSON object (attempt, slot, size of the file, spans if there are some) and the file. An
answer is a JSON object and the pixels, unless they are in the slot (auditor.workers.pixel_slots). Frames of spans come
in several answers: all but the last have the key `more`. After an answer with `spent`, the process ends.

A request for a batch has the `sizes` and `slots` of small files, which are in shared memory from `start` on. The answer
has the `results` of the first files, all of them unless the memory was too small, and the pixels that are in no slot.
"""

import contextlib
import itertools
import json
import os
import resource
import socket
import struct
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

LENGTH = struct.Struct("<I")  # bytes of a JSON object
LONGEST_MESSAGE = 1 << 24  # bytes of JSON: the plan of a long video
PART = 64  # frames sent at once
Answer = tuple[dict[str, Any], list[memoryview | bytes]]  # the header and the pixels that follow it
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


class MessageSocket:
    """Exchanges JSON objects, each followed by bytes. Raises ConnectionError if the other side has closed it."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.deadline: float | None = None  # of time.monotonic(), after which everything raises TimeoutError

    def send(self, message: dict[str, Any], *contents: memoryview | bytes) -> None:
        text = json.dumps(message).encode()
        for content in (LENGTH.pack(len(text)) + text, *filter(len, contents)):
            self._set_timeout()
            self.connection.sendall(content)

    def receive(self) -> Any:
        (size,) = LENGTH.unpack(self.receive_bytes(LENGTH.size))
        return json.loads(self.receive_bytes(min(size, LONGEST_MESSAGE)))

    def receive_bytes(self, size: int) -> bytearray:
        data = bytearray(size)
        self.receive_into(memoryview(data))
        return data

    def receive_into(self, view: memoryview) -> None:
        while view:
            self._set_timeout()
            count = self.connection.recv_into(view)
            if not count:
                raise ConnectionResetError
            view = view[count:]

    def _set_timeout(self) -> None:
        self.connection.settimeout(None if self.deadline is None else max(0.001, self.deadline - time.monotonic()))


def serve_files(messages: MessageSocket, settings: dict[str, Any], shared: Any) -> None:
    """Answer requests until the process is spent."""
    from PIL import Image

    from model.pixels import DecodeLimits, PixelSpec

    limits = DecodeLimits(**settings["limits"])
    spec = PixelSpec.from_dict(settings["pixels"])
    Image.MAX_IMAGE_PIXELS = limits.max_pixels
    idle = measure_memory()[1]
    messages.send({"ready": os.getpid()})
    spent = False
    while not spent:
        request = messages.receive()
        allow_memory(limits.memory)
        answer = answer_batch if "sizes" in request else answer_file
        header, parts = answer(messages, request, settings, spec, limits, shared)
        spent = header["spent"] = header.get("spent", False) or measure_memory()[1] - idle > LEAK_BYTES
        messages.send(header, *parts)
        del parts


def answer_file(
    messages: MessageSocket, request: dict[str, Any], settings: dict[str, Any], spec: Any, limits: Any, shared: Any
) -> Answer:
    """Decode a file that comes through the socket."""
    try:
        data = messages.receive_bytes(request["size"])
        header, stack = FileDecoding(bytes(data), request, settings, spec, limits).decode(messages)
        return header, [place_pixels(header, stack, shared, request["slot"])]
    except MemoryError:
        return {"status": "too_large", "message": "the file does not fit in memory", "spent": True}, []


def answer_batch(
    messages: MessageSocket, request: dict[str, Any], settings: dict[str, Any], spec: Any, limits: Any, shared: Any
) -> Answer:
    """Decode files in shared memory. If one needs too much memory, it and the next ones are left to other processes."""
    results: list[dict[str, Any]] = []
    parts = []
    position = request["start"]
    try:
        for size, slot in zip(request["sizes"], request["slots"], strict=True):
            data = bytes(shared[0][position : position + size])
            header, stack = FileDecoding(data, request, settings, spec, limits).decode(messages)
            parts.append(place_pixels(header, stack, shared, slot))
            results.append(header)
            position += size
    except MemoryError:
        return {"results": results, "spent": True}, parts[: len(results)]
    return {"results": results}, parts


def place_pixels(header: dict[str, Any], stack: Any, shared: Any, slot: int) -> memoryview | bytes:
    """Write an image into its slot, if there is one; return the bytes that go through the socket."""
    import numpy as np

    if stack is None:
        return b""
    if slot >= 0 and len(stack) == 1:
        shared[1][slot] = stack[0]
        header["in_slot"] = True
        return b""
    return np.ascontiguousarray(stack).data.cast("B")


@dataclass
class FileDecoding:
    """The decoding of one file. A request may have `spans` with their `context`; the first `skip` frames were sent."""

    data: bytes
    request: dict[str, Any]
    settings: dict[str, Any]
    spec: Any
    limits: Any

    def decode(self, messages: MessageSocket) -> tuple[dict[str, Any], Any]:
        """Return the facts about the file and its frames (F, H, W, 3). The content decides its kind, not its name."""
        from auditor.workers.pixel_facts import describe_pixels
        from model.pixels import DecodeError
        from model.video.video_formats import is_video

        try:
            if not is_video(self.data):
                stack, facts = decode_picture(self.data, self.spec, self.settings["exact"], self.limits)
            elif "spans" in self.request:
                return self.decode_spans(messages), None
            else:
                stack, facts = self.decode_whole()
        except DecodeError as error:
            return {"status": error.status, "message": str(error)}, None
        if self.settings["measure"]:
            measured, thumbnail = describe_pixels(stack)
            facts |= {"measured": measured, "thumbnail": thumbnail.hex()}
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
            distrust_pyav=self.request["attempt"] > 0,
            motion=self.settings["motion"],
            each_second=self.settings["each_second"],
        )
        facts = {name: getattr(video, name) for name in ("width", "height", "duration", "times", "decoder")}
        facts |= {"facts": video.facts and asdict(video.facts), "note": describe_truncation(self.data)}
        return np.stack(video.images), facts

    def decode_spans(self, messages: MessageSocket) -> dict[str, Any]:
        """Send the frames in parts as they are decoded; return the last answer, which assigns frames to spans."""
        from model.video.video_decode import SpanRequest, open_span_video
        from model.video.video_formats import describe_truncation

        load_video_libraries(self.limits)
        spans, context, skip = (self.request[name] for name in ("spans", "context", "skip"))
        request = SpanRequest(spans, self.settings["frames"], context, skip)
        with open_span_video(self.data, request, self.limits, self.spec, motion=self.settings["motion"]) as video:
            send_parts(messages, video)
            facts = {"duration": video.index.duration, "decoder": "pyav", "facts": asdict(video.facts())}
            plan = {"times": video.times(), "of_span": video.plan.span_positions, "around": video.plan.grid_positions}
            note = {"note": describe_truncation(self.data)}
            return {"width": video.size[0], "height": video.size[1], **facts, **plan, **note}


def send_parts(messages: MessageSocket, video: Any) -> None:
    import numpy as np

    places = {number: position for position, number in enumerate(video.plan.frames)}
    images = iter(video.decode_images())
    while part := list(itertools.islice(images, PART)):
        stack = np.stack([image for _, image in part])
        header = {"more": [places[number] for number, _ in part], "shape": stack.shape}
        messages.send(header, stack.data.cast("B"))


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

    shared = None if slots_handle is None else open_slots(slots_handle, (*settings["pixels"]["size"], 3))
    with contextlib.suppress(ConnectionError):  # the parent has closed the socket
        serve_files(MessageSocket(socket.socket(fileno=handle)), settings, shared)
