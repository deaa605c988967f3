"""A pool of decoder processes: untrusted bytes in, pixels or a reason out, in the order they came.

Whatever a file does to its decoder costs that one file: a hang is killed at the deadline (`timeout`), a crash is
retried once in a fresh process and then blamed on the file (`corrupt`), too much memory is refused (`too_large`).
Each process (auditor.decode.decode_worker) has one file at a time, so nobody else's work is ever lost with it.

    with DecoderPool(PixelSpec(), workers=2) as pool:
        for key, result in pool.map([("a", jpeg_bytes, "image")]):
            ...
"""

import contextlib
import queue
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import asdict
from typing import Any, TypeVar

import numpy as np

from auditor.decode.decoder_process import Decoded, Decoder
from auditor.decode.nursery import DecoderError
from auditor.sample import Kind, Problem
from model.pixels import Limits, PixelSpec

__all__ = ["Decoded", "DecoderError", "DecoderPool", "Limits", "PixelSpec", "Problem"]

T = TypeVar("T")
N = TypeVar("N", bound=None)  # None where tasks without a file are among them
HELD_BYTES = 256 << 20  # of files and pixels that a `map` holds ahead of its reader


class DecoderPool:
    """Threads of this process, each with one decoder process; `close` leaves neither."""

    def __init__(
        self,
        pixels: PixelSpec,
        frames: int = 12,
        workers: int = 2,
        limits: Limits = Limits(),  # noqa: B008 (frozen)
        exact: bool = True,  # the pixels of open_clip's own transform, or those of model.fast_pixels
    ) -> None:
        if frames < 1 or workers < 1:
            raise DecoderError(f"a decoder pool needs frames and workers, not {frames} and {workers}")
        self.limits = limits
        settings = {"pixels": pixels.to_dict(), "frames": frames, "limits": asdict(limits), "exact": exact}
        self._most = (frames, *pixels.size, 3)
        self._jobs: queue.SimpleQueue[tuple[Future[Decoded | Problem], bytes] | None] = queue.SimpleQueue()
        self._closed = False
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
        or None, instead of a file gets it back in its turn.
        """
        pending: deque[tuple[T, int, Future[Decoded | Problem | N]]] = deque()
        held = 0
        try:
            for tag, data, kind in tasks:
                future: Future[Any] = self.submit(data) if isinstance(data, bytes) else Future()
                cost = 0
                if isinstance(data, bytes):
                    cost = len(data) + int(np.prod(self._most[1:] if kind == "image" else self._most))
                else:
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
                future.cancel()

    def submit(self, data: bytes) -> "Future[Decoded | Problem]":
        """Decode one file in the background."""
        if self._closed:
            raise DecoderError("the decoder pool is closed")
        future: Future[Decoded | Problem] = Future()
        if len(data) > self.limits.max_bytes:
            message = f"{len(data):,} bytes, above the limit of {self.limits.max_bytes:,}"
            future.set_result(Problem("too_large", message))
        else:
            self._jobs.put((future, data))
        return future

    def close(self) -> None:
        """End every process and thread now; what was not yet decoded is given up."""
        self._closed = True
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
            future, data = job
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(decoder.decode(data))
                except Exception as error:
                    future.set_exception(error)
            del future, data, job  # not held while waiting
        decoder.close()
