"""Patterns of faults do not depend on the map of an audit, so tests lay it out in a few steps."""

from collections.abc import Iterator

import pytest

from auditor.score.statistics import map_layout


@pytest.fixture(scope="module", autouse=True)
def short_layout() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(map_layout, "STEPS", 2)
        yield
