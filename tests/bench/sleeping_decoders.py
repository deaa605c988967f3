"""Decoder processes that sleep instead of decoding, as if each had a core of its own; for tests.bench.pixels."""

import time
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from auditor.workers import decode_worker
from auditor.workers.fork_server import serve_fork_requests
from auditor.workers.pixel_facts import PixelFacts

SLEEP = 0.01  # seconds for each picture


def serve_sleepers(channel: Connection) -> None:
    """Run as the fork server; everything but the decoding is real."""

    def sleep(self: decode_worker.FileDecoding, messages: decode_worker.MessageSocket) -> tuple[dict[str, Any], Any]:
        deadline = getattr(messages, "wake", time.monotonic()) + SLEEP  # late wakes do not add up
        now = time.monotonic()
        messages.wake = max(deadline, now)  # type: ignore[attr-defined]
        time.sleep(max(0.0, deadline - now))
        pixels = np.zeros((1, *self.spec.size, 3), np.uint8)
        facts = {"measured": [0.5] * len(PixelFacts._fields), "thumbnail": bytes(1024).hex()}
        return {"width": 500, "height": 375, **facts, "shape": pixels.shape}, pixels

    decode_worker.FileDecoding.decode = sleep  # type: ignore[method-assign]
    serve_fork_requests(channel)
