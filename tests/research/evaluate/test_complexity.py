"""Operation counts against counts of a transformer by hand, and against the paper's figures."""

import pytest

from auditor.research.evaluate.complexity import Complexity, count_complexity


@pytest.fixture(scope="module")
def vit() -> Complexity:
    return count_complexity("ViT-B-32", frames=12, tokens=32)


def layer_macs(tokens: int, width: int) -> int:
    """Query, key, value and output projections, the two products of attention, and the two layers of the MLP."""
    return 4 * tokens * width**2 + 2 * tokens**2 * width + 2 * tokens * width * 4 * width


def test_every_product_is_counted(vit: Complexity) -> None:
    image = 3 * 32 * 32 * 768 * 49 + 12 * layer_macs(50, 768) + 768 * 512
    assert vit.flops_visual == 2 * 12 * image
    assert vit.flops_text == 2 * (12 * layer_macs(32, 512) + 512 * 512)
    assert vit.flops == vit.flops_visual + vit.flops_text + 2 * 2 * 8 * 512


def test_parameters_are_those_of_vit_b_32(vit: Complexity) -> None:
    assert vit.parameters - vit.parameters_head == 151_277_313
    assert vit.parameters_visual == 87_849_216
    assert vit.parameters_head == 2 * 8 * 512


def test_the_papers_parameters_are_the_visible_layers_alone(vit: Complexity) -> None:
    mlps = 12 * (2 * 768 * 3072 + 3072 + 768) + 12 * (2 * 512 * 2048 + 2048 + 512)
    assert vit.visible_parameters == mlps + 3 * 32 * 32 * 768
    assert vit.visible_parameters / 1e6 == pytest.approx(84.2, abs=0.05)
    assert vit.visible_macs / 1e9 == pytest.approx(36.2, abs=0.05)
    assert count_complexity("ViT-B-32", frames=12, tokens=24).visible_macs / 1e9 == pytest.approx(36.0, abs=0.05)
