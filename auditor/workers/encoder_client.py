"""The audit's model in a process of its own, started on the first text or picture: whoever asks stays light and quick.

One line of JSON asks, one answers; see auditor.run.tower_process.py for the other end.
"""

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from auditor.errors import AuditorError
from auditor.vectors import Floats

PATIENCE = 180.0  # seconds: a large model is read from a slow disk
ROOT = Path(__file__).resolve().parents[2]


class SearchError(AuditorError):
    """A search that cannot be done."""


class Tower:
    """Vectors of texts and pictures by one model; safe to share between threads."""

    def __init__(self, spec: str, fingerprint: str) -> None:
        self.spec, self.fingerprint = spec, fingerprint
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._finish: Callable[[], object] = lambda: None  # ends the child; also when nobody holds this object any more

    def texts(self, texts: Sequence[str]) -> Floats:
        return self._ask({"texts": list(texts)})

    def image(self, path: str | Path) -> Floats:
        return self._ask({"image": os.path.abspath(path)})

    def close(self) -> None:
        with self._lock:
            self._end()

    def _ask(self, question: dict[str, Any]) -> Floats:
        with self._lock:
            child = self._running()
            assert child.stdin is not None
            try:
                child.stdin.write(json.dumps(question).encode() + b"\n")
                child.stdin.flush()
                answer = self._answer(child)
            except BaseException:
                self._end()  # an answer that nobody waits for would be taken for that of the next question
                raise
        if "error" in answer:
            raise SearchError(str(answer["error"]))
        return np.asarray(answer["vectors"], np.float32)

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._child is None or self._child.poll() is not None:
            self._end()
            self._said = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the child)
            paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
            command = [sys.executable, "-P", "-m", "auditor.workers.encoder_process", self.spec, self.fingerprint]
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._said,
                env={**os.environ, "PYTHONPATH": paths},
            )
            self._finish = weakref.finalize(self, finish, self._child, self._said)
        return self._child

    def _answer(self, child: "subprocess.Popen[bytes]") -> dict[str, Any]:
        assert child.stdout is not None
        ready, _, _ = select.select([child.stdout], [], [], PATIENCE)
        line = child.stdout.readline() if ready else b""
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        if ready:
            raise SearchError(f"the model {self.spec} ended without an answer: {self._last_words()}")
        raise SearchError(f"the model {self.spec} has not answered for {PATIENCE:.0f} s")

    def _last_words(self) -> str:
        size = self._said.seek(0, os.SEEK_END)
        self._said.seek(max(0, size - 300))
        return " ".join(self._said.read().decode(errors="replace").split()[-30:]) or "it said nothing"

    def _end(self) -> None:
        self._finish()
        self._child = None


def finish(child: "subprocess.Popen[bytes]", said: IO[bytes]) -> None:
    child.kill()
    child.wait()
    for file in (child.stdin, child.stdout, said):
        if file is not None:
            with contextlib.suppress(OSError):  # what was still to be written has no reader
                file.close()
