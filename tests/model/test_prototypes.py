"""The head: the bank that an instance is compared with, seeded initialization, and rejected settings."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from model.evidence import dirichlet_uncertainty
from model.model_errors import ModelError
from model.prototypes import INITIALIZATIONS, HeadConfig, HeadError, PrototypeHead, compute_prototype_overlap


def test_an_instance_faces_the_prototypes_of_the_other_modality() -> None:
    head = PrototypeHead(HeadConfig(dim=3, prototypes=2))
    with torch.no_grad():
        head.visual.copy_(torch.tensor([[2.0, 0, 0], [3.0, 0, 0]]))
        head.text.copy_(torch.tensor([[0, 5.0, 0], [0, 1.0, 0]]))
    instance = torch.tensor([[0.0, 7.0, 0.0]])  # along the text prototypes
    torch.testing.assert_close(head.logits_visual(instance), torch.tensor([[100.0, 100.0]]))
    torch.testing.assert_close(head.logits_text(instance), torch.tensor([[0.0, 0.0]]))
    assert head.uncertainty_visual(instance) > 0.999
    assert head.uncertainty_text(instance).item() == pytest.approx(0.5)


@pytest.mark.parametrize("init", INITIALIZATIONS)
def test_initialization_follows_the_seed(init: str) -> None:
    config = HeadConfig(dim=32, init=init)
    one, same, other = PrototypeHead(config, seed=1), PrototypeHead(config, seed=1), PrototypeHead(config, seed=2)
    assert one.fingerprint == same.fingerprint != other.fingerprint
    assert not torch.equal(one.visual, one.text)
    assert one.visual.shape == (8, 32)


def test_initializations_have_their_moments() -> None:
    banks = {
        init: PrototypeHead(HeadConfig(dim=512, prototypes=64, init=init)).visual.detach() for init in INITIALIZATIONS
    }
    assert banks["xavier"].abs().max() <= (6 / (64 + 512)) ** 0.5
    assert banks["xavier"].std().item() == pytest.approx((2 / (64 + 512)) ** 0.5, rel=0.05)
    assert banks["kaiming_uniform"].abs().max() <= (6 / 512) ** 0.5
    assert banks["kaiming_normal"].std().item() == pytest.approx((2 / 512) ** 0.5, rel=0.05)
    torch.testing.assert_close(banks["orthogonal"] @ banks["orthogonal"].T, torch.eye(64), atol=1e-5, rtol=0)
    assert compute_prototype_overlap(banks["orthogonal"]) < 1e-5


def test_building_a_head_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    PrototypeHead(HeadConfig(dim=8))
    assert torch.equal(torch.rand(1), expected)


def test_logits_of_the_released_program(shared: Path) -> None:
    data = np.load(shared / "oracle" / "itm_loss_n16_d32_k8.npz")
    head = PrototypeHead(HeadConfig(dim=32, scale=float(data["logit_scale"]))).double()
    with torch.no_grad():
        head.visual.copy_(torch.from_numpy(data["v_prototype"]))
        head.text.copy_(torch.from_numpy(data["t_prototype"]))
    found = head.logits_visual(torch.from_numpy(data["img_feats"])).detach().numpy()
    np.testing.assert_allclose(found, data["vhub_logits"], atol=1e-9)
    found = head.uncertainty_text(torch.from_numpy(data["txt_feats"])).detach().numpy()
    np.testing.assert_allclose(found, data["tu"][:, 0], atol=1e-9)


def test_half_precision_embeddings_are_accepted() -> None:
    head = PrototypeHead(HeadConfig(dim=8))
    x = F.normalize(torch.randn(4, 8, generator=torch.manual_seed(0)), dim=-1).half()
    torch.testing.assert_close(head.uncertainty_visual(x), head.uncertainty_visual(x.float()))
    assert torch.isfinite(head.uncertainty_visual(torch.zeros(1, 8))).all()


def test_the_evidence_function_of_the_settings_is_used() -> None:
    head = PrototypeHead(HeadConfig(dim=8, evidence="softplus"))
    x = torch.randn(4, 8, generator=torch.manual_seed(0))
    torch.testing.assert_close(head.uncertainty_visual(x), dirichlet_uncertainty(head.logits_visual(x), "softplus"))
    torch.testing.assert_close(head.uncertainty_text(x), dirichlet_uncertainty(head.logits_text(x), "softplus"))


def test_overlap_of_equal_prototypes_is_one() -> None:
    assert compute_prototype_overlap(torch.ones(3, 4)) == pytest.approx(1.0)
    assert compute_prototype_overlap(torch.ones(1, 4)) == 0.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dim": 0}, "dim must be"),
        ({"dim": 8, "prototypes": 2.5}, "prototypes must be"),
        ({"dim": 8, "init": "zeros"}, "init must be one of xavier"),
        ({"dim": 8, "scale": -1.0}, "scale must be"),
        ({"dim": 8, "evidence": "tanh"}, "evidence must be"),
        ({"dim": 8, "colour": "red"}, "unknown setting of a head: colour"),
        ({}, "need its embedding width"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        HeadConfig.from_dict(settings)


def test_embeddings_of_another_width_are_refused() -> None:
    with pytest.raises(HeadError, match="width 8"):
        PrototypeHead(HeadConfig(dim=8)).uncertainty_text(torch.zeros(2, 9))


def test_the_evidence_of_a_clip_comes_from_its_valid_frames() -> None:
    generator = torch.manual_seed(0)
    frames = F.normalize(torch.randn(4, 3, 8, generator=generator), dim=2)
    mask = torch.tensor([[True, True, True], [True, True, False], [True, False, False], [False, False, False]])
    visual = F.normalize(torch.randn(4, 8, generator=generator), dim=1)
    visual[2] = frames[2, 0]
    old = PrototypeHead(HeadConfig(dim=8, prototypes=5, center_visual=0.1))
    head = PrototypeHead(HeadConfig(dim=8, prototypes=5, center_visual=0.1, clip_evidence="frames"))
    logits = head.logits_visual(visual, frames, mask)
    by_frame = 100 * (frames[1, :2] @ F.normalize(head.text, dim=1).T - 0.1)
    torch.testing.assert_close(logits[1], 2 * by_frame.amax(dim=0) - by_frame.mean(dim=0))
    torch.testing.assert_close(logits[2:], old.logits_visual(visual)[2:])  # one frame; an image
    torch.testing.assert_close(old.logits_visual(visual, frames, mask), old.logits_visual(visual))
    torch.testing.assert_close(head.logits_visual(visual, frames)[0], logits[0])
    logits.sum().backward()
    assert head.text.grad is not None and torch.isfinite(head.text.grad).all()


def test_heads_made_before_clips_had_evidence_keep_their_fingerprints() -> None:
    old = HeadConfig(dim=8)
    assert "clip_evidence" not in old.to_dict() and HeadConfig.from_dict(old.to_dict()).clip_evidence == "mean"
    new = HeadConfig(dim=8, clip_evidence="frames")
    assert HeadConfig.from_dict(new.to_dict()) == new
    assert PrototypeHead(old).fingerprint != PrototypeHead(new).fingerprint
    with pytest.raises(HeadError, match="clip_evidence must be mean or frames, not 'best'"):
        HeadConfig(dim=8, clip_evidence="best")
