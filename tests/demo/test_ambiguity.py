"""On the generated clips: several scenes cut together fit more captions, and their frames agree less with any one."""

import numpy as np
import pytest

from auditor.audit import Audit
from tests.support.tiny import tiny


def above(first: np.ndarray, second: np.ndarray) -> float:  # type: ignore[type-arg]
    """Chance that one of the first is above one of the second."""
    return float((first[:, None] > second[None, :]).mean())


@pytest.mark.parametrize("measure", ["matches_visual", "frame_spread"])
def test_clips_of_several_scenes_are_more_ambiguous(measure: str) -> None:
    truth = {(row["key"], row["caption_index"]): row["defect"] for row in tiny().truth}
    rows = Audit(tiny().audit).sql("SELECT * FROM samples WHERE kind = 'video' AND status = 'ok'").to_pylist()
    several = [row[measure] for row in rows if truth[row["key"], row["caption_index"]] == "multi_scene"]
    single = [row[measure] for row in rows if truth[row["key"], row["caption_index"]] is None]
    assert len(several) >= 3 and len(single) >= 20
    assert above(np.array(several), np.array(single)) > 0.8
