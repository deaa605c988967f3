"""The encoder in 16 bits and compiled, on the CPU, which runs the same code as a GPU."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from model.backbone import Backbone, load_backbone
from model.precision import CHECKED_SAMPLES, NumericalPrecision, PrecisionError, resolve_precision
from tests.support.tiny_clip import write_model

CAPTIONS = ["a dog", "two children run across a wet field", "!", "word " * 40]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Backbone:
    return load_backbone(f"local-dir:{write_model(tmp_path_factory.mktemp('tiny'))}")


def pixels(count: int) -> Any:
    return np.random.default_rng(0).integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)


def test_sixteen_bits_give_nearly_the_same_embeddings_and_are_checked(tiny: Backbone) -> None:
    half = replace(tiny)
    half.set_precision("float16")
    for exact, found in (
        (tiny.encode_images(pixels(5)), half.encode_images(pixels(5))),
        (tiny.encode_texts(CAPTIONS), half.encode_texts(CAPTIONS)),
    ):
        assert found.dtype == torch.float32 and not torch.equal(found, exact)  # computed in another precision
        assert float((found * exact).sum(dim=1).min()) > 0.9999
    assert half.precision.checked_samples == {"images": 5, "captions": 4}


def test_only_the_first_samples_are_computed_twice() -> None:
    calls: list[int] = []

    def embed(batch: Tensor) -> Tensor:
        calls.append(len(batch))
        return batch

    precision = NumericalPrecision("float16")
    batch = torch.nn.functional.normalize(torch.ones(CHECKED_SAMPLES, 4), dim=1)
    for _ in range(3):
        precision.run("images", embed, batch, torch.device("cpu"))
    assert calls == [CHECKED_SAMPLES] * 4
    precision.run("captions", embed, batch, torch.device("cpu"))
    assert len(calls) == 6


@pytest.mark.parametrize("wrong", [torch.tensor([[1.0, 0.2]]), torch.tensor([[float("nan"), 0.0]])])
def test_a_precision_that_changes_embeddings_is_refused(wrong: Tensor) -> None:
    answers = iter([torch.nn.functional.normalize(wrong, dim=1), torch.tensor([[1.0, 0.0]])])
    with pytest.raises(PrecisionError, match="--precision float32"):
        NumericalPrecision("float16").run("images", lambda _: next(answers), torch.zeros(1, 2), torch.device("cpu"))


def test_compiled_towers_give_the_same_embeddings(tiny: Backbone) -> None:
    made = replace(tiny, precision=NumericalPrecision(compiled=True, options={"backend": "eager"}))
    torch.testing.assert_close(made.encode_images(pixels(3)), tiny.encode_images(pixels(3)), atol=1e-5, rtol=0)
    torch.testing.assert_close(made.encode_texts(CAPTIONS), tiny.encode_texts(CAPTIONS), atol=1e-5, rtol=0)
    assert set(made.precision.embed_functions) == {"images", "captions"}


def test_auto_is_float32_on_a_cpu_and_sixteen_bits_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve_precision("auto", "cpu") == "float32" and resolve_precision("float16", "cpu") == "float16"
    assert resolve_precision("auto", "cuda:1") == "bfloat16"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: False)
    assert resolve_precision("auto", "cuda") == "float16"
    with pytest.raises(PrecisionError, match="one of auto"):
        resolve_precision("int4", "cpu")
