"""Similarity matrices: video compared with a naive loop, padded frames that must be ignored, and the oracle."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from model.similarity import pool_frames, similarity_matrix


def clips(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.manual_seed(seed)
    frames = torch.randn(5, 4, 8, dtype=torch.float64, generator=generator)
    mask = torch.tensor([[1, 1, 1, 1], [1, 0, 0, 0], [0, 1, 0, 1], [1, 1, 0, 0], [0, 0, 0, 0]]).bool()
    return frames, mask, torch.randn(5, 8, dtype=torch.float64, generator=generator)


def naive(frames: Tensor, mask: Tensor, visual: Tensor, text: Tensor) -> float:
    """One clip and one caption, exactly as in appendix A."""
    kept = [frame / frame.norm() for frame, valid in zip(frames, mask, strict=True) if valid]
    overall = torch.dot(visual / visual.norm(), text / text.norm())
    if not kept:
        return float(overall)
    return float((overall + max(torch.dot(frame, text / text.norm()) for frame in kept)) / 2)


def test_video_similarity_is_that_of_a_loop() -> None:
    frames, mask, text = clips()
    visual = pool_frames(frames, mask)
    visual[4] = F.normalize(torch.ones(8, dtype=torch.float64), dim=0)  # an image: it has no frames
    matrix = similarity_matrix(visual, frames, mask, text)
    expected = [[naive(frames[i], mask[i], visual[i], text[j]) for j in range(5)] for i in range(5)]
    torch.testing.assert_close(matrix, torch.tensor(expected, dtype=torch.float64))


def test_padded_frames_never_count() -> None:
    frames, mask, text = clips()
    expected = similarity_matrix(pool_frames(frames, mask), frames, mask, text)
    spoilt = frames.clone()
    spoilt[~mask] = 1e6 * text.repeat(3, 1)[: int((~mask).sum())]  # padding that fits some caption perfectly
    torch.testing.assert_close(similarity_matrix(pool_frames(spoilt, mask), spoilt, mask, text), expected)


def test_pooling_is_the_unit_mean_of_unit_frames() -> None:
    frames, mask, _ = clips()
    kept = F.normalize(frames[2][mask[2]], dim=-1).mean(dim=0)
    torch.testing.assert_close(pool_frames(frames, mask)[2], kept / kept.norm())
    torch.testing.assert_close(pool_frames(frames), pool_frames(frames, torch.ones(5, 4)))


def test_images_are_plain_cosines_of_any_length() -> None:
    _, _, text = clips()
    visual = 7 * text.roll(1, 0)
    expected = torch.cosine_similarity(visual[:, None], text[None], dim=-1)
    torch.testing.assert_close(similarity_matrix(visual, None, None, text), expected)


def test_gradients_reach_valid_frames_only_and_are_finite() -> None:
    frames, mask, text = clips()
    frames.requires_grad_()
    similarity_matrix(pool_frames(frames, mask), frames, mask, text).sum().backward()
    assert frames.grad is not None and torch.isfinite(frames.grad).all()
    assert (frames.grad[~mask] == 0).all() and (frames.grad[0] != 0).any()


@pytest.mark.parametrize("name", ["video_loss_n16_f12_d32_k8", "video_eval_single_n50", "video_eval_multi_n30"])
def test_video_similarity_of_the_released_program(shared: Path, name: str) -> None:
    """Equal to 1e-9 unless a padded frame is the best: the released maximum includes padding."""
    data = np.load(shared / "oracle" / f"{name}.npz")
    frames, mask = torch.from_numpy(data["frame_feats"]), torch.from_numpy(data["frame_mask"]).bool()
    found = 100 * similarity_matrix(pool_frames(frames, mask), frames, mask, torch.from_numpy(data["txt_feats"])).T
    expected = torch.from_numpy(data["logits_t2v" if "logits_t2v" in data else "sim_plain_TxV"])
    # The released program multiplies padded frames by the mask: their similarity is 0, above negative ones.
    scores = 100 * F.normalize(frames, dim=-1) @ F.normalize(torch.from_numpy(data["txt_feats"]), dim=-1).T
    best = scores.masked_fill(~mask.unsqueeze(-1), -1e9).amax(dim=1).T
    differs = ~torch.isclose(found, expected, rtol=0, atol=1e-9)
    padded = (~mask.all(dim=1)).expand_as(best)
    assert not (differs & ~(padded & (best < 0))).any()
    assert (~differs).float().mean() > 0.9
