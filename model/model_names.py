"""Names of models, checked without torch: a wrong name is refused in half a second, not after the imports."""

import difflib
import importlib.util
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from model.model_errors import ModelError

LOCAL_PREFIX = "local-dir:"
HUB_PREFIX = "hf-hub:"
CONFIG_FILE = "open_clip_config.json"
HF_NAME_SETTINGS = ("hf_tokenizer_name", "hf_model_name")  # in text_cfg: names on the hub, or folders


MAX_LAYERS = 1000  # more would be built for minutes before the weights are found not to fit


class BackboneError(ModelError):
    """The model cannot be loaded, or it cannot encode the input."""


def check_model_name(spec: str) -> None:
    """Raise BackboneError if there is no such model: neither a folder with a model nor a name of open_clip."""
    folder = Path(spec.removeprefix(LOCAL_PREFIX))
    if spec.startswith(LOCAL_PREFIX) and spec != LOCAL_PREFIX:
        check_model_folder(folder)
    elif not spec.startswith((LOCAL_PREFIX, HUB_PREFIX)) and not folder.exists():
        names, name = list_model_names(), spec.partition("@")[0]
        if names and name.replace("/", "-") not in names:
            raise BackboneError(explain_unknown_model(name, names))


def list_model_names() -> list[str]:
    """The models of open_clip: its own list if it is imported, else those of its files; empty if it has none."""
    if open_clip := sys.modules.get("open_clip"):
        return list(open_clip.list_models())
    package = importlib.util.find_spec("open_clip")
    folders = (package.submodule_search_locations if package else None) or []
    return sorted(path.stem for folder in folders for path in Path(folder, "model_configs").glob("*.json"))


def explain_unknown_model(name: str, names: Sequence[str]) -> str:
    if name.startswith(("/", ".", "~")):
        return f"there is no file or folder {name}"
    similar = difflib.get_close_matches(name.replace("/", "-"), names, n=3)
    hint = f"did you mean {' or '.join(similar)}?" if similar else "a model is NAME@TAG of open_clip, or a folder"
    return f"there is neither an open_clip model nor a folder called {name!r}; {hint}"


def check_model_folder(folder: Path) -> None:
    """Reject a folder that open_clip would fail on, or would load with random weights."""
    path = folder / CONFIG_FILE
    if not folder.is_dir():
        raise BackboneError(f"there is no folder {folder}")
    if not path.is_file():
        raise BackboneError(f"{folder} is not an open_clip model: it has no {CONFIG_FILE}")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise BackboneError(f"{path} is not JSON: {' '.join(str(error).split())}") from error
    if not isinstance(config, dict) or not isinstance(config.get("model_cfg"), dict):
        raise BackboneError(f"{path} has no model_cfg with an embed_dim")
    settings = config["model_cfg"]
    if "embed_dim" not in settings:
        raise BackboneError(f"{path} has no model_cfg with an embed_dim")
    towers = [tower for tower in settings.values() if isinstance(tower, dict)]
    if any(isinstance(layers := tower.get("layers"), int) and layers > MAX_LAYERS for tower in towers):
        raise BackboneError(f"{path} asks for more than {MAX_LAYERS} layers")
    if not any(next(folder.glob(f"*.{ending}"), None) for ending in ("safetensors", "bin", "pth")):
        raise BackboneError(f"{folder} has no weights (open_clip_model.safetensors)")
    text = settings.get("text_cfg")
    names = [str(text.get(key) or "") for key in HF_NAME_SETTINGS] if isinstance(text, dict) else []
    for code_folder in (folder, *(Path(name) for name in names if name)):
        refuse_code_in_folder(code_folder)


def refuse_code_in_folder(folder: Path) -> None:
    """Reject a folder with Python code of its own, which transformers would offer to run."""
    for name in ("tokenizer_config.json", "config.json"):
        try:
            config = json.loads((folder / name).read_bytes())
        except (OSError, ValueError, RecursionError):
            continue  # no file, or one that fails when it is loaded
        if isinstance(config, dict) and config.get("auto_map"):
            raise BackboneError(f"{folder / name} asks to run code of its own (auto_map), which is not allowed")
