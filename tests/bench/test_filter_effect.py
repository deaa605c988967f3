"""The parts of the filter benchmark that can be checked without its corpora."""

import numpy as np
import pytest

from tests.bench.filter_effect import keep_best, summarize
from tests.bench.filter_pools import CLIPS, PICTURES, TWINS, VAGUE, Encoded, plant_defects
from tests.bench.peer_scores import compute_neg_clip_loss
from tests.support.stored import make_pairs


def test_neg_clip_loss_equals_the_mean_log_probability_of_both_directions() -> None:
    visual, text = make_pairs(1100)  # more than one block
    logits = 20.0 * visual.astype(float) @ text.T.astype(float)
    directions = [np.diag(logits) - np.log(np.exp(logits).sum(axis=axis)) for axis in (0, 1)]
    np.testing.assert_allclose(compute_neg_clip_loss(visual, text, 20.0), sum(directions) / 40, atol=1e-5)


def test_the_best_rows_are_kept_and_ties_are_broken_by_the_seed() -> None:
    score = np.array([0.0, 2.0, 1.0, 1.0, 1.0, 1.0, -1.0])
    rows = {tuple(keep_best(score, 3, seed)) for seed in range(20)}
    assert len(rows) > 1 and all(1 in kept and not {0, 6} & set(kept) for kept in rows)


@pytest.mark.parametrize("rate", [0.2, 0.6])
def test_as_much_is_planted_as_requested(rate: float) -> None:
    media, count = PICTURES + CLIPS + 3 * TWINS, PICTURES + CLIPS
    owners = np.concatenate([np.zeros(1 + VAGUE, np.int64), np.arange(1, media)])
    nothing = np.zeros((0, 1), np.float32)
    firsts = {"blurred": 0, "near_blank": TWINS, "multi_scene": PICTURES}
    twins = {name: {f + i: count + n * TWINS + i for i in range(TWINS)} for n, (name, f) in enumerate(firsts.items())}
    cell = plant_defects(Encoded([], owners, [], nothing, nothing, nothing, nothing), twins, rate, seed=3)
    assert cell.planted.mean() == pytest.approx(rate, abs=0.002)
    assert ((cell.captions >= 1) & (cell.captions <= VAGUE)).sum() == round(0.2 * rate * count)
    assert (cell.media >= count).sum() == 3 * round(0.1 * rate * count)
    assert (owners[cell.captions[~cell.planted]] == np.flatnonzero(~cell.planted)).all()


def test_the_table_shows_the_way_from_no_filter_to_the_oracle() -> None:
    sums = {"none": (10, 20), "u": (20, 30), "oracle": (30, 40)}
    results = [{"pool": "x", "rate": 0.2, "filter": name, "rsum": rsum} for name in sums for rsum in sums[name]]
    lines = {line["filter"]: line["x 20%"] for line in summarize(results)}
    assert lines == {"none": "15.0 ± 7.1 (0%)", "u": "25.0 ± 7.1 (50%)", "oracle": "35.0 ± 7.1 (100%)"}
