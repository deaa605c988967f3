"""Write a tiny open_clip model into a folder, for tests of loading and encoding."""

import json
from pathlib import Path
from typing import Any

import open_clip
import torch
from safetensors.torch import save_file

CONFIG: dict[str, Any] = {
    "model_cfg": {
        "embed_dim": 24,
        "vision_cfg": {"image_size": 32, "layers": 2, "width": 32, "head_width": 16, "patch_size": 16},
        "text_cfg": {"context_length": 32, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 2},
    },
    "preprocess_cfg": {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.25, 0.3], "interpolation": "bilinear"},
}


def write_config(folder: Path, text: dict[str, Any] | None = None, **model: Any) -> Path:
    """Write open_clip_config.json with changes to the model and its text tower."""
    settings = {**CONFIG["model_cfg"], **model, "text_cfg": {**CONFIG["model_cfg"]["text_cfg"], **(text or {})}}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "open_clip_config.json").write_text(json.dumps({**CONFIG, "model_cfg": settings}))
    return folder


def write_model(folder: Path, seed: int = 0, text: dict[str, Any] | None = None, **model: Any) -> Path:
    """Write a complete model folder with random weights."""
    write_config(folder, text, **model)
    settings = json.loads((folder / "open_clip_config.json").read_text())["model_cfg"]
    custom = settings.pop("custom_text", False)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        clip = (open_clip.CustomTextCLIP if custom else open_clip.CLIP)(**settings)
    save_file(
        {name: tensor.contiguous() for name, tensor in clip.state_dict().items()},
        folder / "open_clip_model.safetensors",
    )
    return folder
