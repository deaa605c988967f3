"""Kill or stop the decoder process when it gets certain files."""

import os
import signal
from collections.abc import Mapping

import pytest

from auditor.corpus.sample import Problem
from auditor.workers.decoder_process import DecodeBatch, Decoded, Decoder, DecodeTask


def signal_decoder_at(monkeypatch: pytest.MonkeyPatch, signals: Mapping[bytes, signal.Signals]) -> None:
    """Send a signal to the decoder process when it gets one of these files. Everything else is real."""
    exchange, send = Decoder._exchange, Decoder.send

    def exchange_with_signal(self: Decoder, task: DecodeTask, attempt: int) -> Decoded | Problem:
        if task.data in signals:
            assert self.pid is not None
            os.kill(self.pid, signals[task.data])
        return exchange(self, task, attempt)

    def send_with_signal(self: Decoder, batch: DecodeBatch) -> None:
        self._prepare()
        for data in set(batch.files).intersection(signals):
            assert self.pid is not None
            os.kill(self.pid, signals[data])
        send(self, batch)

    monkeypatch.setattr(Decoder, "_exchange", exchange_with_signal)
    monkeypatch.setattr(Decoder, "send", send_with_signal)
