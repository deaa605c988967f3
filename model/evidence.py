"""The uncertainty u = 1 - K/S of an instance, from its evidence for K prototypes.

An instance is compared with the K prototypes of the other modality. Each scaled similarity ("logit") becomes evidence
e_k (appendix B of the paper); then alpha_k = e_k + 1 and the Dirichlet strength S is the sum of alpha (equations 2 and
3). u is computed from means and log-sums, so logits of any size give a value between 0 and 1.
"""

from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from model.model_errors import ModelError

EvidenceFunction = Literal["exp", "softplus", "relu"]
EVIDENCE_FUNCTIONS: tuple[str, ...] = get_args(EvidenceFunction)

SOFTPLUS_GAMMA = 1.0
SOFTPLUS_THRESHOLD = 20.0


class EvidenceError(ModelError):
    """An unknown evidence function, or logits of the wrong shape."""


def check_evidence(evidence: str, tau: float) -> None:
    if evidence not in EVIDENCE_FUNCTIONS:
        raise EvidenceError(f"evidence must be one of {', '.join(EVIDENCE_FUNCTIONS)}, not {evidence!r}")
    if not 0.0 < tau < float("inf"):
        raise EvidenceError(f"tau must be a positive number, not {tau}")


def prepare_logits(logits: Tensor, evidence: str, tau: float) -> Tensor:
    """Check the arguments and return the logits in at least single precision, clamped to its finite range."""
    check_evidence(evidence, tau)
    if logits.ndim < 1 or logits.shape[-1] == 0:
        raise EvidenceError(f"evidence needs similarities to at least one prototype, not shape {tuple(logits.shape)}")
    if logits.dtype != torch.float64:  # half precision would round u to three digits
        logits = logits.float()
    limit = torch.finfo(logits.dtype).max
    return logits.clamp(-limit, limit)


def dirichlet_uncertainty(logits: Tensor, evidence: str = "exp", tau: float = 5.0) -> Tensor:
    """u = 1 - K/S (equation 3) for `logits` (N, K), the scaled similarities to the prototypes. Returns (N,).

    With m = mean_k e_k, u = m / (1 + m); for exponential evidence that is sigmoid(log m). `tau` is the temperature
    of exponential evidence only.
    """
    logits = prepare_logits(logits, evidence, tau)
    if evidence == "exp":
        count = logits.new_tensor(float(logits.shape[-1]))
        return torch.sigmoid(torch.logsumexp(logits / tau, dim=-1) - torch.log(count))
    # Softplus (equation 10) and ReLU (equation 9) grow linearly with the logits and stay finite.
    e = F.relu(logits) if evidence == "relu" else F.softplus(logits, beta=SOFTPLUS_GAMMA, threshold=SOFTPLUS_THRESHOLD)
    mean = (e / e.shape[-1]).sum(dim=-1)  # divided before it is summed, so that it cannot overflow
    return mean / (1.0 + mean)
