"""Evidence and uncertainty: the closed form, three evidence functions, extreme values, and the oracle."""

from pathlib import Path

import numpy as np
import pytest
import torch

from model.evidence import EvidenceError, dirichlet_uncertainty


def naive(logits: torch.Tensor, evidence: str, tau: float = 5.0) -> torch.Tensor:
    """u exactly as printed in equations 2, 3 and 9-11."""
    if evidence == "exp":
        e = torch.exp(logits / tau)
    elif evidence == "softplus":
        e = torch.where(logits <= 20, torch.log(1 + torch.exp(logits.clamp(max=20))), logits)
    else:
        e = torch.where(logits <= 0, torch.zeros_like(logits), logits)
    strength = (e + 1).sum(dim=1)
    return 1 - logits.shape[1] / strength


@pytest.mark.parametrize("evidence", ["exp", "softplus", "relu"])
@pytest.mark.parametrize("prototypes", [1, 2, 8, 33])
def test_u_is_that_of_the_printed_equations(evidence: str, prototypes: int) -> None:
    logits = 60 * (torch.rand(50, prototypes, dtype=torch.float64, generator=torch.manual_seed(0)) - 0.5)
    torch.testing.assert_close(dirichlet_uncertainty(logits, evidence), naive(logits, evidence), rtol=1e-10, atol=1e-12)


def test_tau_sharpens_exponential_evidence_and_nothing_else() -> None:
    logits = torch.tensor([[3.0, -1.0]])
    assert dirichlet_uncertainty(logits, tau=1.0) > dirichlet_uncertainty(logits, tau=5.0)
    assert dirichlet_uncertainty(logits, "relu", tau=1.0) == dirichlet_uncertainty(logits, "relu", tau=5.0)


def test_without_evidence_u_is_one_half_for_exp_and_zero_for_relu() -> None:
    assert dirichlet_uncertainty(torch.zeros(1, 8)).item() == pytest.approx(0.5)
    assert dirichlet_uncertainty(torch.zeros(1, 8), "relu").item() == 0.0


@pytest.mark.parametrize("evidence", ["exp", "softplus", "relu"])
@pytest.mark.parametrize("size", [1e3, 1e6, 3e38, float("inf")])
def test_huge_logits_stay_numbers_with_finite_gradients(evidence: str, size: float) -> None:
    logits = torch.tensor([[size] * 4, [-size] * 4, [size, -size, 0.0, 1.0]], requires_grad=True)
    u = dirichlet_uncertainty(logits, evidence)
    assert u[0] > 0.99 and u[1] < 1e-6
    assert torch.isfinite(u).all() and (u >= 0).all() and (u <= 1).all()
    u.sum().backward()
    assert logits.grad is not None and torch.isfinite(logits.grad).all()


def test_half_precision_is_computed_in_single() -> None:
    logits = torch.randn(20, 8, generator=torch.manual_seed(0)) * 20
    half = dirichlet_uncertainty(logits.half())
    assert half.dtype == torch.float32
    torch.testing.assert_close(half, dirichlet_uncertainty(logits.half().float()))


def test_closed_form_gradient_is_that_of_the_naive_one() -> None:
    logits = torch.randn(6, 8, dtype=torch.float64, generator=torch.manual_seed(1), requires_grad=True)
    (fast,) = torch.autograd.grad(dirichlet_uncertainty(logits).square().sum(), logits)
    (slow,) = torch.autograd.grad(naive(logits, "exp").square().sum(), logits)
    torch.testing.assert_close(fast, slow)


def test_nonsense_is_refused() -> None:
    with pytest.raises(EvidenceError, match="exp, softplus, relu"):
        dirichlet_uncertainty(torch.zeros(1, 2), "sigmoid")
    with pytest.raises(EvidenceError, match="tau"):
        dirichlet_uncertainty(torch.zeros(1, 2), tau=0.0)
    with pytest.raises(EvidenceError, match="at least one prototype"):
        dirichlet_uncertainty(torch.zeros(3, 0))


@pytest.mark.parametrize("name", ["itm_loss_n16_d32_k8", "video_loss_n16_f12_d32_k8"])
def test_uncertainty_of_the_released_program(shared: Path, name: str) -> None:
    data = np.load(shared / "oracle" / f"{name}.npz")
    if "vhub_logits" in data:
        pairs = [("vu", data["vhub_logits"]), ("tu", data["thub_logits"])]
    else:  # the video file keeps Dirichlet parameters: alpha = exp(logit / tau) + 1
        pairs = [(u, float(data["tau"]) * np.log(data[a] - 1)) for u, a in (("vu", "v_alpha"), ("tu", "t_alpha"))]
    for expected, logits in pairs:
        found = dirichlet_uncertainty(torch.from_numpy(logits), tau=float(data["tau"]))
        np.testing.assert_allclose(found.numpy(), data[expected][:, 0], rtol=0, atol=1e-9)
