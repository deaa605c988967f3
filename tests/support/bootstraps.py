"""Faster audits for tests whose checks do not depend on the number of bootstrap samples; a conftest imports it."""

from collections.abc import Iterator

import pytest

from auditor.score.statistics import mismatch


@pytest.fixture(autouse=True, scope="package")
def few_bootstraps() -> Iterator[None]:
    defaults = mismatch.fit_scores.__kwdefaults__
    assert defaults is not None
    before = defaults["bootstraps"]
    defaults["bootstraps"] = 4
    yield
    defaults["bootstraps"] = before
