"""Published formats of heads, with made-up weights: the same numbers as torch, and one line for what cannot be used."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from auditor.choose.linear_heads import LinearHeadError, load_embedding_head
from auditor.python_api import Audit
from tests.support.vector_audit import plant_media, write_vector_audit

VECTORS = np.random.default_rng(0).normal(size=(20, 16)).astype(np.float32)


def run_torch(model: torch.nn.Module, vectors: np.ndarray = VECTORS) -> np.ndarray:
    with torch.no_grad():
        return np.asarray(model.eval()(torch.from_numpy(vectors)))


class Nested(torch.nn.Module):
    """The published predictors hold their layers in `layers`."""

    def __init__(self, *layers: torch.nn.Module) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(*layers)

    def forward(self, x: Any) -> Any:
        return self.layers(x)


def test_laion_aesthetic_is_one_layer(tmp_path: Path) -> None:
    model = torch.nn.Linear(16, 1)
    torch.save(model.state_dict(), tmp_path / "sa_0_4_vit_x_linear.pth")
    columns = load_embedding_head(tmp_path / "sa_0_4_vit_x_linear.pth")(VECTORS)
    assert list(columns) == ["sa_0_4_vit_x_linear"]
    np.testing.assert_allclose(columns["sa_0_4_vit_x_linear"], run_torch(model)[:, 0], rtol=1e-5)


def test_improved_aesthetic_predictor_has_no_activations(tmp_path: Path) -> None:
    nn = torch.nn
    model = Nested(nn.Linear(16, 1024), nn.Dropout(), nn.Linear(1024, 128), nn.Dropout(), nn.Linear(128, 64),
                   nn.Dropout(), nn.Linear(64, 16), nn.Linear(16, 1))  # fmt: skip
    torch.save({"state_dict": model.state_dict()}, tmp_path / "head.pth")
    np.testing.assert_allclose(
        load_embedding_head(tmp_path / "head.pth", "x")(VECTORS)["x"], run_torch(model)[:, 0], atol=1e-5
    )


def test_the_nsfw_detector_has_relus_where_its_numbers_leave_room(tmp_path: Path) -> None:
    nn = torch.nn
    model = Nested(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(), nn.Linear(32, 8), nn.ReLU(), nn.Dropout(),
                   nn.Linear(8, 4), nn.Linear(4, 1))  # fmt: skip
    torch.save(model.state_dict(), tmp_path / "h14_nsfw.pth")
    head = load_embedding_head(tmp_path / "h14_nsfw.pth", "nsfw")
    assert [layer.relu for layer in head.layers] == [True, True, False, False]
    np.testing.assert_allclose(head(VECTORS)["nsfw"], run_torch(model)[:, 0], atol=1e-6)


def test_other_formats_and_several_outputs(tmp_path: Path) -> None:
    weight, bias = np.ones((2, 16), np.float32), np.array([1, 2], np.float32)
    np.savez(tmp_path / "a.npz", weight=weight, bias=bias)
    save_file({"weight": weight, "bias": bias}, tmp_path / "a.safetensors")
    for name in ("a.npz", "a.safetensors"):
        columns = load_embedding_head(tmp_path / name)(VECTORS)
        assert list(columns) == ["a_0", "a_1"]
        np.testing.assert_allclose(columns["a_1"], VECTORS.sum(axis=1) + 2, rtol=1e-5)


def test_unknown_activations_must_be_named(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(16, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    torch.save(model.state_dict(), tmp_path / "a.pt")
    with pytest.raises(LinearHeadError, match="choose --activation relu or none"):
        load_embedding_head(tmp_path / "a.pt")
    with_relu = load_embedding_head(tmp_path / "a.pt", "x", "relu")(VECTORS)["x"]
    np.testing.assert_allclose(with_relu, run_torch(model)[:, 0], atol=1e-6)


class Harmful:
    def __reduce__(self) -> Any:
        return (print, ("unpickled",))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"weight": np.ones((1, 16)), "running_mean": np.ones(16)}, "'running_mean' of shape .16,. is not part"),
        ({"weight": np.ones((1, 16, 3, 3))}, "is not part of a linear layer"),
        ({"bias": np.ones(3)}, "it has no linear layer"),
        (
            {"0.weight": np.ones((4, 16)), "1.weight": np.ones((1, 5))},
            "'1' takes 5 values, and the one before returns 4",
        ),
        ({"weight": np.full((1, 16), np.nan)}, "weights that are not finite"),
        ({"weight": np.ones((1, 16), np.int64)}, "is not part of a linear layer"),
        ({"weight": np.array([None])}, "does not hold plain weights"),
    ],
)
def test_what_is_no_head_is_one_line(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(LinearHeadError, match=message):
        load_embedding_head(tmp_path / "a.npz")


def test_objects_are_never_unpickled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.pth").write_bytes(pickle.dumps(Harmful()))
    torch.save({"weight": Harmful()}, tmp_path / "b.pth")
    for name in ("a.pth", "b.pth"):
        with pytest.raises(LinearHeadError, match="does not hold plain weights"):
            load_embedding_head(tmp_path / name)
    assert "unpickled" not in capsys.readouterr().out
    for name, message in (("c.h5", "Keras files are not supported"), ("none.pth", "there is no file")):
        with pytest.raises(LinearHeadError, match=message):
            load_embedding_head(tmp_path / name)


def test_a_head_becomes_a_column_and_another_width_is_refused(tmp_path: Path) -> None:
    vectors, _ = plant_media(30, 0.5)
    weight = np.random.default_rng(1).normal(size=(1, 16)).astype(np.float32)
    np.savez(tmp_path / "score.npz", weight=weight, bias=np.zeros(1, np.float32))
    np.savez(tmp_path / "wide.npz", weight=np.ones((1, 8), np.float32))
    with Audit(write_vector_audit(tmp_path / "audit", [vectors, vectors[::-1]])) as audit:
        assert audit.apply(tmp_path / "score.npz", name="aesthetic").columns == ("aesthetic",)
        rows = audit.sql("SELECT aesthetic, status FROM samples WHERE shard = 's0' ORDER BY key, caption_index")
        expected = np.repeat(vectors.astype(np.float16).astype(np.float32) @ weight[0], 2)
        for row, value in zip(rows.to_pylist(), expected, strict=True):
            assert row["aesthetic"] == (pytest.approx(value, abs=1e-4) if row["status"] == "ok" else None)
        with pytest.raises(LinearHeadError, match="takes embeddings of width 8, and those of this audit have 16"):
            audit.apply(tmp_path / "wide.npz")
