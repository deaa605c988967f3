"""The products of oneDNN against those of MKL."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from model import matrix_products
from model.backbone import load_backbone
from model.matrix_products import OneDnnProducts, is_mkl_slow, multiply_by_onednn, use_fastest_products
from tests.support.tiny_clip import write_model

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")


class CalledOperators(TorchDispatchMode):
    """Records what runs in the end, if it is entered before other modes."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **kwargs or {})


@torch.no_grad()
@pytest.mark.parametrize("shape", [(7, 24), (2, 5, 24)])
@pytest.mark.parametrize("has_bias", [True, False])
def test_linear_layers_are_multiplied_by_onednn(shape: tuple[int, ...], has_bias: bool) -> None:
    torch.manual_seed(0)
    x, weight, bias = torch.randn(shape), torch.randn(40, 24), torch.randn(40) if has_bias else None
    with CalledOperators() as called, OneDnnProducts():
        product = F.linear(x, weight, bias)
    assert "_linear_pointwise" in called.names and not {"addmm", "mm"} & set(called.names)
    torch.testing.assert_close(product, F.linear(x, weight, bias), atol=1e-5, rtol=1e-5)


def test_a_product_does_not_import_torchs_compiler() -> None:
    """It takes 1.2 processor seconds and 144 MiB."""
    code = (
        "import sys, torch\nfrom model.matrix_products import OneDnnProducts\n"
        "with torch.no_grad(), OneDnnProducts():\n    torch.nn.functional.linear(torch.ones(2, 3), torch.ones(4, 3))\n"
        "assert 'torch._dynamo' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@torch.no_grad()
def test_rows_that_do_not_lie_together_are_multiplied_too() -> None:
    x, weight = torch.randn(24, 7).t(), torch.randn(40, 24)
    with CalledOperators() as called, OneDnnProducts():
        product = F.linear(x, weight)
    assert "_linear_pointwise" in called.names
    torch.testing.assert_close(product, F.linear(x, weight), atol=1e-5, rtol=1e-5)


def test_a_torch_with_another_product_of_onednn_uses_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise RuntimeError("mkldnn::_linear_pointwise() expected at most 5 arguments")

    assert matrix_products.is_product_right()
    monkeypatch.setattr(matrix_products, "multiply", refuse)
    assert not matrix_products.is_product_right()
    monkeypatch.setattr(matrix_products, "multiply", lambda x, transposed, bias: x @ transposed)
    assert not matrix_products.is_product_right()


@torch.no_grad()
def test_other_products_are_left_to_torch() -> None:
    x, y = torch.randn(6, 8), torch.randn(8, 4)
    with CalledOperators() as called, OneDnnProducts():
        torch.testing.assert_close(torch.addmm(torch.ones(6, 4), x, y, beta=2.0), 2 + x @ y)
        assert (x.double() @ y.double()).dtype == torch.float64
    assert "_linear_pointwise" not in called.names


@pytest.mark.parametrize("is_slow", [True, False])
def test_an_encoder_gives_the_same_embeddings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_slow: bool) -> None:
    tiny = load_backbone(f"local-dir:{write_model(tmp_path)}")
    pixels = torch.randint(0, 256, (3, 32, 32, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    captions = ["a dog", "two children run across a wet field"]
    monkeypatch.setattr(matrix_products, "is_mkl_slow", lambda: False)
    expected = tiny.encode_images(pixels), tiny.encode_texts(captions)
    monkeypatch.setattr(matrix_products, "is_mkl_slow", lambda: is_slow)
    with CalledOperators() as called:
        embeddings = tiny.encode_images(pixels), tiny.encode_texts(captions)
    assert ("_linear_pointwise" in called.names) == is_slow
    for actual, exact in zip(embeddings, expected, strict=True):
        torch.testing.assert_close(actual, exact, atol=1e-5, rtol=0)
    assert torch.backends.mha.get_fastpath_enabled()


@pytest.mark.parametrize(("maker", "is_slow"), [("AuthenticAMD", True), ("GenuineIntel", False)])
def test_mkl_is_slow_on_the_cpus_of_other_makers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, maker: str, is_slow: bool
) -> None:
    (tmp_path / "cpuinfo").write_text(f"vendor_id : {maker}\n")
    monkeypatch.setattr(matrix_products, "CPU_INFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    assert is_mkl_slow.__wrapped__() == (is_slow and torch.backends.mkl.is_available())
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    assert not is_mkl_slow.__wrapped__()


def stop() -> None:
    assert not torch.backends.mha.get_fastpath_enabled()
    raise ValueError("stop")


def test_an_error_restores_the_fused_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix_products, "is_mkl_slow", lambda: True)
    with pytest.raises(ValueError, match="stop"), use_fastest_products():
        stop()
    assert torch.backends.mha.get_fastpath_enabled()


def test_products_of_a_thread_leave_the_fused_attention_of_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix_products, "is_mkl_slow", lambda: True)
    with multiply_by_onednn():
        assert torch.backends.mha.get_fastpath_enabled()


def test_gradients_are_those_without_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix_products, "is_mkl_slow", lambda: True)
    torch.manual_seed(0)
    x, bank = torch.randn(50, 24), torch.randn(8, 24, requires_grad=True)
    (expected,) = torch.autograd.grad((x @ bank.T).sigmoid().mean(), bank)
    with CalledOperators() as called, multiply_by_onednn():
        (gradient,) = torch.autograd.grad((x @ bank.T).sigmoid().mean(), bank)
    assert "_linear_pointwise" in called.names
    torch.testing.assert_close(gradient, expected, atol=1e-5, rtol=1e-5)
