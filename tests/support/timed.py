"""Videos of scenes with a timed caption each, in step with them or not, and an encoder that knows the scenes."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from model.backbone import Backbone
from model.pixels import Pixels, fit_to
from tests.support.clips import film
from tests.support.corpora import caption, write_tar

SCENES, SCENE = 12, 3  # of a video; seconds of each
LATE = 6.0  # seconds


def pictures(video: int) -> list[Pixels]:
    coarse = np.random.default_rng(video).integers(0, 256, (SCENES, 3, 4, 3), dtype=np.uint8)
    return list(np.repeat(np.repeat(coarse, 16, axis=1), 16, axis=2))


def words(video: int) -> list[str]:
    return [caption(40 + 100 * video + number) for number in range(SCENES)]


def timed_corpus(folder: Path, monkeypatch: pytest.MonkeyPatch, shifts: Sequence[float]) -> Path:
    """A tar with a video for each shift: what has to be added to its spans.

    The encoder is random, so captions are given the vectors of the scenes they are about; all else is real.
    """
    members = {}
    for video, shift in enumerate(shifts):
        data = film((picture for picture in pictures(video) for _ in range(10 * SCENE)), rate=10)
        segments = [
            {"start": number * SCENE - shift, "end": (number + 1) * SCENE - shift, "caption": text}
            for number, text in enumerate(words(video))
        ]
        members[f"v{video}"] = {"mp4": data, "json": json.dumps({"segments": segments}).encode()}
    know_scenes(monkeypatch, len(shifts))
    folder.mkdir(exist_ok=True)
    return write_tar(folder / "s.tar", members.items())


def know_scenes(monkeypatch: pytest.MonkeyPatch, videos: int) -> None:
    encode = Backbone.encode_tokens
    texts = [text for video in range(videos) for text in words(video)]
    shown = [picture for video in range(videos) for picture in pictures(video)]

    def about_scenes(self: Backbone, tokens: Tensor, *options: object, **named: object) -> Tensor:
        pixels = np.stack([fit_to(self.pixels, Image.fromarray(picture)) for picture in shown])
        truth = dict(zip(map(tuple, self.tokens(texts).tolist()), self.encode_images(pixels), strict=True))
        plain = encode(self, tokens, *options, **named)  # type: ignore[arg-type]
        return torch.stack([truth.get(tuple(row), v) for row, v in zip(tokens.tolist(), plain, strict=True)])

    monkeypatch.setattr(Backbone, "encode_tokens", about_scenes)
