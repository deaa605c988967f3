"""The NumPy form of PAU's uncertainty equals that of the torch head, for all evidence and for clips."""

import numpy as np
import pytest
import torch

from auditor.score.fit_audit import compute_uncertainty_of_media, extract_banks, rebuild_head
from auditor.vectors import MediaVectors
from model.prototypes import HeadConfig, PrototypeHead

RANDOM = np.random.default_rng(0)


def make_vectors(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(np.float32)  # of any length: a head normalizes


@pytest.mark.parametrize("evidence", ["exp", "softplus", "relu"])
@pytest.mark.parametrize("clip_evidence", ["mean", "frames"])
def test_uncertainty_equals_that_of_the_head(evidence: str, clip_evidence: str) -> None:
    settings = {"center_visual": 0.1, "center_text": -0.2, "evidence": evidence, "clip_evidence": clip_evidence}
    head = PrototypeHead(HeadConfig(24, 6, **settings), seed=1).requires_grad_(False)  # type: ignore[arg-type]
    banks, text = extract_banks(head), make_vectors(50, 24)
    mask = RANDOM.random((50, 5)) < 0.6
    mask[:3] = False  # images
    for media in (
        MediaVectors(make_vectors(50, 24)),
        MediaVectors(make_vectors(50, 24), make_vectors(50, 5, 24), mask),
    ):
        expected = compute_uncertainty_of_media(head, media).numpy()
        assert banks.measure_media(media) == pytest.approx(expected, abs=1e-5)
    assert banks.measure_captions(text) == pytest.approx(
        head.uncertainty_text(torch.from_numpy(text)).numpy(), abs=1e-5
    )


def test_extreme_logits_stay_finite() -> None:
    head = PrototypeHead(HeadConfig(8, 4, tau=0.01, scale=1e4), seed=1).requires_grad_(False)
    u = extract_banks(head).measure_captions(make_vectors(100, 8))
    assert ((u >= 0) & (u <= 1)).all() and np.ptp(u) > 0.5


def test_a_head_survives_the_conversion() -> None:
    head = PrototypeHead(HeadConfig(8, 4, tau=3.0), seed=1).requires_grad_(False)
    assert rebuild_head(extract_banks(head)).fingerprint == head.fingerprint
