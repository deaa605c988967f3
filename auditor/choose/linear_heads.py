"""Heads of linear layers on CLIP embeddings, as they are published: aesthetics, NSFW, watermarks, or your own.

    audit.apply("sa_0_4_vit_l_14_linear.pth", name="aesthetic")

A file holds the weights of one linear layer (LAION's aesthetic predictors) or of several (improved-aesthetic-predictor,
CLIP-based-NSFW-Detector), as a state dict of torch, safetensors or .npz. Only arrays are read, never pickled objects.
State dicts do not name activations: layers whose numbers are three apart have a ReLU and a dropout between them, those
one apart nothing; for others `activation` decides.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np

from auditor.errors import AuditorError
from auditor.regular_files import open_regular_file
from auditor.vectors import Floats

SUFFIXES = (".pth", ".pt", ".bin", ".ckpt", ".safetensors", ".npz")
LAYER = re.compile(r"(.*?)\.?(weight|bias)")
AESTHETIC_WIDTHS = (1024, 128, 64, 16, 1)  # of improved-aesthetic-predictor, which has no activations
Activation = Literal["relu", "none"]


class LinearHeadError(AuditorError):
    """A head that cannot be used."""


@dataclass(frozen=True, slots=True)
class LinearLayer:
    weight: Floats  # (outputs, inputs)
    bias: Floats  # (outputs,)
    relu: bool  # afterwards


@dataclass(frozen=True)
class EmbeddingHead:
    """A head: called with vectors (N, D), it returns a column for each of its outputs."""

    name: str
    layers: tuple[LinearLayer, ...]

    @property
    def width(self) -> int:
        return int(self.layers[0].weight.shape[1])

    @property
    def fingerprint(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        for layer in self.layers:
            digest.update(layer.weight.tobytes() + layer.bias.tobytes() + bytes([layer.relu]))
        return digest.hexdigest()

    def __call__(self, visual: Floats) -> dict[str, Floats]:
        if visual.shape[1] != self.width:
            raise LinearHeadError(
                f"the head takes embeddings of width {self.width}, and those of this audit have {visual.shape[1]}: it "
                "was made for another model"
            )
        values = visual
        for layer in self.layers:
            values = values @ layer.weight.T + layer.bias
            values = np.maximum(values, 0) if layer.relu else values
        names = [self.name] if values.shape[1] == 1 else [f"{self.name}_{number}" for number in range(values.shape[1])]
        return dict(zip(names, values.T, strict=True))


def is_head_file(path: str) -> bool:
    return path.lower().endswith(SUFFIXES)


def load_embedding_head(path: str | Path, name: str = "", activation: Activation | None = None) -> EmbeddingHead:
    """Load a head; its columns are called `name`, by default after the file."""
    try:
        arrays = read_arrays(str(path))
        layers = parse_layers(arrays, activation)
    except FileNotFoundError:
        raise LinearHeadError(f"there is no file {path}") from None
    except LinearHeadError as error:
        raise LinearHeadError(f"{path}: {error}") from None
    return EmbeddingHead(name or re.sub(r"\W+", "_", Path(path).stem).strip("_"), layers)


def read_arrays(path: str) -> dict[str, Any]:
    """Read the arrays of a file by name."""
    if path.lower().endswith((".h5", ".keras")):
        raise LinearHeadError("Keras files are not supported: save the kernels and biases with numpy.savez")
    if not is_head_file(path):
        suffixes = ", ".join(SUFFIXES)
        raise LinearHeadError(f"function must be a function, a class or the file of a linear head ({suffixes})")
    with open_regular_file(path) as file:
        try:
            if path.lower().endswith(".npz"):
                with np.load(file, allow_pickle=False) as stored:
                    return dict(stored)
            if path.lower().endswith(".safetensors"):
                from safetensors.numpy import load

                return dict(load(file.read()))
            return read_torch_arrays(file)
        except LinearHeadError:
            raise
        except Exception as error:  # the parsers raise errors of many kinds
            raise LinearHeadError(f"it does not hold plain weights ({type(error).__name__})") from None


def read_torch_arrays(file: Any) -> dict[str, Any]:
    import torch

    stored = torch.load(file, map_location="cpu", weights_only=True)
    stored = stored.get("state_dict", stored) if isinstance(stored, Mapping) else stored
    if not isinstance(stored, Mapping) or not all(isinstance(value, torch.Tensor) for value in stored.values()):
        raise LinearHeadError("it does not hold a state dict")
    return {name: value.float().numpy() for name, value in stored.items()}


def parse_layers(arrays: Mapping[str, Any], activation: Activation | None) -> tuple[LinearLayer, ...]:
    """Order the layers by the last number in their names, and check that each takes what the one before it returns."""
    weights: dict[str, Floats] = {}
    biases: dict[str, Floats] = {}
    for name, array in arrays.items():
        match = LAYER.fullmatch(name)
        if match is None or array.ndim != (2 if match[2] == "weight" else 1) or array.dtype.kind != "f":
            raise LinearHeadError(f"{name!r} of shape {array.shape} is not part of a linear layer")
        (weights if match[2] == "weight" else biases)[match[1]] = np.asarray(array, np.float32)
    if not weights or (strange := sorted(biases.keys() - weights.keys())):
        raise LinearHeadError(f"{strange[0]!r} has no weight" if weights else "it has no linear layer")
    names = sorted(weights, key=find_layer_number)
    outputs = [len(weights[name]) for name in names]
    for name, inputs in zip(names[1:], outputs, strict=False):
        if weights[name].shape[1] != inputs:
            raise LinearHeadError(
                f"layer {name!r} takes {weights[name].shape[1]} values, and the one before returns {inputs}"
            )
    relus = decide_activations([find_layer_number(name) for name in names], outputs, activation)
    layers = []
    for name, count, relu in zip(names, outputs, relus, strict=True):
        bias = biases.get(name, np.zeros(count, np.float32))
        if len(bias) != count or not (np.isfinite(bias).all() and np.isfinite(weights[name]).all()):
            raise LinearHeadError(f"layer {name!r} has weights that are not finite, or a bias of another length")
        layers.append(LinearLayer(weights[name], bias, relu))
    return tuple(layers)


def find_layer_number(name: str) -> int:
    numbers = re.findall(r"\d+", name)
    return int(numbers[-1]) if numbers else 0


def decide_activations(numbers: list[int], outputs: list[int], activation: Activation | None) -> list[bool]:
    """Whether a ReLU follows each layer; never the last one."""
    gaps = [later - number for number, later in pairwise(numbers)]
    if activation is not None:
        return [*(activation == "relu" for _ in gaps), False]
    if tuple(outputs) == AESTHETIC_WIDTHS and gaps == [2, 2, 2, 1]:
        return [False] * len(numbers)
    if not set(gaps) <= {1, 3}:
        raise LinearHeadError("it does not say what is between its layers: choose --activation relu or none")
    return [*(gap == 3 for gap in gaps), False]
