"""Where prototypes start so that u can reach its target in any geometry of embeddings.

u = sigmoid(z) needs a certain logit, and a logit is `scale * cos`: linear in a unit embedding x. So the direction w
with `scale * w.x` nearest to the wanted logits is a ridge regression on the moments of the embeddings. All K
prototypes share that direction; the rest of their unit length points to the corners of a simplex in the directions in
which embeddings vary least, where it adds little noise, cancels to first order and keeps the prototypes apart.

Where the two modalities share a strong mean direction no unit vector gives logits around zero; there, and only there,
a start measures cosines from a centre (`HeadConfig.center_visual`, `center_text`), and where embeddings hardly vary
it also raises the scale.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from model.evidence import uncertainty
from model.prototypes import HeadConfig

SHARED = 0.7  # most of a prototype's unit length that may go into the shared direction; its square bounds the overlap
# Share of the target's variance that a start may leave unexplained; learning improves on it. The plain form of the
# paper is preferred, so that it is given more time to learn.
PLAIN_ENOUGH = 0.15
CENTRED_ENOUGH = 0.06
TRIED = 4096  # instances a start is judged by
ENOUGH = 400  # instances; of fewer none is held out
STEPS = (1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0, 11.0, 16.0, 32.0, 64.0)  # factors of the configured scale


@dataclass(frozen=True)
class Start:
    """Prototypes (K, D) that instances of one modality face, the centre of their cosines, and how badly u fits."""

    bank: Tensor
    center: float
    misfit: float


@dataclass(frozen=True)
class Regression:
    """scale * w.x = y in the eigenbasis of the moments of x: second moments, or covariance where it is centred."""

    values: Tensor  # (D,) ascending, float64
    vectors: Tensor  # (D, D) in columns
    product: Tensor  # (D,) E[x y]

    @staticmethod
    def of(moments: Tensor, product: Tensor) -> "Regression":
        values, vectors = torch.linalg.eigh(moments)
        return Regression(values.clamp(min=0.0), vectors, vectors.T @ product)

    def direction(self, scale: float) -> Tensor:
        """Ridge solution w (D,), no longer than SHARED."""

        def solution(ridge: float) -> Tensor:
            return scale * self.product / (scale**2 * self.values + ridge)

        low, high = 1e-6 * scale**2 * float(self.values.max()) + 1e-12, 1e6 * scale**2
        if float(solution(low).norm()) <= SHARED:
            return self.vectors @ solution(low)
        for _ in range(60):  # bisection on the exponent: the length falls as the ridge grows
            middle = (low * high) ** 0.5
            low, high = (low, middle) if float(solution(middle).norm()) <= SHARED else (middle, high)
        return self.vectors @ solution(high)


class Starts:
    """All the starts for the instances (N, D) of one modality whose u should be sigmoid(z), z of shape (N,).

    Where z is no `linear` function of the embeddings, a regression can learn the noise: then starts are judged by
    instances that they were not computed from.
    """

    def __init__(
        self, embeddings: Tensor, z: Tensor, config: HeadConfig, drawn: Tensor, *, linear: bool = True
    ) -> None:
        self.config, self.drawn = config, drawn.detach().double()
        held_out = 0 if linear or len(z) < ENOUGH else min(TRIED, len(z) // 4)
        self.sample = embeddings[: held_out or TRIED]
        self.target = torch.sigmoid(z[: held_out or TRIED])
        embeddings, z = embeddings[held_out:], z[held_out:]
        wanted = wanted_logits(z, config)
        self.mean_logit = float(wanted.double().mean())
        self.mean = embeddings.mean(dim=0, dtype=torch.float64)
        self.product = (embeddings.T @ wanted).double() / len(embeddings)
        self.moments = (embeddings.T @ embeddings).double() / len(embeddings)
        self.plain = Regression.of(self.moments, self.product)
        self.centred: Regression | None = None

    def at(self, scale: float, centred: bool) -> Start:
        """The start at this scale, with or without a centre."""
        shared = self._regression(centred).direction(scale)
        bank = self._bank(shared)
        center = float(shared @ self.mean) - self.mean_logit / scale if centred else 0.0
        return Start(bank, center, self._misfit(bank, scale, center))

    def _regression(self, centred: bool) -> Regression:
        if not centred:
            return self.plain
        if self.centred is None:
            covariance = self.moments - torch.outer(self.mean, self.mean)
            self.centred = Regression.of(covariance, self.product - self.mean_logit * self.mean)
        return self.centred

    def _bank(self, shared: Tensor) -> Tensor:
        """Unit prototypes around the shared direction; the random bank decides the corners."""
        count, dim = self.drawn.shape
        quiet = self.plain.vectors[:, : max(count + 1, dim // 4)]  # where embeddings have least of anything
        corners = (self.drawn @ quiet) @ quiet.T
        unit = shared / shared.norm().clamp(min=1e-12)
        corners = corners - (corners @ unit)[:, None] * unit
        if count <= dim:
            corners = torch.linalg.qr(corners.T).Q.T
        if count > 1:
            corners = corners - corners.mean(dim=0)
        corners = corners / corners.norm(dim=1, keepdim=True).clamp(min=1e-12)
        rest = (1.0 - shared.square().sum()).clamp(min=0.0).sqrt()
        bank: Tensor = shared + rest * corners
        return bank

    def _misfit(self, bank: Tensor, scale: float, center: float) -> float:
        """Mean square of u - target as a share of the variance of the target."""
        variance = float(self.target.var(correction=0))
        if variance < 1e-9:
            return 0.0
        logits = scale * (self.sample @ bank.to(self.sample.dtype).T - center)
        u = uncertainty(logits, self.config.evidence, self.config.tau)
        return float((u - self.target).square().mean()) / variance


def wanted_logits(z: Tensor, config: HeadConfig) -> Tensor:
    """The logit that gives u = sigmoid(z) when all prototypes have it: the evidence functions turned around."""
    if config.evidence == "exp":
        return config.tau * z
    evidence = z.exp()
    return evidence if config.evidence == "relu" else torch.log(torch.expm1(evidence))


def best_start(visual: Starts, text: Starts, scale: float) -> tuple[float, Start, Start]:
    """Scale and starts: the configured scale without centres if that fits, else the least departure that does."""
    tried = []
    for centred, step, enough in ((False, 1.0, PLAIN_ENOUGH), *((True, step, CENTRED_ENOUGH) for step in STEPS)):
        starts = visual.at(scale * step, centred), text.at(scale * step, centred)
        misfit = max(start.misfit for start in starts)
        tried.append((misfit, scale * step, *starts))
        if misfit <= enough:
            break
    else:
        tried.sort(key=lambda found: found[0])
        return tried[0][1:]
    return tried[-1][1:]
