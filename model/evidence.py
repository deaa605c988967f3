"""From similarities to an opinion: evidence, Dirichlet strength, belief masses and the uncertainty u = 1 - K/S.

An instance is compared with the K prototypes of the other modality; each scaled similarity ("logit") becomes evidence
e_k (appendix B of the paper), alpha_k = e_k + 1, S = sum of alpha, b_k = e_k / S, psi = K / S (equations 2 and 3).
Everything is computed from means and log-sums, so that logits of any size give a number between 0 and 1.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from model.model_errors import ModelError

Evidence = Literal["exp", "softplus", "relu"]
EVIDENCES: tuple[str, ...] = get_args(Evidence)

SOFTPLUS_GAMMA = 1.0
SOFTPLUS_THRESHOLD = 20.0


class EvidenceError(ModelError):
    """An evidence function that does not exist, or similarities that no opinion can be formed of."""


@dataclass(frozen=True, slots=True)
class Opinion:
    """A subjective-logic opinion on each instance: `belief` and `psi` sum to one, `uncertainty` is 1 - psi."""

    belief: Tensor  # (N, K)
    psi: Tensor  # (N,)
    uncertainty: Tensor  # (N,)
    strength: Tensor  # (N,) the Dirichlet strength S; inf where it exceeds the floating-point range


def check_evidence(evidence: str, tau: float) -> None:
    """Refuse an evidence function or a temperature that has no meaning."""
    if evidence not in EVIDENCES:
        raise EvidenceError(f"evidence must be one of {', '.join(EVIDENCES)}, not {evidence!r}")
    if not 0.0 < tau < float("inf"):
        raise EvidenceError(f"tau must be a positive number, not {tau}")


def checked(logits: Tensor, evidence: str, tau: float) -> Tensor:
    """The logits in at least single precision and within its finite range."""
    check_evidence(evidence, tau)
    if logits.ndim < 1 or logits.shape[-1] == 0:
        raise EvidenceError(f"evidence needs similarities to at least one prototype, not shape {tuple(logits.shape)}")
    if logits.dtype != torch.float64:  # half precision would round u to three digits
        logits = logits.float()
    limit = torch.finfo(logits.dtype).max
    return logits.clamp(-limit, limit)


def log_mean_exp(logits: Tensor, tau: float) -> Tensor:
    """log of the mean evidence exp(logit / tau) over the prototypes."""
    return torch.logsumexp(logits / tau, dim=-1) - torch.log(logits.new_tensor(float(logits.shape[-1])))


def linear_evidence(logits: Tensor, evidence: str) -> Tensor:
    """Softplus (equation 10) or ReLU (equation 9) evidence: at most as large as the logits, so never infinite."""
    if evidence == "relu":
        return F.relu(logits)
    return F.softplus(logits, beta=SOFTPLUS_GAMMA, threshold=SOFTPLUS_THRESHOLD)


def mean_evidence(e: Tensor) -> Tensor:
    """Mean over the prototypes, divided before it is summed so that it cannot overflow."""
    return (e / e.shape[-1]).sum(dim=-1)


def uncertainty(logits: Tensor, evidence: str = "exp", tau: float = 5.0) -> Tensor:
    """u = 1 - K/S (equation 3) for `logits` (N, K), the scaled similarities to the prototypes. Returns (N,).

    With m = mean_k e_k, u = m / (1 + m); for exponential evidence that is sigmoid(log m). `tau` is the temperature
    of exponential evidence only.
    """
    logits = checked(logits, evidence, tau)
    if evidence == "exp":
        return torch.sigmoid(log_mean_exp(logits, tau))
    mean = mean_evidence(linear_evidence(logits, evidence))
    return mean / (1.0 + mean)


def opinion(logits: Tensor, evidence: str = "exp", tau: float = 5.0) -> Opinion:
    """The full opinion for `logits` (N, K): belief masses, psi, u and the Dirichlet strength (equations 2 and 3)."""
    logits = checked(logits, evidence, tau)
    count = logits.shape[-1]
    if evidence == "exp":
        log_mean = log_mean_exp(logits, tau)
        u, psi = torch.sigmoid(log_mean), torch.sigmoid(-log_mean)
        belief = torch.softmax(logits / tau, dim=-1) * u.unsqueeze(-1)
        return Opinion(belief, psi, u, count * (1.0 + log_mean.exp()))
    e = linear_evidence(logits, evidence)
    mean = mean_evidence(e)
    belief = (e / count) / (1.0 + mean).unsqueeze(-1)
    return Opinion(belief, 1.0 / (1.0 + mean), mean / (1.0 + mean), count * (1.0 + mean))
