"""Initial prototypes from which u can reach its target, for any geometry of the embeddings.

The target u = sigmoid(z) needs a certain logit, `scale * cos`, which is linear in a unit embedding x. So ridge
regression gives the direction w with `scale * w.x` closest to the target logits. All K prototypes share it. The
remainder of their unit length points to the corners of a simplex in the directions of least variance, which keeps the
prototypes apart and adds little noise. If the target is not linear, each prototype also leans towards one instance of
high u: prototypes that differ in no direction of the data would get the same gradients, and training would stall.

If both modalities share a strong mean direction, no unit vector gives logits around zero. Only then are cosines
measured from a center (`HeadConfig.center_visual`, `center_text`). If embeddings hardly vary, the scale is raised too.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from model.evidence import dirichlet_uncertainty
from model.prototypes import HeadConfig

MAX_SHARED_LENGTH = 0.7  # of a prototype's unit length, in the shared direction; its square bounds the overlap
# Share of the target's variance that initial prototypes may leave unexplained, because training improves on it.
# The plain form of the paper is preferred: it may start with a larger misfit.
MAX_PLAIN_MISFIT = 0.15
MAX_CENTERED_MISFIT = 0.06
EVALUATION_ROWS = 4096  # instances on which the misfit is measured
LEAN = 0.2  # length of the part towards an instance
MIN_ROWS_FOR_HOLD_OUT = 400  # with fewer instances none is held out
SCALE_FACTORS = (1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0, 11.0, 16.0, 32.0, 64.0)  # of the configured scale


@dataclass(frozen=True)
class InitialPrototypes:
    """Initial bank for the instances of one modality, the center of their cosines, and the misfit of u."""

    bank: Tensor  # (K, D)
    center: float
    misfit: float


@dataclass(frozen=True)
class RidgeRegression:
    """scale * w.x = y in the eigenbasis of the second moments of x, or of its covariance if it is centered."""

    values: Tensor  # (D,) ascending, float64
    vectors: Tensor  # (D, D) in columns
    product: Tensor  # (D,) E[x y]

    @staticmethod
    def from_moments(moments: Tensor, product: Tensor) -> "RidgeRegression":
        values, vectors = torch.linalg.eigh(moments)
        return RidgeRegression(values.clamp(min=0.0), vectors, vectors.T @ product)

    def solve(self, scale: float) -> Tensor:
        """Ridge solution w (D,), no longer than MAX_SHARED_LENGTH."""

        def solution(ridge: float) -> Tensor:
            return scale * self.product / (scale**2 * self.values + ridge)

        low, high = 1e-6 * scale**2 * float(self.values.max()) + 1e-12, 1e6 * scale**2
        if float(solution(low).norm()) <= MAX_SHARED_LENGTH:
            return self.vectors @ solution(low)
        for _ in range(60):  # bisection on the exponent: the length falls as the ridge grows
            middle = (low * high) ** 0.5
            low, high = (low, middle) if float(solution(middle).norm()) <= MAX_SHARED_LENGTH else (middle, high)
        return self.vectors @ solution(high)


class PrototypeInitializer:
    """Computes initial prototypes for instances (N, D) of one modality whose u should be sigmoid(z), z of shape (N,).

    If z is not a `linear` function of the embeddings, the regression can fit noise. Then the misfit is measured on
    instances that are held out.
    """

    def __init__(self, embeddings: Tensor, z: Tensor, config: HeadConfig, bank: Tensor, *, linear: bool = True) -> None:
        self.config, self.random_bank = config, bank.detach().double()
        held_out = 0 if linear or len(z) < MIN_ROWS_FOR_HOLD_OUT else min(EVALUATION_ROWS, len(z) // 4)
        self.sample = embeddings[: held_out or EVALUATION_ROWS]
        self.target = torch.sigmoid(z[: held_out or EVALUATION_ROWS])
        embeddings, z = embeddings[held_out:], z[held_out:]
        logits = compute_target_logits(z, config)
        self.mean_logit = float(logits.double().mean())
        self.mean = embeddings.mean(dim=0, dtype=torch.float64)
        self.product = (embeddings.T @ logits).double() / len(embeddings)
        self.moments = (embeddings.T @ embeddings).double() / len(embeddings)
        self.plain = RidgeRegression.from_moments(self.moments, self.product)
        self.centered: RidgeRegression | None = None
        self.leaning: Tensor | None = None  # (K, D)
        if not linear:
            generator = torch.Generator().manual_seed(len(z))
            chosen = torch.multinomial(torch.sigmoid(2 * z).cpu(), len(bank), replacement=True, generator=generator)
            self.leaning = LEAN * F.normalize(embeddings[chosen.to(z.device)].double() - self.mean, dim=1)

    def initialize(self, scale: float, centered: bool) -> InitialPrototypes:
        shared = self._regression(centered).solve(scale)
        bank = self._bank(shared)
        center = float(shared @ self.mean) - self.mean_logit / scale if centered else 0.0
        return InitialPrototypes(bank, center, self._misfit(bank, scale, center))

    def _regression(self, centered: bool) -> RidgeRegression:
        if not centered:
            return self.plain
        if self.centered is None:
            covariance = self.moments - torch.outer(self.mean, self.mean)
            self.centered = RidgeRegression.from_moments(covariance, self.product - self.mean_logit * self.mean)
        return self.centered

    def _bank(self, shared: Tensor) -> Tensor:
        """Unit prototypes (K, D) around the shared direction (D,). The random bank chooses the corners."""
        count, dim = self.random_bank.shape
        quiet = self.plain.vectors[:, : max(count + 1, dim // 4)]  # directions of least variance
        corners = (self.random_bank @ quiet) @ quiet.T
        unit = shared / shared.norm().clamp(min=1e-12)
        corners = corners - (corners @ unit)[:, None] * unit
        if count <= dim:
            corners = torch.linalg.qr(corners.T).Q.T
        if count > 1:
            corners = corners - corners.mean(dim=0)
        corners = corners / corners.norm(dim=1, keepdim=True).clamp(min=1e-12)
        remaining_length = (1.0 - shared.square().sum()).clamp(min=0.0).sqrt()
        bank: Tensor = shared + remaining_length * corners
        return bank if self.leaning is None else F.normalize(bank + self.leaning, dim=1)

    def _misfit(self, bank: Tensor, scale: float, center: float) -> float:
        """Mean square of u - target as a share of the variance of the target."""
        variance = float(self.target.var(correction=0))
        if variance < 1e-9:
            return 0.0
        logits = scale * (self.sample @ bank.to(self.sample.dtype).T - center)
        u = dirichlet_uncertainty(logits, self.config.evidence, self.config.tau)
        return float((u - self.target).square().mean()) / variance


def compute_target_logits(z: Tensor, config: HeadConfig) -> Tensor:
    """The logit that gives u = sigmoid(z) if all prototypes have it: the inverse of the evidence function."""
    if config.evidence == "exp":
        return config.tau * z
    evidence = z.exp()
    return evidence if config.evidence == "relu" else torch.log(torch.expm1(evidence))


def choose_initial_prototypes(
    visual: PrototypeInitializer, text: PrototypeInitializer, scale: float
) -> tuple[float, InitialPrototypes, InitialPrototypes]:
    """Scale and initial prototypes: the configured scale without centers if that fits, else the smallest change."""
    steps = [(False, 1.0, MAX_PLAIN_MISFIT), *((True, factor, MAX_CENTERED_MISFIT) for factor in SCALE_FACTORS)]
    attempts = []
    for centered, factor, max_misfit in steps:
        banks = visual.initialize(scale * factor, centered), text.initialize(scale * factor, centered)
        misfit = max(bank.misfit for bank in banks)
        attempts.append((misfit, scale * factor, *banks))
        if misfit <= max_misfit:
            return attempts[-1][1:]
    return min(attempts, key=lambda attempt: attempt[0])[1:]
