"""Files that kill or hang the decoder process they are given to."""

import os
import signal
from collections.abc import Mapping

import pytest

from auditor.corpus.sample import Problem
from auditor.workers.decoder_process import Decoded, DecoderProcess, Task


def strike(monkeypatch: pytest.MonkeyPatch, blows: Mapping[bytes, signal.Signals]) -> None:
    """Send the signal to a decoder that gets such a file: it comes from outside, all that follows is real."""
    decode = DecoderProcess.decode

    def struck(self: DecoderProcess, task: Task, attempt: int, seconds: float) -> Decoded | Problem:
        if task.data in blows:
            os.kill(self.pid, blows[task.data])
        return decode(self, task, attempt, seconds)

    monkeypatch.setattr(DecoderProcess, "decode", struck)
