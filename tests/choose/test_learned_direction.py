"""Learning from examples: the direction, the honesty of its AUROC, and the coverage of the interval."""

import numpy as np
import pytest

from auditor.choose.learned_direction import compute_area, compute_area_interval, learn_direction
from auditor.choose.prompt_files import PromptError
from tests.support.vector_audit import plant_media


def draw_examples(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    vectors, planted = plant_media(10 * count, 0.5, seed=seed)
    rows = np.concatenate([np.flatnonzero(planted)[: count // 2], np.flatnonzero(~planted)[: count // 2]])
    return vectors[rows], planted[rows]


def test_twenty_examples_find_the_direction() -> None:
    vectors, labels = draw_examples(20, 0)
    learned = learn_direction(vectors, labels)
    unseen, planted = plant_media(2000, 0.3, seed=99)
    scores = unseen @ learned.direction
    assert compute_area(scores[planted], scores[~planted]) > 0.97
    assert np.linalg.norm(learned.direction) == pytest.approx(1, abs=1e-5)
    assert learned.examples == 20 and learned.auroc[1] <= learned.auroc[0] <= learned.auroc[2]


def test_labels_without_meaning_have_an_auroc_near_one_half() -> None:
    random, areas = np.random.default_rng(3), []
    for _ in range(30):
        labels = np.arange(40) < 20
        areas.append(learn_direction(random.normal(size=(40, 64)).astype(np.float32), labels).auroc)
    assert np.mean([area[0] for area in areas]) == pytest.approx(0.5, abs=0.06)
    assert sum(low <= 0.5 <= high for _, low, high in areas) >= 22


def test_the_interval_covers_the_true_area() -> None:
    random, covered = np.random.default_rng(4), 0
    for _ in range(300):  # normal scores one deviation and a half apart: the area is 0.856
        area = compute_area(random.normal(1.5, 1, 12), random.normal(0, 1, 12))
        low, high = compute_area_interval(area, 12, 12)
        covered += low <= 0.8556 <= high
    assert covered / 300 >= 0.85


def test_the_area_counts_ties_as_half() -> None:
    assert compute_area(np.array([1.0, 2.0]), np.array([1.0, 0.0])) == 0.875


@pytest.mark.parametrize("positives", [0, 2, 20])
def test_one_class_or_too_few_is_one_line(positives: int) -> None:
    with pytest.raises(PromptError, match="mark at least 3 of each"):
        learn_direction(np.ones((20, 4), np.float32), np.arange(20) < positives)
