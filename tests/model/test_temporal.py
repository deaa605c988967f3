"""The temporal transformer: padding, positions, its start from CLIP's text tower, checkpoints, and the oracle."""

import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from model.backbone import Backbone, load_backbone
from model.checkpoint import load_checkpoint, load_model, save_checkpoint
from model.prototypes import HeadConfig, PrototypeHead
from model.released_checkpoint import import_checkpoint
from model.similarity import similarity_matrix
from model.temporal import TemporalError, TemporalTransformer, start_temporal
from model.text_tower import encode_trimmed_tokens, find_causal_tower
from model.training.released_objective import compute_released_terms
from tests.support.tiny_clip import write_model


def draw_clips(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    counts = torch.tensor([5, 1, 3, 4])
    return torch.randn(4, 5, 24, generator=generator), torch.arange(5) < counts[:, None]


@pytest.fixture
def temporal() -> TemporalTransformer:
    made, generator = TemporalTransformer(24, layers=3, heads=2, positions=7), torch.Generator().manual_seed(0)
    for weight in made.parameters():  # as far from the start as training would take it
        torch.nn.init.normal_(weight, std=0.3, generator=generator)
    return made


def test_padding_changes_nothing(temporal: TemporalTransformer) -> None:
    frames, mask = draw_clips()
    expected = temporal.pool(frames, mask)
    torch.testing.assert_close(temporal.pool(frames.masked_fill(~mask[..., None], 1e3), mask), expected)
    alone = [temporal.pool(clip[valid][None], valid[valid][None])[0] for clip, valid in zip(frames, mask, strict=True)]
    torch.testing.assert_close(torch.stack(alone), expected)
    counts = mask.sum(dim=1).tolist()
    for mode in (True, False):  # torch has another code path for modules in evaluation mode
        torch.testing.assert_close(temporal.train(mode).pool_clips(frames[mask], counts), expected.detach())
    torch.testing.assert_close(expected.norm(dim=-1), torch.ones(4))


def test_the_order_of_frames_matters_and_the_scale_of_features_too(temporal: TemporalTransformer) -> None:
    frames, mask = draw_clips()
    expected = temporal.pool(frames, mask)
    assert (temporal.pool(frames.flip(1), mask.flip(1))[0] - expected[0]).abs().max() > 1e-3
    assert (temporal.pool(2 * frames, mask) - expected).abs().max() > 1e-3


def test_more_frames_than_positions(temporal: TemporalTransformer) -> None:
    with pytest.raises(TemporalError, match="takes 7 frames, not 8: --frames 7"):
        temporal(torch.zeros(1, 8, 24), torch.ones(1, 8))


@pytest.fixture
def backbone(tmp_path: Path) -> Backbone:
    text = {"width": 24, "heads": 2, "layers": 2}
    return load_backbone(f"local-dir:{write_model(tmp_path / 'clip', text=text)}")


def test_a_new_one_starts_as_the_text_tower(backbone: Backbone, tmp_path: Path) -> None:
    made = start_temporal(backbone.model, backbone.dim, layers=4, seed=1)
    assert torch.equal(made.positions, backbone.model.positional_embedding) and made.heads == 1
    for layer in range(4):
        weight = made.resblocks[layer].mlp["c_fc"].weight  # type: ignore[union-attr]
        text = [block.mlp.c_fc.weight for block in backbone.model.transformer.resblocks]
        assert (layer < 2) == any(torch.equal(weight, other) for other in text)  # type: ignore[arg-type]
    other = load_backbone(f"local-dir:{write_model(tmp_path / 'other')}")  # its text tower has another width
    fresh = start_temporal(other.model, other.dim, layers=2, seed=1)
    assert fresh.positions.shape == (77, 24)
    frames, mask = draw_clips()
    mean = F.normalize((F.normalize(frames, dim=-1) * mask[..., None]).sum(dim=1), dim=-1)
    assert F.cosine_similarity(fresh.pool(frames, mask), mean).min() > 0.99  # close to the mean at the start


def test_it_is_a_part_of_checkpoints_and_fingerprints(backbone: Backbone, tmp_path: Path) -> None:
    plain = backbone.fingerprint
    head = PrototypeHead(HeadConfig(dim=24, prototypes=2))
    without = save_checkpoint(tmp_path / "without", head, backbone, with_backbone=True)
    backbone.temporal = start_temporal(backbone.model, backbone.dim, layers=2, seed=1)
    folder = save_checkpoint(tmp_path / "with", head, backbone, with_backbone=True)
    assert load_checkpoint(without).backbone.temporal is None
    loaded = load_checkpoint(folder).backbone
    assert loaded.fingerprint == backbone.compute_fingerprint() != plain
    frames, mask = draw_clips()
    assert loaded.temporal is not None
    assert torch.equal(loaded.temporal.pool(frames, mask), backbone.temporal.pool(frames, mask))
    # an audit names the encoders of a checkpoint like this; a head of them finds them
    assert load_model(loaded.spec).backbone.fingerprint == loaded.fingerprint
    thin = save_checkpoint(tmp_path / "thin", head, loaded)
    assert load_checkpoint(thin).backbone.temporal is not None
    with torch.no_grad():
        backbone.temporal.positions.add_(0.1)
    assert backbone.compute_fingerprint() != loaded.fingerprint


@pytest.mark.parametrize("damage", ["gone", "short", "heads", "width"])
def test_a_damaged_one_is_one_line(backbone: Backbone, tmp_path: Path, damage: str) -> None:
    backbone.temporal = start_temporal(backbone.model, backbone.dim, layers=2, seed=1)
    folder = save_checkpoint(tmp_path / "pau", PrototypeHead(HeadConfig(dim=24)), backbone, with_backbone=True)
    path = folder / "temporal.safetensors"
    if damage == "gone":
        path.unlink()
    elif damage == "short":
        path.write_bytes(path.read_bytes()[:-100])
    elif damage == "width":
        save_file(TemporalTransformer(32, 2, 1).state_dict(), path)
    else:
        config = json.loads((folder / "open_clip_config.json").read_text())
        (folder / "open_clip_config.json").write_text(json.dumps({**config, "temporal_cfg": {"heads": 7}}))
    with pytest.raises(TemporalError) as error:
        load_checkpoint(folder)
    assert "\n" not in str(error.value)


# ------------------------------------------------------------------------- the oracle: the authors' program, run on CPU

HEAD_WIDTHS = {"": 16, "_heads1": 64}  # four heads, and as the program derives them
DTYPES = {"": (torch.float32, 1e-5), "_f64": (torch.float64, 1e-10)}


@cache
def read_arrays(oracle: Path, name: str) -> dict[str, Any]:
    return dict(np.load(oracle / f"video_seqtransf_{name}_n10_f6.npz"))


@pytest.fixture(scope="module")
def oracle(shared: Path) -> Path:
    if not (shared / "oracle" / "video_seqtransf_config.json").is_file():
        pytest.skip(f"no parity vectors of seqTransf in {shared / 'oracle'}")
    return shared / "oracle"


@pytest.mark.parametrize("precision", DTYPES)
@pytest.mark.parametrize("heads", HEAD_WIDTHS)
def test_the_released_program(oracle: Path, tmp_path: Path, heads: str, precision: str) -> None:
    """Forward pass, u, losses and gradients of an imported checkpoint, for the inputs of the program."""
    config = json.loads((oracle / "video_seqtransf_config.json").read_text())
    (dtype, tolerance), suffix = DTYPES[precision], precision.replace("_", "__")
    shutil.copy(oracle / "video_seqtransf_state_dict.safetensors", tmp_path / "released.safetensors")
    import_checkpoint(tmp_path / "released.safetensors", tmp_path / "pau", config["tau"], HEAD_WIDTHS[heads])
    loaded = load_checkpoint(tmp_path / "pau")
    backbone, head, temporal = loaded.backbone, loaded.head, loaded.backbone.temporal
    assert head is not None and temporal is not None and temporal.layers == config["cross_num_hidden_layers"]
    for module in (backbone.model, head, temporal):
        module.to(dtype)
    inputs, expected = read_arrays(oracle, "forward"), read_arrays(oracle, f"forward{heads}")
    video, mask = torch.from_numpy(inputs["video"]).to(dtype), torch.from_numpy(inputs["video_mask"]).bool()
    frames = backbone.model.encode_image(video.flatten(0, 1)).unflatten(0, mask.shape)
    sentence = encode_trimmed_tokens(find_causal_tower(backbone.model), torch.from_numpy(inputs["input_ids"]))
    after, visual, text = temporal(frames, mask), temporal.pool(frames, mask), F.normalize(sentence, dim=-1)
    scale = backbone.model.logit_scale.exp()
    terms = compute_released_terms(visual, frames, text, head, scale)
    outputs = {
        "frame_emb": frames,
        "transformer_in": frames + temporal.positions[: mask.shape[1]],
        "transformer_out": after - frames,
        "frame_emb_after": after,
        "frame_vec": F.normalize(frames, dim=-1),
        "video_vec": visual,
        "sent_emb": sentence,
        "sent_vec": text,
        "video_sentence_logits": scale * text @ visual.T,
        "best_frame_logits": 2 * terms.logits.T - scale * text @ visual.T,
        "logits": terms.logits.T,
        "vhub_logits": scale * visual @ F.normalize(head.text, dim=-1).T,
        "thub_logits": scale * text @ F.normalize(head.visual, dim=-1).T,
        "vu": terms.u_visual[:, None],
        "tu": terms.u_text[:, None],
    }
    compared = [name for name in outputs if f"{name}{precision}" in expected]
    assert {"video_vec", "sent_vec", "logits", "vu", "tu"} <= set(compared)
    for name in compared:
        np.testing.assert_allclose(
            outputs[name].detach(), expected[f"{name}{precision}"], rtol=tolerance, atol=tolerance, err_msg=name
        )
    # The paper leaves padded frames out of the maximum, and so does everything but the released loss.
    ours = similarity_matrix(visual, frames, mask, text)
    assert (scale * ours - terms.logits)[mask.all(dim=1)].abs().max() < tolerance
    assert (scale * ours - terms.logits)[~mask.all(dim=1)].abs().max() > 1e-3

    losses = read_arrays(oracle, f"loss{heads}")
    parts = {"sim_loss": terms.similarity, "uct_loss": terms.uncertainty, "div_loss": terms.diversity}
    weights = {"sim_loss": config["lambda1"], "uct_loss": config["lambda2"], "div_loss": config["lambda3"]}
    total = torch.stack([weights[name] * part for name, part in parts.items()]).sum()
    for name, part in (*parts.items(), ("total_loss", total)):
        assert part.item() == pytest.approx(float(losses[f"{name}{suffix}"]), rel=tolerance, abs=tolerance)
    parameters = collect_by_released_key(backbone, head)
    gradients = torch.autograd.grad(total, list(parameters.values()), retain_graph=True)
    norms = dict(zip(losses["all_param_names"].tolist(), losses[f"all_param_gradnorm_total{suffix}"], strict=True))
    assert {name for name, norm in norms.items() if not np.isnan(norm)} == set(parameters)
    for name, gradient in zip(parameters, gradients, strict=True):
        assert gradient.norm().item() == pytest.approx(norms[name], rel=tolerance, abs=tolerance), name
        full = losses.get(f"grad__total_loss__{name}{suffix}")
        if full is not None:
            np.testing.assert_allclose(gradient, full, rtol=tolerance, atol=tolerance, err_msg=name)
    for name, part in parts.items():
        key = f"gradnorm__weighted_{name}__t_prototype{suffix}"
        (gradient,) = torch.autograd.grad(weights[name] * part, head.text, retain_graph=True, allow_unused=True)
        norm = 0.0 if gradient is None else gradient.norm().item()
        assert norm == pytest.approx(float(np.nan_to_num(losses[key])), rel=tolerance, abs=tolerance)


def collect_by_released_key(backbone: Backbone, head: PrototypeHead) -> dict[str, torch.Tensor]:
    assert backbone.temporal is not None
    temporal = dict(backbone.temporal.named_parameters())
    return {
        **{f"clip.{name}": parameter for name, parameter in backbone.model.named_parameters()},
        "frame_position_embeddings.weight": temporal.pop("positions"),
        **{f"transformerClip.{name}": parameter for name, parameter in temporal.items()},
        "v_prototype": head.visual,
        "t_prototype": head.text,
    }
