"""A decoder process as its parent sees it: start it, exchange messages with a deadline, replace it when it dies.

`DecoderProcess` is a process that runs auditor.workers.decode_worker, with the socket to it. `Decoder` always has a
working process and returns a result for every file. auditor.workers.decoder_pool runs several decoders side by side.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from auditor.corpus.sample import Kind, Problem
from auditor.workers.decode_worker import PART, MessageSocket
from auditor.workers.fork_server import FORK_SERVER, DecoderError
from auditor.workers.pixel_facts import PixelFacts
from auditor.workers.pixel_slots import PixelSlots
from model.pixels import Pixels
from model.video.video_facts import VideoFacts

START_SECONDS = 120.0  # for a process to start on a very busy machine
GRACE_SECONDS = 0.2  # for a process to end by itself, since its own reason is more useful than our kill
LOST_SPAN = "no frame of the span could be decoded"
FrameShape = tuple[int, int, int, int]  # (F, H, W, 3)


class DeadDecoderError(Exception):
    """The process ended while it decoded a file, or sent nonsense."""


@dataclass(frozen=True, slots=True)
class SpanFrames:
    """The positions of the decoded frames by span, or why a span has none; and of the frames around the spans."""

    by_span: list[list[int] | str]
    context: list[int]


@dataclass(frozen=True, slots=True, eq=False)
class Decoded:
    """A decoded medium: one frame of an image, at most the requested number of frames of a video."""

    pixels: Pixels  # (F, H, W, 3); empty if the frames came in parts or are encoded already
    width: int  # as displayed, before fitting
    height: int
    duration: float | None = None  # seconds; None for an image
    times: list[float] | None = None  # seconds of each frame; None for an image
    decoder: str | None = None  # the library that decoded a video
    video_facts: VideoFacts | None = None
    span_frames: SpanFrames | None = None  # if spans were requested
    pixel_facts: PixelFacts | None = None  # if they were requested; None for spans
    note: str | None = None  # what is damaged, although frames were decoded

    @property
    def kind(self) -> Kind:
        """The kind of the content, which the file name may contradict."""
        return "image" if self.times is None else "video"


@dataclass(eq=False)
class DecodeTask:
    """A file to decode, whole or by spans, and its future result."""

    data: bytes
    spans: Sequence[tuple[float, float] | None] | None = None
    context: float = 0.0
    received: list[int] = field(default_factory=list)  # places in the plan of the frames that arrived
    future: "Future[Decoded | Problem]" = field(default_factory=Future)

    def deliver(self, pixels: Pixels) -> None:
        """Take the next frames of spans, which arrive in parts; without spans there are none."""

    def describe_spans(self) -> dict[str, Any]:
        if self.spans is None:
            return {}
        return {"spans": self.spans, "context": self.context, "skip": self.received[-1] + 1 if self.received else 0}

    def assign_frames(self, facts: dict[str, Any]) -> SpanFrames | None:
        """Assign the frames that arrived to the spans; some frames of the plan may be lost."""
        if self.spans is None or "of_span" not in facts:
            return None
        position = {place: number for number, place in enumerate(self.received)}

        def find_positions(places: list[int]) -> list[int]:
            return [position[place] for place in places if place in position]

        spans = [span if isinstance(span, str) else find_positions(span) or LOST_SPAN for span in facts["of_span"]]
        return SpanFrames(spans, find_positions(facts["around"]))


class DecoderProcess:
    """One process and the socket to it."""

    def __init__(self, settings: dict[str, Any], max_shape: FrameShape, slots: PixelSlots) -> None:
        self.max_shape, self.slots = max_shape, slots
        self.is_ready = False
        self.is_spent = False
        self.connection, child_socket = socket.socketpair()
        self.messages = MessageSocket(self.connection)
        try:
            with child_socket:
                handles = [child_socket.fileno(), *([] if slots.handle is None else [slots.handle])]
                self.pid = FORK_SERVER.fork(settings, handles)
        except BaseException:
            self.connection.close()
            raise

    @property
    def is_usable(self) -> bool:
        """Whether the process waits for a file; a dead process has closed its socket."""
        try:
            self.connection.settimeout(0)
            return bool(self.connection.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return not self.is_spent
        except OSError:
            return False

    def wait_until_ready(self) -> None:
        """Raises OSError if the process dies while it starts."""
        if not self.is_ready:
            self.messages.deadline = time.monotonic() + START_SECONDS
            self.messages.receive()
            self.is_ready = True

    def decode(self, task: DecodeTask, attempt: int, seconds: float) -> Decoded | Problem:
        """Decode a file. Raises TimeoutError at the deadline, DeadDecoderError if the process ended.

        Both errors leave the process unusable. Each part of the frames of spans may take as long as a whole file.
        """
        slot = self.slots.take()
        try:
            self.messages.deadline = time.monotonic() + seconds
            request = {"attempt": attempt, "slot": -1 if slot is None else slot, "size": len(task.data)}
            self.messages.send(request | task.describe_spans(), task.data)
            facts, pixels = self._receive_answer()
            while "more" in facts:
                task.received.extend(int(place) for place in facts["more"])
                task.deliver(pixels)
                self.messages.deadline = time.monotonic() + seconds
                facts, pixels = self._receive_answer()
            if "in_slot" in facts:
                if slot is None:
                    raise ValueError("no slot was offered")
                pixels, slot = self.slots.read(slot), None
            self.is_spent = bool(facts["spent"])
            return build_result(task, facts, pixels)
        # A file may have taken control of the decoder, so any answer is possible.
        except (ConnectionError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise DeadDecoderError from error
        finally:
            if slot is not None:
                self.slots.give_back(slot)

    def _receive_answer(self) -> tuple[dict[str, Any], Pixels]:
        facts: dict[str, Any] = self.messages.receive()
        frame = self.max_shape[1:]
        shape = (0, *frame) if "in_slot" in facts else tuple(facts.get("shape", (0, *frame)))
        if shape[0] > max(self.max_shape[0], PART) or shape[1:] != frame:
            raise ValueError("pixels of another shape")
        pixels: Pixels = np.empty(shape, np.uint8)
        if pixels.size:
            self.messages.receive_into(pixels.data.cast("B"))
        return facts, pixels

    def kill(self, grace: float = 0.0) -> str:
        """Kill the process and return why it died: its own reason if it ends within `grace` seconds."""
        cause = FORK_SERVER.end(self.pid, grace)
        self.connection.close()
        return cause


def build_result(task: DecodeTask, facts: dict[str, Any], pixels: Pixels) -> Decoded | Problem:
    """Build the result from the decoder's last answer, checking each value."""
    if "status" in facts:
        return Problem("too_large" if facts["status"] == "too_large" else "corrupt", str(facts["message"]))
    times = [float(t) for t in facts["times"]] if "times" in facts else None
    span_frames = task.assign_frames(facts)
    if span_frames is not None and times is not None:
        times = [times[place] for place in task.received]
    return Decoded(
        pixels,
        int(facts["width"]),
        int(facts["height"]),
        duration=facts.get("duration"),
        times=times,
        decoder=facts.get("decoder"),
        video_facts=VideoFacts.from_dict(facts["facts"]) if facts.get("facts") else None,
        span_frames=span_frames,
        pixel_facts=PixelFacts(**facts["measured"]) if "measured" in facts else None,
        note=facts.get("note"),
    )


class Decoder:
    """A decoder process that is replaced when it dies. One thread decodes; any thread may `stop` it."""

    def __init__(self, settings: dict[str, Any], max_shape: FrameShape, seconds: float) -> None:
        self.settings, self.max_shape, self.seconds = settings, max_shape, seconds
        self.slots = PixelSlots(max_shape[1:])
        self.process: DecoderProcess | None = None
        self._stopped = False
        self._lock = threading.Lock()  # between starting a process and stopping for good

    def decode(self, task: DecodeTask) -> Decoded | Problem:
        """Return a result for any file. Raises DecoderError only if decoders cannot run at all."""
        cause = ""
        for attempt in range(2):  # the first death may have another cause, such as a kill from outside
            process = self._get_ready_process()
            try:
                return process.decode(task, attempt, self.seconds)
            except TimeoutError:
                self.end()
                return Problem("timeout", f"not decoded within {self.seconds:g} seconds")
            except DeadDecoderError:
                cause = self.end()
        hint = " (out of memory, or killed from outside)" if cause == "SIGKILL" else ""
        return Problem("corrupt", f"decoder died of {cause}{hint}")

    def start(self) -> DecoderProcess:
        """Start a process without waiting until it is ready."""
        with self._lock:
            if self._stopped:
                raise DecoderError("the decoder pool is closed")
            self.process = DecoderProcess(self.settings, self.max_shape, self.slots)
            return self.process

    def stop(self) -> None:
        """Start no other process and interrupt the decoding thread, which ends this one."""
        with self._lock:
            self._stopped = True
            if self.process is not None:
                with contextlib.suppress(OSError):  # the process is dead
                    self.process.connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """After `stop`: wait for the process and release the shared memory."""
        self.end()
        self.slots.close()

    def end(self) -> str:
        """Kill the process and return why it died."""
        with self._lock:
            process, self.process = self.process, None
            grace = 0.0 if self._stopped else GRACE_SECONDS
            return process.kill(grace) or "a broken answer" if process else ""

    def _get_ready_process(self) -> DecoderProcess:
        """Return a process that waits for a file: a new one if the last is spent or was killed."""
        for _ in range(3):
            process = self.process or self.start()
            if process.is_usable:
                with contextlib.suppress(OSError):  # killed while it started
                    process.wait_until_ready()
                    return process
            self.end()
        raise DecoderError("decoder processes die while they start; run `auditor doctor`")
