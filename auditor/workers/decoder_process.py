"""A decoder process as its parent sees it: start it, exchange messages with a deadline, replace it when it dies.

The process runs auditor.workers.decode_worker. auditor.workers.decoder_pool runs several decoders side by side.
"""

import contextlib
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from auditor.corpus.sample import Kind, Problem
from auditor.vectors import THUMBNAIL_SIDE
from auditor.workers.decode_worker import PART, MessageSocket
from auditor.workers.fork_server import FORK_SERVER, DecoderError
from auditor.workers.pixel_facts import PixelFacts
from auditor.workers.pixel_slots import HALF, PixelSlots
from model.pixels import Pixels
from model.video.video_facts import VideoFacts

START_SECONDS = 120.0  # for a process to start on a very busy machine
GRACE_SECONDS = 0.2  # for a process to end by itself, since its own reason is more useful than our kill
LOST_SPAN = "no frame of the span could be decoded"
BATCHES = 2  # sent ahead; the memory for files has as many halves
BATCH_SHARE = 0.25  # of the time for one file: how long a batch of small files may take before each is decoded alone
# A file may have taken control of the decoder, so any answer is possible; a TimeoutError is an OSError.
BROKEN_ANSWERS = (
    *(ConnectionError, TimeoutError, AttributeError, IndexError, KeyError, TypeError, ValueError),
    *(OverflowError, RecursionError),
)
FrameShape = tuple[int, int, int, int]  # (F, H, W, 3)


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
    thumbnail: bytes | None = None  # like `pixel_facts`
    note: str | None = None  # what is damaged, although frames were decoded

    def without_pixels(self) -> "Decoded":
        """A copy that does not hold the memory of the pixels."""
        return replace(self, pixels=np.empty((0, *self.pixels.shape[1:]), np.uint8))

    @property
    def kind(self) -> Kind:
        """The kind of the content, which the file name may contradict."""
        return "image" if self.times is None else "video"


@dataclass(eq=False, slots=True)
class DecodeBatch:
    """Small files that are decoded one after another, and their future results in the same order."""

    files: list[bytes] = field(default_factory=list)
    future: "Future[list[Decoded | Problem]]" = field(default_factory=Future)
    size: int = 0  # bytes
    side_work: list[Callable[[], None]] = field(default_factory=list)  # for the thread that waits for the results

    def add(self, data: bytes, side_work: Callable[[], None]) -> None:
        self.files.append(data)
        self.side_work.append(side_work)
        self.size += len(data)


class SentBatch(NamedTuple):
    """A batch that a process has."""

    pid: int | None  # None: it gets each file through the socket
    batch: DecodeBatch
    slots: list[int | None]  # for the pixels of its files


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


def build_result(facts: dict[str, Any], pixels: Pixels, task: DecodeTask | None = None) -> Decoded | Problem:
    """Build the result from the decoder's last answer, checking each value. Without a task, there are no spans."""
    if "status" in facts:
        return Problem("too_large" if facts["status"] == "too_large" else "corrupt", str(facts["message"]))
    times = [float(t) for t in facts["times"]] if "times" in facts else None
    span_frames = task.assign_frames(facts) if task is not None else None
    if task is not None and span_frames is not None and times is not None:
        times = [times[place] for place in task.received]
    duration, decoder, note = (facts.get(name) for name in ("duration", "decoder", "note"))
    return Decoded(
        pixels,
        read_length(facts["width"]),
        read_length(facts["height"]),
        duration=None if duration is None else float(duration),
        times=times,
        decoder=None if decoder is None else str(decoder),
        video_facts=VideoFacts.from_dict(facts["facts"]) if facts.get("facts") else None,
        span_frames=span_frames,
        pixel_facts=PixelFacts(*map(float, facts["measured"])) if "measured" in facts else None,
        thumbnail=read_thumbnail(facts["thumbnail"]) if "thumbnail" in facts else None,
        note=None if note is None else str(note),
    )


def read_length(value: Any) -> int:
    """The width or height of a picture, which has to fit into its column."""
    if not 0 < int(value) < 1 << 31:
        raise ValueError("no size of a picture")
    return int(value)


def read_thumbnail(text: str) -> bytes:
    thumbnail = bytes.fromhex(text)
    if len(thumbnail) != THUMBNAIL_SIDE**2:
        raise ValueError("no thumbnail")
    return thumbnail


class Decoder:
    """A decoder process that is replaced when it dies. One thread decodes; any thread may `stop` it.

    Up to `BATCHES` batches are sent ahead, so that the process never waits for this one. If it dies, all files that it
    had are decoded again, each alone, so that the right one is blamed.
    """

    messages: MessageSocket  # to the process, while there is one

    def __init__(self, settings: dict[str, Any], max_shape: FrameShape, seconds: float) -> None:
        self.settings, self.max_shape, self.seconds = settings, max_shape, seconds
        self.slots = PixelSlots(max_shape[1:])
        self.sent: deque[SentBatch] = deque()
        self._half = 0  # of the memory for files, that the next batch takes
        self.pid: int | None = None  # of the process
        self._is_ready = False
        self._stopped = False
        self._lock = threading.Lock()  # between starting a process and stopping for good

    def decode(self, task: DecodeTask) -> Decoded | Problem:
        """Return a result for any file. Raises DecoderError only if decoders cannot run at all."""
        cause = ""
        for attempt in range(2):  # the first death may have another cause, such as a kill from outside
            self._prepare()
            try:
                return self._exchange(task, attempt)
            except TimeoutError:
                self.end()
                return Problem("timeout", f"not decoded within {self.seconds:g} seconds")
            except BROKEN_ANSWERS:
                cause = self.end()
        hint = " (out of memory, or killed from outside)" if cause == "SIGKILL" else ""
        return Problem("corrupt", f"decoder died of {cause}{hint}")

    @property
    def takes_batch(self) -> bool:
        """Whether a batch can be sent: not while files of a dead process are to be decoded one by one."""
        return len(self.sent) < BATCHES and all(pid is not None and pid == self.pid for pid, _, _ in self.sent)

    def send(self, batch: DecodeBatch) -> None:
        """Send a batch. Its results, and those of batches before it, come from `receive`."""
        self._prepare()
        # Without shared memory, or if the process died just now, each file goes through the socket.
        if self.slots.handle is None or not self.takes_batch:
            self.sent.append(SentBatch(None, batch, []))
            return
        slots = [self.slots.take() for _ in batch.files]
        self.sent.append(SentBatch(self.pid, batch, slots))
        self._half = 1 - self._half
        self.slots.write_files(self._half, batch.files)
        places = {"slots": [-1 if slot is None else slot for slot in slots], "sizes": list(map(len, batch.files))}
        self.messages.deadline = None  # the request fits into the buffer of the socket
        with contextlib.suppress(ConnectionError):  # `receive` fails too
            self.messages.send({"attempt": 0, "start": self._half * HALF, **places})

    def receive(self) -> list[Decoded | Problem]:
        """Wait for the results of the first batch that was sent; a file whose process died is decoded again, alone."""
        pid, batch, slots = self.sent.popleft()
        results: list[Decoded | Problem] = []
        if pid is not None and pid == self.pid:
            try:
                self._receive_batch(slots, results)
            except BROKEN_ANSWERS:
                self.end()
        for slot in slots:
            if slot is not None:
                self.slots.give_back(slot)
        return results + [self.decode(DecodeTask(data)) for data in batch.files[len(results) :]]

    def _receive_batch(self, slots: list[int | None], results: list[Decoded | Problem]) -> None:
        self.messages.deadline = time.monotonic() + BATCH_SHARE * self.seconds
        answer = self.messages.receive()
        for number, facts in enumerate(answer["results"][: len(slots)]):
            results.append(build_result(facts, self._receive_pixels(facts, slots, number)))
        if answer["spent"] or len(results) < len(slots):
            self.end()

    def start(self) -> None:
        """Start a process without waiting until it is ready."""
        with self._lock:
            if self._stopped:
                raise DecoderError("the decoder pool is closed")
            connection, child_socket = socket.socketpair()
            try:
                with child_socket:
                    handles = [child_socket.fileno(), *([] if self.slots.handle is None else [self.slots.handle])]
                    self.pid = FORK_SERVER.fork(self.settings, handles)
            except BaseException:
                connection.close()
                raise
            self.messages, self._is_ready = MessageSocket(connection), False

    def stop(self) -> None:
        """Start no other process and interrupt the decoding thread, which ends this one."""
        with self._lock:
            self._stopped = True
            if self.pid is not None:
                with contextlib.suppress(OSError):  # the process is dead
                    self.messages.connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """After `stop`: wait for the process and release the shared memory."""
        self.end()
        self.slots.close()

    def end(self) -> str:
        """Kill the process and return why it died: its own reason if it ends within the grace period."""
        with self._lock:
            if self.pid is None:
                return ""
            cause = FORK_SERVER.end(self.pid, 0.0 if self._stopped else GRACE_SECONDS)
            self.messages.connection.close()
            self.pid = None
            return cause or "a broken answer"

    def _prepare(self) -> None:
        """Wait until a process waits for a file: a new one if the last was killed."""
        for _ in range(3):
            if self.pid is None:
                self.start()
            with contextlib.suppress(OSError):  # killed in the meantime
                if self._is_ready:
                    self._check_socket()
                else:
                    self.messages.deadline = time.monotonic() + START_SECONDS
                    self.messages.receive()
                    self._is_ready = True
                return
            self.end()
        raise DecoderError("decoder processes die while they start; run `auditor doctor`")

    def _check_socket(self) -> None:
        """Raises OSError if the process has closed its socket: it is dead."""
        self.messages.connection.settimeout(0)
        with contextlib.suppress(BlockingIOError):
            if not self.messages.connection.recv(1, socket.MSG_PEEK):
                raise ConnectionResetError

    def _exchange(self, task: DecodeTask, attempt: int) -> Decoded | Problem:
        """Send a file and receive its result. Each part of the frames of spans may take as long as a whole file."""
        slot = self.slots.take()
        try:
            self.messages.deadline = time.monotonic() + self.seconds
            request = {"attempt": attempt, "slot": -1 if slot is None else slot, "size": len(task.data)}
            self.messages.send(request | task.describe_spans(), task.data)
            facts: dict[str, Any] = self.messages.receive()
            while "more" in facts:
                task.received.extend(int(place) for place in facts["more"])
                task.deliver(self._receive_pixels(facts, [], 0))
                self.messages.deadline = time.monotonic() + self.seconds
                facts = self.messages.receive()
            slots = [slot]
            try:
                result = build_result(facts, self._receive_pixels(facts, slots, 0), task)
            finally:
                (slot,) = slots
            if facts["spent"]:
                self.end()
            return result
        finally:
            if slot is not None:
                self.slots.give_back(slot)

    def _receive_pixels(self, facts: dict[str, Any], slots: list[int | None], number: int) -> Pixels:
        """Return the pixels from a slot, which is then None in `slots`, or from the socket."""
        frame = self.max_shape[1:]
        if "in_slot" in facts:
            slot, slots[number] = slots[number], None
            if slot is None:
                raise ValueError("no slot was offered")
            return self.slots.read(slot)
        shape = tuple(facts.get("shape", (0, *frame)))
        if shape[0] > max(self.max_shape[0], PART) or shape[1:] != frame:
            raise ValueError("pixels of another shape")
        pixels: Pixels = np.empty(shape, np.uint8)
        if pixels.size:
            self.messages.receive_into(pixels.data.cast("B"))
        return pixels
