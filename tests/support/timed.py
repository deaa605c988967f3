"""Videos of scenes with a timed caption each, shifted or not, and an encoder that matches captions with scenes."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from model.backbone import Backbone
from model.pixels import Pixels, fit_image
from tests.support.clips import encode_clip
from tests.support.corpora import make_caption, write_tar

SCENES, SCENE_SECONDS = 12, 3  # scenes of a video; length of each
SHIFT_SECONDS = 6.0  # seconds


def draw_scenes(video: int) -> list[Pixels]:
    coarse = np.random.default_rng(video).integers(0, 256, (SCENES, 3, 4, 3), dtype=np.uint8)
    return list(np.repeat(np.repeat(coarse, 16, axis=1), 16, axis=2))


def make_scene_captions(video: int) -> list[str]:
    return [make_caption(40 + 100 * video + number) for number in range(SCENES)]


def write_timed_corpus(folder: Path, monkeypatch: pytest.MonkeyPatch, shifts: Sequence[float]) -> Path:
    """Write a tar with one video per shift, in seconds to be added to its spans.

    The encoder is random, so captions get the vectors of the scenes that they describe. Everything else is real.
    """
    members = {}
    for video, shift in enumerate(shifts):
        data = encode_clip((picture for picture in draw_scenes(video) for _ in range(10 * SCENE_SECONDS)), rate=10)
        segments = [
            {"start": number * SCENE_SECONDS - shift, "end": (number + 1) * SCENE_SECONDS - shift, "caption": text}
            for number, text in enumerate(make_scene_captions(video))
        ]
        members[f"v{video}"] = {"mp4": data, "json": json.dumps({"segments": segments}).encode()}
    align_captions_with_scenes(monkeypatch, len(shifts))
    folder.mkdir(exist_ok=True)
    return write_tar(folder / "s.tar", members.items())


def align_captions_with_scenes(monkeypatch: pytest.MonkeyPatch, videos: int) -> None:
    encode = Backbone.encode_tokens
    texts = [text for video in range(videos) for text in make_scene_captions(video)]
    scenes = [picture for video in range(videos) for picture in draw_scenes(video)]

    def encode_like_scenes(self: Backbone, tokens: Tensor, *arguments: object, **keywords: object) -> Tensor:
        pixels = np.stack([fit_image(self.pixels, Image.fromarray(picture)) for picture in scenes])
        truth = dict(zip(map(tuple, self.tokens(texts).tolist()), self.encode_images(pixels), strict=True))
        plain = encode(self, tokens, *arguments, **keywords)  # type: ignore[arg-type]
        return torch.stack([truth.get(tuple(row), v) for row, v in zip(tokens.tolist(), plain, strict=True)])

    monkeypatch.setattr(Backbone, "encode_tokens", encode_like_scenes)


def write_film_table(folder: Path, films: int = 2) -> Path:
    """A table of videos whose scenes have a raw caption of two sentences and a refined one each."""
    folder.mkdir(exist_ok=True)
    lines = []
    for film in range(films):
        data = encode_clip((picture for picture in draw_scenes(film)[:3] for _ in range(10)), rate=10)
        (folder / f"{film}.mp4").write_bytes(data)
        refined = make_scene_captions(film)[:3]
        raw = [f"{text.capitalize()}. Somebody filmed it from far away." for text in refined]
        spans = {"start": [0, 1, 2], "end": [1, 2, 3]}
        lines.append(json.dumps({"key": f"{film}", "video": f"{film}.mp4", "raw": raw, "refined": refined, **spans}))
    (folder / "films.jsonl").write_text("\n".join(lines))
    return folder / "films.jsonl"
