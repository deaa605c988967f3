"""Losses compared with the printed equations, with autograd of the plain form, and with the released program."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from model.losses import LossError, compute_mean_similarities, diversity_loss, info_nce, uncertainty_loss
from model.prototypes import HeadConfig, PrototypeHead
from model.similarity import pool_frames, similarity_matrix
from model.training.released_objective import compute_released_terms


def leaf(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.manual_seed(seed), requires_grad=True)


def test_info_nce_is_the_mean_of_both_directions() -> None:
    logits = leaf(5, 5, seed=0).detach()
    rows = -torch.log(torch.softmax(logits, dim=1).diagonal()).mean()
    columns = -torch.log(torch.softmax(logits, dim=0).diagonal()).mean()
    torch.testing.assert_close(info_nce(logits), (rows + columns) / 2)


def test_lambda_is_a_constant_of_the_batch_by_default() -> None:
    u = torch.rand(9, dtype=torch.float64, generator=torch.manual_seed(0), requires_grad=True)
    h = torch.rand(9, dtype=torch.float64, generator=torch.manual_seed(1))
    ratio = (u.mean() / h.mean()).item()
    torch.testing.assert_close(uncertainty_loss(u, h), ((u - ratio * h) ** 2).mean())
    (default,) = torch.autograd.grad(uncertainty_loss(u, h), u)
    (fixed,) = torch.autograd.grad(uncertainty_loss(u, h, lam=ratio), u)
    (through,) = torch.autograd.grad(uncertainty_loss(u, h, detach=False), u)
    torch.testing.assert_close(default, fixed)
    assert not torch.allclose(default, through)
    # With a gradient through lambda, shrinking u lowers the loss for any h: the trivial minimum.
    assert uncertainty_loss(0.1 * u, h) < 0.02 * uncertainty_loss(u, h)
    assert (through * u).sum().item() > 0


def test_a_fixed_lambda_is_used_as_it_is() -> None:
    u, h = torch.tensor([0.5, 0.7]), torch.tensor([0.2, 0.4])
    assert uncertainty_loss(u, h, lam=2.0).item() == pytest.approx((0.1**2 + 0.1**2) / 2, rel=1e-5)


def test_diversity_is_the_mean_square_of_all_cosines() -> None:
    bank = leaf(4, 6, seed=5)
    cosines = [[torch.cosine_similarity(a, b, dim=0).item() ** 2 for a in bank] for b in bank]
    assert diversity_loss(bank).item() == pytest.approx(np.mean(cosines))
    assert diversity_loss(torch.eye(4)).item() == pytest.approx(1 / 4)
    assert diversity_loss(torch.ones(4, 6)).item() == pytest.approx(1.0)


def test_mean_similarities_are_row_and_column_means() -> None:
    matrix = torch.arange(6.0).reshape(2, 3)
    rows, columns = compute_mean_similarities(matrix)
    assert rows.tolist() == [1.0, 4.0] and columns.tolist() == [1.5, 2.5, 3.5]


def test_tensors_that_do_not_belong_together_are_refused() -> None:
    with pytest.raises(LossError, match="square"):
        info_nce(torch.zeros(2, 3))
    with pytest.raises(LossError, match="same instances"):
        uncertainty_loss(torch.zeros(2), torch.zeros(3))


@pytest.fixture
def oracle(shared: Path) -> dict[str, Any]:
    return dict(np.load(shared / "oracle" / "itm_loss_n16_d32_k8.npz"))


def test_losses_and_gradients_of_the_released_program(oracle: dict[str, Any]) -> None:
    names = ["img_feats", "txt_feats", "v_prototype", "t_prototype"]
    leaves = {name: torch.from_numpy(oracle[name]).requires_grad_() for name in names}
    leaves["logit_scale_log"] = torch.tensor(float(np.log(oracle["logit_scale"])), dtype=torch.float64).requires_grad_()
    head = PrototypeHead(HeadConfig(dim=32, prototypes=8, tau=float(oracle["tau"])))
    head.visual, head.text = (torch.nn.Parameter(leaves[name].detach()) for name in ("v_prototype", "t_prototype"))
    leaves |= {"v_prototype": head.visual, "t_prototype": head.text}
    visual, text = (F.normalize(leaves[name], dim=-1) for name in ("img_feats", "txt_feats"))
    # a picture is a clip of one frame
    terms = compute_released_terms(visual, visual[:, None], text, head, leaves["logit_scale_log"].exp())
    mean = (float(oracle["uct_loss_v"]) + float(oracle["uct_loss_t"])) / 2
    for found, expected in [
        (terms.similarity, float(oracle["sim_loss"])),
        (terms.uncertainty, mean),
        (terms.diversity, float(oracle["var_loss"])),
    ]:
        assert found.item() == pytest.approx(expected, abs=1e-9 * max(1.0, expected))
    uct = float(oracle["uct_weight"]) * terms.uncertainty
    total = terms.similarity + uct + float(oracle["var_weight"]) * terms.diversity
    assert total.item() == pytest.approx(float(oracle["total_loss"]), abs=1e-8)
    for loss, prefix in [(uct, "grad_uctw__"), (total, "grad_total__")]:
        for name, gradient in zip(leaves, torch.autograd.grad(loss, leaves.values(), retain_graph=True), strict=True):
            np.testing.assert_allclose(gradient.numpy(), oracle[prefix + name], rtol=1e-8, atol=1e-9)


def test_where_the_released_losses_differ_from_ours(oracle: dict[str, Any]) -> None:
    """The plain mean (equation 6) includes the true pair, so our L_uct has another value on the same tensors."""
    cosines = torch.from_numpy(oracle["i2t_logits"]) / float(oracle["logit_scale"])
    ours = uncertainty_loss(torch.from_numpy(oracle["vu"][:, 0]), compute_mean_similarities(cosines)[0])
    assert abs(ours.item() - float(oracle["uct_loss_v"])) > 1e-3
    bank = torch.from_numpy(oracle["v_prototype"])
    assert 1 / 8 <= diversity_loss(bank).item() <= 1.0 < float(oracle["var_loss"])


def test_video_losses_of_the_released_program(shared: Path) -> None:
    data = np.load(shared / "oracle" / "video_loss_n16_f12_d32_k8.npz")
    frames, mask = torch.from_numpy(data["frame_feats"]), torch.from_numpy(data["frame_mask"]).bool()
    text, scale = torch.from_numpy(data["txt_feats"]), float(data["logit_scale"])
    visual = pool_frames(frames, mask)
    logits = scale * similarity_matrix(visual, frames, mask, text)
    assert info_nce(logits).item() == pytest.approx(float(data["sim_loss"]), abs=1e-9)
    h_visual, h_text = compute_mean_similarities(logits - torch.diag(logits.diagonal()))
    for u, h, name in [("vu", h_visual, "uct_loss_v"), ("tu", h_text, "uct_loss_t")]:
        found = uncertainty_loss(torch.from_numpy(data[u][:, 0]), h)
        assert found.item() == pytest.approx(float(data[name]), abs=1e-9)
