"""The other end of auditor/workers/encoder_client.py: loads a model, then answers questions until nobody asks any more.

    python -m auditor.workers.encoder_process MODEL FINGERPRINT

A picture is decoded here, in a process that may be killed, and nowhere else.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np

from auditor.vectors import Floats


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a library prints must not stand between the answers
    spec, fingerprint = sys.argv[1:]
    try:
        encode = load(spec, fingerprint)
    except Exception as error:
        refuse(answers, f"the model {spec} cannot be loaded: {one_line(error)}")
        return
    for line in sys.stdin:
        try:
            say(answers, {"vectors": encode(json.loads(line)).tolist()})
        except Exception as error:
            say(answers, {"error": one_line(error)})


def load(spec: str, fingerprint: str) -> Callable[[dict[str, Any]], Floats]:
    """A function from a question to vectors (N, D)."""
    from model.checkpoint import load_model
    from model.pixels import decode_image, fit_to

    backbone = load_model(spec).backbone
    if fingerprint and backbone.fingerprint != fingerprint:
        raise ValueError("it is not the one that made the audit")

    def encode(question: dict[str, Any]) -> Floats:
        if "texts" in question:
            return np.asarray(backbone.encode_texts(question["texts"]).cpu().numpy(), np.float32)
        pixels = fit_to(backbone.pixels, decode_image(Path(question["image"]).read_bytes()))
        return np.asarray(backbone.encode_images(np.stack([pixels])).cpu().numpy(), np.float32)

    return encode


def refuse(answers: IO[str], reason: str) -> None:
    """Answer the first question, whatever it is, and end."""
    sys.stdin.readline()
    say(answers, {"error": reason})


def say(answers: IO[str], answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


if __name__ == "__main__":
    main()
