"""Multiplies matrices by oneDNN where MKL is slow: on CPUs with AVX-512 that are not Intel's, where MKL uses AVX2.

    with use_fastest_products():
        model(batch)

oneDNN's products are twice as fast there and equal to about the seventh digit. torch uses them for float32 only in
compiled code, and compiling takes longer than most audits of a hundred photos.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

CPU_INFO = Path("/proc/cpuinfo")


class OneDnnProducts(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Replaces `x @ weight.T + bias` in float32. In the thread that enters it, without gradients."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Whether torch wraps the method below for its compiler: the first call would import that, for 1.2 seconds."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if not kwargs:  # no factors of the summands
            if func is torch.ops.aten.addmm.default and args[0].ndim == 1 and fits(*args[1:]):
                return multiply(args[1], args[2], args[0])
            if func is torch.ops.aten.mm.default and fits(*args):
                return multiply(*args)
        return func(*args, **kwargs or {})


def fits(x: Tensor, transposed: Tensor) -> bool:
    """Whether the second factor is a transposed weight in the order that oneDNN reads, and both are float32."""
    return x.dtype == transposed.dtype == torch.float32 and transposed.t().is_contiguous() and x.device.type == "cpu"


def multiply(x: Tensor, transposed: Tensor, bias: Tensor | None = None) -> Tensor:
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, transposed.t(), bias, "none", [], "")
    return product


@contextmanager
def use_fastest_products() -> Iterator[None]:
    """Use oneDNN in this block if MKL is slow on this machine; for a model, which may have attention.

    Not in two threads at once: torch's fused attention, which multiplies where no mode can see it, is off in all.
    """
    if not is_mkl_slow():
        yield
        return
    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with multiply_by_onednn():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)


@contextmanager
def multiply_by_onednn() -> Iterator[None]:
    """Use oneDNN for the products of this thread in this block if MKL is slow on this machine."""
    with OneDnnProducts() if is_mkl_slow() else nullcontext():  # type: ignore[no-untyped-call]
        yield


@cache
def is_mkl_slow() -> bool:
    available = torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if not available or torch.backends.cpu.get_cpu_capability() != "AVX512" or not CPU_INFO.is_file():
        return False
    with CPU_INFO.open(encoding="utf-8", errors="replace") as file:
        return "GenuineIntel" not in file.read(2000) and is_product_right()


def is_product_right() -> bool:
    """Whether this torch has oneDNN's product, with these arguments: it is no public function of torch."""
    x, weight, bias = (
        torch.linspace(-1, 1, size).reshape(shape) for size, shape in ((6, (2, 3)), (12, (4, 3)), (4, 4))
    )
    try:
        return torch.allclose(multiply(x, weight.t(), bias), torch.addmm(bias, x, weight.t()), atol=1e-5)
    except (AttributeError, RuntimeError, TypeError):
        return False
