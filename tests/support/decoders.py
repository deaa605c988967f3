"""Kill or stop the decoder process when it gets certain files."""

import os
import signal
from collections.abc import Mapping

import pytest

from auditor.corpus.sample import Problem
from auditor.workers.decoder_process import Decoded, DecoderProcess, DecodeTask


def signal_decoder_at(monkeypatch: pytest.MonkeyPatch, signals: Mapping[bytes, signal.Signals]) -> None:
    """Send a signal to the decoder process when it gets one of these files. Everything else is real."""
    decode = DecoderProcess.decode

    def decode_with_signal(self: DecoderProcess, task: DecodeTask, attempt: int, seconds: float) -> Decoded | Problem:
        if task.data in signals:
            os.kill(self.pid, signals[task.data])
        return decode(self, task, attempt, seconds)

    monkeypatch.setattr(DecoderProcess, "decode", decode_with_signal)
