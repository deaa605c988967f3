"""Encodes texts and pictures with the audit's model in a child process, so that the caller never imports torch.

The process starts with the first request. A request and its answer are JSON: the child decodes untrusted pictures.
"""

import json
import os
import tempfile
import threading
import weakref
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

import numpy as np

from auditor.errors import AuditorError
from auditor.vectors import Floats
from auditor.workers.child_process import ChildProcess, DeadChildError

ANSWER_SECONDS = 180.0  # a large model may come from a slow disk


class SearchError(AuditorError):
    """A search that is not possible."""


class EncoderClient:
    """Vectors of texts and pictures from one model; several threads may share it."""

    def __init__(self, spec: str, fingerprint: str) -> None:
        self.spec, self.fingerprint = spec, fingerprint
        self._lock = threading.Lock()
        self._child: ChildProcess | None = None
        self._end_child: Callable[[], object] = lambda: None  # also runs when this object is garbage-collected

    def encode_texts(self, texts: Sequence[str]) -> Floats:
        return self._request({"texts": list(texts)})

    def encode_image(self, path: str | Path) -> Floats:
        return self._request({"image": os.path.abspath(path)})

    def close(self) -> None:
        with self._lock:
            self._kill()

    def _request(self, question: dict[str, Any]) -> Floats:
        with self._lock:
            child = self._running_child()
            try:
                child.send(json.dumps(question).encode())
                answer: dict[str, Any] = json.loads(child.receive(ANSWER_SECONDS))
            except DeadChildError:
                last_words = self._read_last_words()
                self._kill()
                raise SearchError(f"the model {self.spec} ended without an answer: {last_words}") from None
            except TimeoutError:
                self._kill()
                raise SearchError(f"the model {self.spec} has not answered for {ANSWER_SECONDS:.0f} s") from None
            except BaseException:
                self._kill()  # or the late answer would be taken for the answer to the next question
                raise
        if "error" in answer:
            raise SearchError(str(answer["error"]))
        return np.asarray(answer["vectors"], np.float32)

    def _running_child(self) -> ChildProcess:
        if self._child is None or not self._child.is_alive:
            self._kill()
            self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the child)
            self._child = ChildProcess(serve_encoder, self.spec, self.fingerprint, stderr=self._stderr)
            self._end_child = weakref.finalize(self, end_child, self._child, self._stderr)
        return self._child

    def _read_last_words(self) -> str:
        size = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, size - 300))
        return " ".join(self._stderr.read().decode(errors="replace").split()[-30:]) or "no error message"

    def _kill(self) -> None:
        self._end_child()
        self._child = None


def end_child(child: ChildProcess, stderr: IO[bytes]) -> None:
    child.kill()
    stderr.close()


def serve_encoder(channel: Connection, spec: str, fingerprint: str) -> None:
    """Run in the child: load the model, then answer questions until the parent closes the channel."""
    try:
        encode = load_encoder(spec, fingerprint)
    except Exception as error:
        channel.recv_bytes()  # the first question gets the reason as its answer
        answer = {"error": f"the model {spec} cannot be loaded: {shorten_error(error)}"}
        channel.send_bytes(json.dumps(answer).encode())
        return
    while True:
        question = json.loads(channel.recv_bytes())
        try:
            answer = {"vectors": encode(question).tolist()}
        except Exception as error:
            answer = {"error": shorten_error(error)}
        channel.send_bytes(json.dumps(answer).encode())


def load_encoder(spec: str, fingerprint: str) -> Callable[[dict[str, Any]], Floats]:
    """Return a function from a question to vectors (N, D)."""
    from model.checkpoint import load_model
    from model.pixels import decode_image, fit_image

    backbone = load_model(spec).backbone
    if fingerprint and backbone.fingerprint != fingerprint:
        raise ValueError("it is not the one that made the audit")

    def encode(question: dict[str, Any]) -> Floats:
        if "texts" in question:
            return np.asarray(backbone.encode_texts(question["texts"]).cpu().numpy(), np.float32)
        pixels = fit_image(backbone.pixels, decode_image(Path(question["image"]).read_bytes()))
        return np.asarray(backbone.encode_images(np.stack([pixels])).cpu().numpy(), np.float32)

    return encode


def shorten_error(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
