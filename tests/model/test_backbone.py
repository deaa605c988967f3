"""Backbones: loading, one-line errors, and encoding compared with open_clip's own."""

import json
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import pytest
import torch

from model.backbone import Backbone, evaluation_mode, load_backbone, parse_spec
from model.model_names import BackboneError
from model.pixels import PixelSpec
from model.text_tower import can_trim, group_by_width, trim_padding
from tests.support.tiny_clip import CONFIG, write_config, write_model

CAPTIONS = [
    "a dog",
    "",
    "two children run across a wet field while an old man watches them",
    "!!! wow !!!",
    "word " * 80,
]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Backbone:
    return load_backbone(f"local-dir:{write_model(tmp_path_factory.mktemp('tiny'))}")


def pixels(count: int, size: int = 32) -> Any:
    return np.random.default_rng(0).integers(0, 256, (count, size, size, 3), dtype=np.uint8)


def test_a_folder_gives_a_backbone(tiny: Backbone) -> None:
    assert (tiny.dim, tiny.pretrained, tiny.trims) == (24, True, True)
    assert tiny.logit_scale == pytest.approx(1 / 0.07, rel=1e-4)
    assert tiny.pixels == PixelSpec((32, 32), (0.5, 0.4, 0.3), (0.2, 0.25, 0.3), "bilinear")


def test_images_are_encoded_as_open_clip_encodes_them(tiny: Backbone) -> None:
    batch = pixels(5)
    x = torch.from_numpy(batch).permute(0, 3, 1, 2) / 255
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (tiny.pixels.mean, tiny.pixels.std))
    with torch.no_grad():
        expected = tiny.model.encode_image((x - mean) / std, normalize=True)
    found = tiny.encode_images(batch)
    assert found.dtype == torch.float32 and not found.requires_grad
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    assert tiny.encode_images(batch[:0]).shape == (0, 24)


@pytest.mark.parametrize(
    ("custom", "text", "expected_trims"),
    [
        (False, {}, True),
        (True, {}, True),
        (True, {"pool_type": "eos", "eos_id": 49407}, True),
        (False, {"proj_bias": True}, True),
        (True, {"no_causal_mask": True}, False),
        (True, {"pool_type": "last"}, False),
        (True, {"embed_cls": True}, False),
    ],
)
def test_trimmed_captions_encode_as_padded_ones(
    tmp_path: Path, custom: bool, text: dict[str, Any], expected_trims: bool
) -> None:
    made = load_backbone(f"local-dir:{write_model(tmp_path, text=text, custom_text=custom)}")
    assert made.trims == expected_trims
    with torch.no_grad():
        expected = made.model.encode_text(made.tokenizer(CAPTIONS), normalize=True)
    torch.testing.assert_close(made.encode_texts(CAPTIONS), expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(made.encode_texts(CAPTIONS, batch=1), expected, atol=1e-5, rtol=0)
    assert made.tokenize(["a dog"]).shape == (1, 8 if expected_trims else 32)


def test_captions_are_grouped_by_their_trimmed_width(tiny: Backbone) -> None:
    tokens = tiny.tokens(["word " * count for count in (20, 1, 9, 2, 20, 3)])
    groups = group_by_width(tokens)
    assert sorted(row for group in groups for row in group.tolist()) == list(range(6))
    widths = [{trim_padding(tokens[row : row + 1]).shape[1] for row in group.tolist()} for group in groups]
    assert all(len(width) == 1 for width in widths) and len(set.union(*widths)) == len(widths) > 1


def test_a_tower_that_only_looks_causal_is_not_trimmed(tiny: Backbone) -> None:
    causal = tiny.model.attn_mask
    try:
        tiny.model.attn_mask = torch.zeros_like(causal)
        assert not can_trim(tiny.model, tiny.tokenizer)
    finally:
        tiny.model.attn_mask = causal
    assert can_trim(tiny.model, tiny.tokenizer)


def test_encoding_leaves_modes_as_they_were(tiny: Backbone) -> None:
    tiny.model.train()
    tiny.model.visual.eval()
    tiny.encode_texts(["a dog"])
    assert tiny.model.training and tiny.model.transformer.training and not tiny.model.visual.training
    with evaluation_mode(tiny.model):
        assert not tiny.model.transformer.training
    tiny.model.eval()


def test_embedding_carries_gradients(tiny: Backbone) -> None:
    loss = tiny.embed_tokens(tiny.tokenize(["a dog"])).sum() + tiny.embed_pixels(torch.from_numpy(pixels(1))).sum()
    (one, other) = torch.autograd.grad(loss, [tiny.model.text_projection, tiny.model.visual.proj])
    assert one.abs().sum() > 0 and other.abs().sum() > 0


def test_fingerprint_follows_weights_and_settings_not_the_place(tmp_path: Path, tiny: Backbone) -> None:
    same = load_backbone(f"local-dir:{write_model(tmp_path / 'same')}")
    other = load_backbone(f"local-dir:{write_model(tmp_path / 'other', seed=1)}")
    write_config(tmp_path / "same", {"heads": 4})
    settings = load_backbone(f"local-dir:{tmp_path / 'same'}")
    assert len({tiny.fingerprint, other.fingerprint, settings.fingerprint}) == 3
    assert same.fingerprint == tiny.fingerprint


def test_a_bare_name_is_random_but_repeatable(tmp_path: Path) -> None:
    (tmp_path / "tiny-test-model.json").write_text(json.dumps(CONFIG["model_cfg"]))
    open_clip.add_model_config(tmp_path / "tiny-test-model.json")
    torch.manual_seed(1)
    made = load_backbone("tiny-test-model")
    state = torch.random.get_rng_state()
    again = load_backbone("tiny-test-model")
    assert not made.pretrained
    assert made.fingerprint == again.fingerprint != load_backbone("tiny-test-model", seed=1).fingerprint
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize("spec", ["ViT-B-32@openai", "hf-hub:nobody/nothing"])
def test_weights_that_cannot_be_downloaded_are_one_line(spec: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BackboneError, match=f"cannot download the weights of {spec}") as caught:
        load_backbone(spec)
    assert "\n" not in str(caught.value) and "local-dir:PATH" in str(caught.value)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("ViT-B-33", "did you mean ViT-B-32"),
        ("something", "nor a folder called 'something'"),
        ("ViT-B-32@nope", "no weights 'nope' for ViT-B-32; it has openai"),
        ("local-dir:/does/not/exist", "there is no folder"),
        ("local-dir:", "names no model"),
        ("hf-hub:", "names no model"),
    ],
)
def test_unknown_names_are_rejected(spec: str, message: str) -> None:
    with pytest.raises(BackboneError, match=message):
        load_backbone(spec)


def test_folders_that_are_no_models(tmp_path: Path) -> None:
    with pytest.raises(BackboneError, match=r"no open_clip_config\.json"):
        load_backbone(f"local-dir:{tmp_path}")
    (tmp_path / "open_clip_config.json").write_text("{")
    with pytest.raises(BackboneError, match="not JSON"):
        load_backbone(f"local-dir:{tmp_path}")
    (tmp_path / "open_clip_config.json").write_text("{}")
    with pytest.raises(BackboneError, match="embed_dim"):
        load_backbone(f"local-dir:{tmp_path}")
    write_config(tmp_path)
    with pytest.raises(BackboneError, match="no weights"):
        load_backbone(f"local-dir:{tmp_path}")


def test_damaged_and_foreign_weights_are_one_line(tmp_path: Path) -> None:
    weights = write_model(tmp_path) / "open_clip_model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:1000])
    with pytest.raises(BackboneError, match="cannot load") as caught:
        load_backbone(f"local-dir:{tmp_path}")
    assert "\n" not in str(caught.value)
    weights.write_bytes(whole)
    write_config(tmp_path, embed_dim=12)
    with pytest.raises(BackboneError, match="size mismatch"):
        load_backbone(f"local-dir:{tmp_path}")


class Trap:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.mark,))


def test_a_model_that_brings_code_is_refused(tmp_path: Path) -> None:
    write_model(tmp_path)
    path = tmp_path / "open_clip_config.json"
    config = json.loads(path.read_text())
    config["model_cfg"]["text_cfg"]["tokenizer_kwargs"] = {"trust_remote_code": True}
    path.write_text(json.dumps(config))
    with pytest.raises(BackboneError, match="trust_remote_code"):
        load_backbone(f"local-dir:{tmp_path}")


@pytest.mark.parametrize("place", ["model", "tokenizer"])
def test_a_tokenizer_that_brings_code_is_refused(tmp_path: Path, place: str) -> None:
    write_model(tmp_path / "model")
    path = tmp_path / "model" / "open_clip_config.json"
    config = json.loads(path.read_text())
    config["model_cfg"]["text_cfg"]["hf_tokenizer_name"] = str(tmp_path / place)
    path.write_text(json.dumps(config))
    (tmp_path / place).mkdir(exist_ok=True)
    code = {"auto_map": {"AutoTokenizer": ["evil.Evil", None]}}
    (tmp_path / place / "tokenizer_config.json").write_text(json.dumps(code))
    with pytest.raises(BackboneError, match="run code of its own"):
        load_backbone(f"local-dir:{tmp_path / 'model'}")


@pytest.mark.parametrize("name", ["open_clip_pytorch_model.bin", "model.pth"])
def test_a_pickle_is_never_run(tmp_path: Path, name: str) -> None:
    folder, mark = write_config(tmp_path / "model"), tmp_path / "ran"
    (folder / name).write_bytes(pickle.dumps({"logit_scale": Trap(mark)}, protocol=2))
    with pytest.raises(BackboneError, match="cannot load"):
        load_backbone(f"local-dir:{folder}")
    torch.save({"logit_scale": Trap(mark)}, folder / name)
    with pytest.raises(BackboneError, match="cannot load"):
        load_backbone(f"local-dir:{folder}")
    assert not mark.exists()


def test_plain_tensors_saved_by_torch_are_read(tmp_path: Path, tiny: Backbone) -> None:
    torch.save(tiny.model.state_dict(), write_config(tmp_path) / "open_clip_pytorch_model.bin")
    assert load_backbone(f"local-dir:{tmp_path}").fingerprint == tiny.fingerprint


def test_pixels_of_another_shape_are_refused(tiny: Backbone) -> None:
    with pytest.raises(BackboneError, match=r"shape \(B, 32, 32, 3\)"):
        tiny.encode_images(pixels(1, size=16))
    with pytest.raises(BackboneError, match="float32"):
        tiny.encode_images(pixels(1).astype(np.float32))


def test_a_tag_brings_the_activation_it_was_trained_with() -> None:
    """open_clip only warns if `ViT-B-32@openai` is built without QuickGELU; the loader relies on this entry."""
    assert open_clip.get_pretrained_cfg("ViT-B-32", "openai")["quick_gelu"] is True


def test_the_real_model(flickr_model: str) -> None:
    made = load_backbone(flickr_model)
    assert (made.dim, made.trims, made.pixels.size) == (384, True, (260, 260))
    with torch.no_grad():
        expected = made.model.encode_text(made.tokenizer(CAPTIONS), normalize=True)
    torch.testing.assert_close(made.encode_texts(CAPTIONS), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("/nonexist", "there is no file or folder /nonexist"),
        ("./runs/best", "there is no file or folder ./runs/best"),
        ("runs/best", "nor a folder called 'runs/best'"),
        ("ViT-B/33", "did you mean ViT-B-32"),
    ],
)
def test_a_model_that_is_not_there_is_named_as_it_was_given(spec: str, words: str) -> None:
    with pytest.raises(BackboneError, match=re.escape(words)):
        parse_spec(spec)
