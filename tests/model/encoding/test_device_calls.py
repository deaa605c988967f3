"""What encoding asks of a GPU, recorded by a device that does everything on the CPU: memory, streams, copies, waits."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from auditor.sweep.shard_encoder import FrameBatches
from model.backbone import Backbone
from model.checkpoint import load_model
from model.encoding.device_calls import DeviceCalls

GPU = torch.device("cuda:0")
WAITS = ("cpu", "item", "numpy", "tolist", "nonzero")  # of a tensor on the GPU, they wait for it


class FakeStream:
    def __init__(self, gpu: "FakeGpu", name: str) -> None:
        self.gpu, self.name = gpu, name

    def wait_stream(self, other: "FakeStream") -> None:
        self.gpu.calls.append(f"{self.name} waits for {other.name}")


class FakeGpu(TorchFunctionMode):
    """Runs torch on the CPU and remembers which tensors would be pinned or on the GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.stream = self.encoding = FakeStream(self, "encoding")
        self.pinned: dict[int, Tensor] = {}  # the tensors are held, so that no number is used twice
        self.on_gpu: dict[int, Tensor] = {}

    def is_pinned(self, tensor: Tensor | None) -> bool:
        base = tensor if tensor is None or tensor._base is None else tensor._base
        return id(base) in self.pinned

    def reads_gpu(self, values: Any) -> bool:
        return any(self.reads_gpu(v) if isinstance(v, list | tuple) else id(v) in self.on_gpu for v in values)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name, kwargs = getattr(func, "__name__", ""), dict(kwargs or {})
        first = args[0] if args and isinstance(args[0], Tensor) else None
        if name == "is_pinned":
            return self.is_pinned(first)
        if name in WAITS and id(first) in self.on_gpu:
            self.calls.append("wait")
        pins = bool(kwargs.pop("pin_memory", False)) or name == "pin_memory"
        moves = name == "to" and GPU in args
        if moves:
            source = "pinned" if self.is_pinned(first) else "pageable"
            self.calls.append(
                f"copy from {source} in {self.stream.name}{' at once' * (not kwargs.get('non_blocking'))}"
            )
        kwargs = {key: "cpu" if value == GPU else value for key, value in kwargs.items()}
        args = tuple("cpu" if value is GPU or value == GPU else value for value in args) if moves else args
        result = first.clone() if first is not None and (moves or name == "pin_memory") else func(*args, **kwargs)
        if isinstance(result, Tensor):
            if pins:
                self.pinned[id(result)] = result
            elif moves or self.reads_gpu(args):
                self.on_gpu[id(result)] = result
        return result


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    fake = FakeGpu()

    @contextmanager
    def use_stream(stream: FakeStream) -> Iterator[None]:
        fake.stream, before = stream, fake.stream
        yield
        fake.stream = before

    def record_stream(copy: Tensor, stream: FakeStream) -> None:
        fake.calls.append(f"{stream.name} uses the copy")

    monkeypatch.setattr(Tensor, "record_stream", record_stream)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: FakeStream(fake, "copies"))
    monkeypatch.setattr(torch.cuda, "stream", use_stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: fake.encoding)
    return fake


UPLOAD = ["copy from pinned in copies", "encoding waits for copies", "encoding uses the copy"]


def test_a_batch_goes_from_pinned_memory_through_its_own_stream(gpu: FakeGpu) -> None:
    device = DeviceCalls(GPU)
    with gpu:
        batch = device.allocate((4, 2, 2, 3))
        device.upload(batch[:3])
        device.upload(torch.zeros(3))  # pinned first
    assert gpu.calls == 2 * UPLOAD


def test_on_a_cpu_nothing_is_copied() -> None:
    device = DeviceCalls(torch.device("cpu"))
    batch = device.allocate((4, 2, 2, 3))
    assert device.upload(batch) is batch and not batch.is_pinned()


def test_nothing_waits_before_a_piece_is_done(gpu: FakeGpu, random_model: str) -> None:
    backbone = load_model(random_model).backbone

    class OnGpu(Backbone):
        device = GPU

    fake = OnGpu(**{name: getattr(backbone, name) for name in ("spec", "model", "tokenizer", "pixels", "config")},
                 pretrained=True, trims=backbone.trims, precision=replace(backbone.precision))  # fmt: skip
    pixels = np.random.default_rng(0).integers(0, 256, (7, *backbone.pixels.size, 3), dtype=np.uint8)
    batches = FrameBatches(fake, 3, fake.encode_frames)
    with gpu:
        for frame in pixels:
            batches.add(frame[None])
        texts = fake.encode_tokens(fake.tokens(["a dog", "a cat on a mat"]))
        assert gpu.calls[:3] == UPLOAD and "wait" not in gpu.calls
        assert not [call for call in gpu.calls if "at once" in call or "pageable" in call]
        vectors = batches.finish()
    assert gpu.calls.count("wait") >= 1
    np.testing.assert_allclose(vectors, backbone.encode_frames(pixels).numpy(), atol=1e-5)
    expected = backbone.encode_tokens(backbone.tokens(["a dog", "a cat on a mat"]))
    np.testing.assert_allclose(texts.numpy(), expected.numpy(), atol=1e-5)
