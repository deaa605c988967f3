"""A pool of decoder processes: untrusted bytes in, pixels or a reason out, in the order they came.

Whatever a file does to its decoder costs that one file: a hang is killed at the deadline (`timeout`), a crash is
retried once in a fresh process and then blamed on the file (`corrupt`), too much memory is refused (`too_large`).
Each process (auditor.workers.decode_worker) has one file at a time, so nobody else's work is ever lost with it.

    with DecoderPool(PixelSpec(), workers=2) as pool:
        for key, result in pool.map([("a", jpeg_bytes, "image")]):
            ...
"""

import contextlib
import queue
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import asdict, replace
from typing import Any, TypeVar

import numpy as np

from auditor.corpus.sample import Kind, Problem, Span
from auditor.workers.decode_worker import PART
from auditor.workers.decoder_process import Decoded, Decoder, Task
from auditor.workers.fork_server import DecoderError
from model.pixels import Limits, Pixels, PixelSpec

__all__ = ["Decoded", "DecoderError", "DecoderPool", "Limits", "PixelSpec", "Problem", "Stream"]

T = TypeVar("T")
N = TypeVar("N", bound="Stream | None")  # None where tasks without a file are among them
HELD_BYTES = 256 << 20  # of files and pixels that a `map` holds ahead of its reader
PARTS = 2  # of a stream that wait for its reader


class Stream:
    """A video whose frames of spans come in parts, as its reader takes them: iterate, then ask for the `result`.

    However many spans it has, only a few parts are in memory.
    """

    def __init__(self, data: bytes, spans: Sequence[Span | None], context: float = 0.0) -> None:
        asked = [None if span is None else (span.start, span.end) for span in spans]
        self.task = Task(data, asked, context, self.deliver)
        self.future: Future[Decoded | Problem] = Future()
        self.parts: queue.Queue[Pixels | None] = queue.Queue(PARTS)
        self.closed = threading.Event()

    def deliver(self, pixels: Pixels | None) -> None:
        """From the thread of a decoder; None after the last part."""
        while not self.closed.is_set():
            with contextlib.suppress(queue.Full):
                self.parts.put(pixels, timeout=0.2)
                return

    def finish(self, *_: object) -> None:
        self.deliver(None)

    def __iter__(self) -> Iterator[Pixels]:
        while (pixels := self.parts.get()) is not None:
            yield pixels

    def result(self) -> Decoded | Problem:
        """What became of the file; its pixels were in the parts."""
        return self.future.result()

    def collected(self) -> Decoded | Problem:
        """All frames at once, of a stream of one span."""
        parts = list(self)
        result = self.result()
        if isinstance(result, Problem) or result.seen is None:
            return result
        reason = result.seen.of_span[0]
        return Problem("bad_span", reason) if isinstance(reason, str) else replace(result, pixels=np.concatenate(parts))

    def close(self) -> None:
        """Nobody reads on."""
        self.closed.set()
        self.future.cancel()


def abandon(result: object) -> None:
    if isinstance(result, Stream):
        result.close()


class DecoderPool:
    """Threads of this process, each with one decoder process; `close` leaves neither."""

    def __init__(
        self,
        pixels: PixelSpec,
        frames: int = 12,
        workers: int = 2,
        limits: Limits = Limits(),  # noqa: B008 (frozen)
        exact: bool = True,  # the pixels of open_clip's own transform, or those of model.fast_pixels
        motion: bool = False,  # whether to look at videos densely
        measure: bool = False,  # whether to find the facts of auditor.workers.pixel_facts
    ) -> None:
        if frames < 1 or workers < 1:
            raise DecoderError(f"a decoder pool needs frames and workers, not {frames} and {workers}")
        self.limits = limits
        asked = {"frames": frames, "exact": exact, "motion": motion, "measure": measure}
        settings = {"pixels": pixels.to_dict(), "limits": asdict(limits), **asked}
        self._most = (frames, *pixels.size, 3)
        self._jobs: queue.SimpleQueue[tuple[Future[Decoded | Problem], Task] | None] = queue.SimpleQueue()
        self._closed = False
        self._streams: set[Stream] = set()
        self._decoders = [Decoder(settings, self._most, limits.seconds) for _ in range(workers)]
        # The processes are started by their threads: the kernel kills them with the thread that started them.
        self._threads = [threading.Thread(target=self._work, args=(d,), daemon=True) for d in self._decoders]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> "DecoderPool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pids(self) -> list[int]:
        """Of the decoder processes that run now."""
        return [process.pid for decoder in self._decoders if (process := decoder.process)]

    def map(
        self, tasks: Iterable[tuple[T, bytes | Problem | N, Kind]], lookahead: int = 64
    ) -> Iterator[tuple[T, Decoded | Problem | N]]:
        """Results in the order of `tasks`, which is read at most `lookahead` tasks ahead of what was taken.

        The kind is only a guess at the size of the result: what a file is, its content says. A task that has a problem,
        or None, instead of a file gets it back in its turn; so does a `Stream`, whose decoding has begun by then.
        """
        pending: deque[tuple[T, int, Future[Any]]] = deque()
        held = 0
        try:
            for tag, data, kind in tasks:
                future: Future[Any] = self.submit(data) if isinstance(data, bytes) else Future()
                cost = 0
                if isinstance(data, bytes):
                    cost = len(data) + int(np.prod(self._most[1:] if kind == "image" else self._most))
                else:
                    cost = self._begin(data) if isinstance(data, Stream) else 0
                    future.set_result(data)
                pending.append((tag, cost, future))
                held += cost
                while pending and (len(pending) > lookahead or held > HELD_BYTES):
                    tag, cost, future = pending.popleft()
                    held -= cost
                    yield tag, future.result()
            while pending:
                tag, _, future = pending.popleft()
                yield tag, future.result()
        finally:  # also where the reader stops half-way
            for _, _, future in pending:
                if not future.cancel() and future.done() and not future.exception():
                    abandon(future.result())

    def _begin(self, stream: Stream) -> int:
        """Start a stream; returns the bytes it holds."""
        self._streams.add(stream)
        stream.future.add_done_callback(stream.finish)
        stream.future.add_done_callback(lambda _: self._streams.discard(stream))
        self._start(stream.future, stream.task)
        return len(stream.task.data) + PARTS * PART * int(np.prod(self._most[1:]))

    def submit(self, data: bytes) -> "Future[Decoded | Problem]":
        """Decode one file in the background."""
        future: Future[Decoded | Problem] = Future()
        self._start(future, Task(data))
        return future

    def _start(self, future: "Future[Decoded | Problem]", task: Task) -> None:
        if self._closed:
            raise DecoderError("the decoder pool is closed")
        if len(task.data) > self.limits.max_bytes:
            message = f"{len(task.data):,} bytes, above the limit of {self.limits.max_bytes:,}"
            future.set_result(Problem("too_large", message))
        else:
            self._jobs.put((future, task))

    def close(self) -> None:
        """End every process and thread now; what was not yet decoded is given up."""
        self._closed = True
        for stream in list(self._streams):
            stream.closed.set()
        for decoder in self._decoders:
            decoder.stop()
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        while not self._jobs.empty():
            job = self._jobs.get()
            if job is not None:
                job[0].cancel()

    def _work(self, decoder: Decoder) -> None:
        """Body of a thread."""
        with contextlib.suppress(DecoderError):  # said again with the first file, where somebody listens
            decoder.start()
        while (job := self._jobs.get()) is not None:
            future, task = job
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(decoder.decode(task))
                except Exception as error:
                    future.set_exception(error)
            del future, task, job  # not held while waiting
        decoder.close()
