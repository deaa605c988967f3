"""Small corpora and a small model for tests, made in code.

The model's weights are random but fixed: its measurements are meaningless, but always the same.
"""

import io
import json
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from PIL import Image

WORDS = [
    "red",
    "green",
    "blue",
    "small",
    "large",
    "old",
    "young",
    "dog",
    "cat",
    "boat",
    "house",
    "tree",
    "hill",
    "river",
    "bird",
    "car",
    "sun",
    "road",
    "field",
    "cloud",
]

TINY = {
    "model_cfg": {
        "embed_dim": 16,
        "vision_cfg": {"image_size": 32, "layers": 1, "width": 32, "patch_size": 16, "head_width": 16},
        "text_cfg": {"context_length": 24, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 1},
    },
    "preprocess_cfg": {"size": [32, 32], "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]},
}


def write_random_model(folder: Path) -> str:
    """Write an open_clip model with random but fixed weights, and return its spec."""
    import open_clip
    import torch
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    with torch.random.fork_rng():
        torch.manual_seed(7)
        model = open_clip.model.CLIP(**TINY["model_cfg"])  # type: ignore[arg-type]
    save_file(model.state_dict(), folder / "open_clip_model.safetensors")
    (folder / "open_clip_config.json").write_text(json.dumps(TINY))
    return f"local-dir:{folder}"


def make_picture(seed: int, size: tuple[int, int] = (48, 40), form: str = "JPEG") -> bytes:
    """A blurred random picture that depends on the seed."""
    noise = np.random.default_rng(seed).integers(0, 255, (4, 5, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(noise).resize(size, Image.Resampling.BICUBIC).save(buffer, form)
    return buffer.getvalue()


def make_caption(seed: int) -> str:
    generator = np.random.default_rng(seed + 1_000_000)
    return "a " + " ".join(generator.choice(WORDS, int(generator.integers(3, 9))))


def make_sample(index: int, captions: int = 1) -> dict[str, bytes]:
    """The files of a sample: a picture and its captions."""
    text = "\n".join(make_caption(index * 10 + i) for i in range(captions))
    return {"jpg": make_picture(index), "txt": text.encode()}


def write_members(path: Path, members: Iterable[tuple[str, bytes]]) -> Path:
    """Write a tar of named files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def write_tar(path: Path, samples: Iterable[tuple[str, Mapping[str, bytes]]]) -> Path:
    """Write a tar of samples, each with a key and its files by extension."""
    files = ((f"{key}.{extension}", data) for key, members in samples for extension, data in members.items())
    return write_members(path, files)


def write_corpus(folder: Path, shards: int = 3, size: int = 20, captions: int = 1) -> Path:
    """Write shards of good samples with unique keys."""
    for shard in range(shards):
        first = shard * size
        write_tar(
            folder / f"{shard:05d}.tar", ((f"{i:06d}", make_sample(i, captions)) for i in range(first, first + size))
        )
    return folder
