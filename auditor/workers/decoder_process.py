"""One decoder process seen from the parent: starting it, talking to it with a deadline, replacing it when it dies.

`DecoderProcess` is a child that runs auditor.workers.decode_worker and the socket to it; `Decoder` always has a working
one and turns whatever becomes of a file into a result. The pool in auditor.workers.decoder_pool runs several side by side.
"""

import json
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from auditor.corpus.sample import Kind, Problem
from auditor.workers.decode_worker import ANSWER, PART, REQUEST
from auditor.workers.fork_server import DecoderError, Nursery, shared_nursery
from auditor.workers.pixel_facts import PixelFacts
from auditor.workers.pixel_slots import Slots
from model.pixels import Pixels
from model.video.video_facts import VideoFacts

START_SECONDS = 120.0  # to say that it is there, on a machine that is very busy
GRACE = 0.2  # seconds: it may be on its way out, and its own reason is the better one
LONGEST_ANSWER = 1 << 24  # bytes of JSON: the plan of a long video
LOST = "no frame of the span could be decoded"


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
    facts: VideoFacts | None = None  # of a video
    seen: "Seen | None" = None  # where spans were asked for
    measured: PixelFacts | None = None  # where they were asked for; not of spans
    note: str | None = None  # what is not whole about it, though it gave frames

    @property
    def kind(self) -> Kind:
        """What the content is; the name of the file may say otherwise."""
        return "image" if self.times is None else "video"


@dataclass(frozen=True, slots=True)
class Seen:
    """Which of the frames that were given are of which span, or why there is none; and which stand around spans."""

    of_span: list[list[int] | str]
    around: list[int]


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """A file and what is asked of it. Frames of spans are handed to `deliver` in parts as they come."""

    data: bytes
    spans: Sequence[tuple[float, float] | None] | None = None
    context: float = 0.0
    deliver: Callable[[Pixels], None] = lambda pixels: None
    given: list[int] = field(default_factory=list)  # places in the plan of the frames that came

    def asked(self) -> bytes:
        if self.spans is None:
            return b"{}"
        skip = self.given[-1] + 1 if self.given else 0
        return json.dumps({"spans": self.spans, "context": self.context, "skip": skip}).encode()

    def take(self, places: list[int], pixels: Pixels) -> None:
        self.given.extend(places)
        self.deliver(pixels)

    def seen(self, facts: dict[str, Any]) -> Seen | None:
        """With positions among the frames that came, of which some may be lost."""
        if self.spans is None or "of_span" not in facts:
            return None
        position = {place: number for number, place in enumerate(self.given)}

        def there(places: list[int]) -> list[int]:
            return [position[place] for place in places if place in position]

        spans = [one if isinstance(one, str) else there(one) or LOST for one in facts["of_span"]]
        return Seen(spans, there(facts["around"]))


class DecoderProcess:
    """One decoder process and the socket to it."""

    def __init__(
        self, settings: dict[str, Any], most: tuple[int, int, int, int], slots: Slots, nursery: Nursery
    ) -> None:
        self.most, self.slots, self.nursery = most, slots, nursery
        self.ready = False
        self.spent = False
        self.connection, its = socket.socketpair()
        try:
            with its:
                self.pid = nursery.fork(settings, [its.fileno(), *([] if slots.handle is None else [slots.handle])])
        except BaseException:
            self.connection.close()
            raise

    @property
    def usable(self) -> bool:
        """Whether it waits for a file; one that has died has closed its end."""
        if self.spent:
            return False
        try:
            self.connection.settimeout(0)
            return bool(self.connection.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return True
        except OSError:
            return False

    def wait_until_ready(self) -> None:
        if not self.ready:
            self._answer(time.monotonic() + START_SECONDS)
            self.ready = True

    def decode(self, task: Task, attempt: int, seconds: float) -> Decoded | Problem:
        """Raises TimeoutError at the deadline and DeadDecoderError where the process ended; both leave it unusable.

        A part of the frames of spans has as much time as a whole file.
        """
        slot = self.slots.take()
        try:
            facts, pixels = self._ask(task, attempt, slot, time.monotonic() + seconds)
            while "more" in facts:
                task.take([int(place) for place in facts["more"]], pixels)
                facts, pixels = self._answer(time.monotonic() + seconds)
            if "in_slot" in facts:
                if slot is None:
                    raise DeadDecoderError  # none was offered
                pixels, slot = self.slots.pixels(slot), None
            self.spent = bool(facts["spent"])
            return result_of(task, facts, pixels)
        # A decoder that a file has taken over may say anything; nothing here may depend on its good will.
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise DeadDecoderError from error
        finally:
            if slot is not None:
                self.slots.give_back(slot)

    def _ask(self, task: Task, attempt: int, slot: int | None, deadline: float) -> tuple[dict[str, Any], Pixels]:
        asked = task.asked()
        try:
            self.connection.settimeout(max(0.001, deadline - time.monotonic()))
            self.connection.sendall(REQUEST.pack(attempt, len(asked), len(task.data), -1 if slot is None else slot))
            self.connection.sendall(asked)
            self.connection.sendall(task.data)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise DeadDecoderError from error
        return self._answer(deadline)

    def _answer(self, deadline: float) -> tuple[dict[str, Any], Pixels]:
        (size,) = ANSWER.unpack(self._receive(ANSWER.size, deadline))
        facts: dict[str, Any] = json.loads(bytes(self._receive(min(size, LONGEST_ANSWER), deadline)))
        shape = tuple(facts.get("shape", (0, *self.most[1:])))
        if shape[0] > max(self.most[0], PART) or shape[1:] != self.most[1:]:
            raise DeadDecoderError
        if "in_slot" in facts:
            return facts, np.empty((0, *self.most[1:]), np.uint8)
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

    def kill(self, grace: float = 0.0) -> str:
        """End the process, wait for it, and say what it had died of: its own reason, if it ends within `grace`."""
        cause = self.nursery.end(self.pid, grace)
        self.connection.close()
        return cause


def result_of(task: Task, facts: dict[str, Any], pixels: Pixels) -> Decoded | Problem:
    """The last answer of a decoder, checked as it is read."""
    if "status" in facts:
        return Problem("too_large" if facts["status"] == "too_large" else "corrupt", str(facts["message"]))
    times = [float(t) for t in facts["times"]] if "times" in facts else None
    seen = task.seen(facts)
    if seen is not None and times is not None:
        times = [times[place] for place in task.given]
    size = int(facts["width"]), int(facts["height"])
    about = VideoFacts.from_dict(facts["facts"]) if facts.get("facts") else None
    measured = PixelFacts(**facts["measured"]) if "measured" in facts else None
    return Decoded(
        pixels, *size, facts.get("duration"), times, facts.get("decoder"), about, seen, measured, facts.get("note")
    )


class Decoder:
    """A decoder process that is replaced when it dies. One thread decodes; any thread may `stop` it."""

    def __init__(
        self,
        settings: dict[str, Any],
        most: tuple[int, int, int, int],
        seconds: float,
        nursery: Nursery | None = None,
    ) -> None:
        self.settings, self.most, self.seconds = settings, most, seconds
        self.nursery = nursery or shared_nursery()
        self.slots = Slots(most[1:])
        self.process: DecoderProcess | None = None
        self._stopped = False
        self._lock = threading.Lock()  # between starting a process and stopping for good

    def decode(self, task: Task) -> Decoded | Problem:
        """A result for every file; DecoderError only where decoders cannot run at all."""
        cause = ""
        for attempt in range(2):  # the first death may be nobody's fault: a kill from outside
            process = self._ready()
            try:
                return process.decode(task, attempt, self.seconds)
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
            self.process = DecoderProcess(self.settings, self.most, self.slots, self.nursery)
            return self.process

    def stop(self) -> None:
        """Kill the process and start no other; the decoding thread, if any, is left to `end`."""
        with self._lock:
            self._stopped = True
            if self.process is not None:
                self.nursery.kill(self.process.pid)

    def close(self) -> None:
        """After `stop`: wait for the process and let go of the shared memory."""
        self.end()
        self.slots.close()

    def end(self) -> str:
        """Be rid of the process; returns what it had died of."""
        with self._lock:  # `stop` must not kill a number that is somebody else's by now
            process, self.process = self.process, None
            return process.kill(GRACE) or "a broken answer" if process else ""

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
