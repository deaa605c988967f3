"""Learning rates against the released program's, and at the ends."""

from pathlib import Path

import numpy as np
import pytest

from model.training.schedule import multiplier, warmup_steps


def test_clip4clip_equals_the_released_video_schedule(shared: Path) -> None:
    expected = np.load(shared / "oracle" / "schedules.npz")["warmup_cosine_T200_w01"]
    found = [multiplier(step, 200, 0.1, "clip4clip") for step in range(200)]
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_cosine_equals_the_released_image_schedule(shared: Path) -> None:
    expected = np.load(shared / "oracle" / "schedules.npz")["cosine_lr_T200_w50_base1e5"]
    found = [1e-5 * multiplier(step, 200, 50, "cosine") for step in range(200)]
    np.testing.assert_allclose(found, expected, atol=1e-17)


def test_warmup_is_a_share_below_one_and_steps_above() -> None:
    assert warmup_steps(0.1, 200) == 20
    assert warmup_steps(30, 200) == 30
    assert warmup_steps(500, 200) == 200  # a short run is all warm-up


@pytest.mark.parametrize("schedule", ["cosine", "clip4clip", "constant"])
@pytest.mark.parametrize("warmup", [0.0, 0.3, 5])
def test_multipliers_rise_to_at_most_one_and_never_rise_again(schedule: str, warmup: float) -> None:
    found = [multiplier(step, 40, warmup, schedule) for step in range(40)]  # type: ignore[arg-type]
    assert min(found) >= 0.0 and max(found) <= 1.0
    peak = int(np.argmax(found))
    assert found[: peak + 1] == sorted(found[: peak + 1])
    assert found[peak:] == sorted(found[peak:], reverse=True)
    if schedule != "constant":
        assert found[-1] < 0.01


def test_cosine_is_continuous_where_the_warm_up_ends() -> None:
    assert multiplier(9, 100, 10) == 1.0
    assert multiplier(10, 100, 10) == 1.0
    assert multiplier(0, 100, 10) == pytest.approx(0.1)
