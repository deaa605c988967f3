"""Tiny shards and a tiny model to train: pictures with halves of two colors, and captions that name them."""

import io
import json
import multiprocessing
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from model.training.training_config import TrainConfig
from tests.support.corpora import write_members

COLORS = {"red": (220, 30, 30), "green": (30, 200, 30), "blue": (30, 30, 220), "white": (250, 250, 250)}
TINY = {
    "model_cfg": {
        "embed_dim": 16,
        "vision_cfg": {"image_size": 16, "layers": 1, "width": 32, "patch_size": 8, "head_width": 16},
        "text_cfg": {"context_length": 16, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
    },
    "preprocess_cfg": {"size": [16, 16], "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]},
}


def make_png(top: str, bottom: str, size: int = 20) -> bytes:
    pixels = np.zeros((size, size, 3), np.uint8)
    pixels[: size // 2], pixels[size // 2 :] = COLORS[top], COLORS[bottom]
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "png")
    return stream.getvalue()


def make_sample_files(count: int, prefix: str = "", captions: int = 2, seed: int = 0) -> list[tuple[str, bytes]]:
    """The files of `count` samples with this many captions each."""
    generator = np.random.default_rng(seed)
    files = []
    for index in range(count):
        top, bottom = generator.choice(list(COLORS), 2)
        lines = [f"{top} over {bottom}", f"{bottom} below {top}", f"a {top} half and a {bottom} half"][:captions]
        key = f"{prefix}{index:04}"
        files += [(f"{key}.png", make_png(top, bottom)), (f"{key}.txt", "\n".join(lines).encode())]
    return files


def write_shards(folder: Path, count: int = 2, size: int = 16, captions: int = 2, name: str = "train") -> str:
    """Write shards with `size` samples each, and return their folder."""
    shard_folder = folder / name
    shard_folder.mkdir(parents=True, exist_ok=True)
    for shard in range(count):
        write_members(
            shard_folder / f"{shard:03}.tar",
            make_sample_files(size, f"{name}{shard}-", captions, seed=shard + len(name)),
        )
    return str(shard_folder)


def write_model_config(folder: Path, changes: Mapping[str, Any] | None = None, name: str = "tiny.json") -> str:
    config = json.loads(json.dumps(TINY))
    for part, values in (changes or {}).items():
        target = config["model_cfg"]
        if isinstance(values, dict):
            target[part].update(values)
        else:
            target[part] = values
    (folder / name).write_text(json.dumps(config))
    return str(folder / name)


def make_tiny_config(folder: Path, **changes: Any) -> TrainConfig:
    """Settings of a run of 8 steps on 32 media with two captions each."""
    train = str(folder / "train") if (folder / "train").exists() else write_shards(folder)
    config = TrainConfig(
        corpus=train,
        out=str(folder / "run"),
        model=write_model_config(folder),
        device="cpu",
        epochs=2,
        batch_size=16,
        lr_encoders=3e-3,
        lr_other=1e-2,
        tokens=12,
        shuffle=16,
    )
    return replace(config, **changes)


def run_in_processes(function: Callable[..., None], *arguments: tuple[Any, ...]) -> list[int | None]:
    """Call the function in one process for each tuple of arguments; returns the exit codes.

    The processes are forked from a server that imports torch only once.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["auditor.research.train.train_model"])
    processes = [context.Process(target=function, args=each) for each in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=300)
    return [process.exitcode for process in processes]
