"""One browser, one audit and one running dashboard for all browser tests of a worker; a small audit for the others."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.browser import PATIENCE, launched, serve
from tests.support.dashboard_audit import write_audit
from tests.support.synthetic import write_corpus_audit


@pytest.fixture(scope="session")
def chromium() -> Iterator[object]:
    with launched() as browser:
        yield browser


@pytest.fixture(scope="session")
def audit(tmp_path_factory: pytest.TempPathFactory, random_model: str) -> Path:
    return write_audit(tmp_path_factory.mktemp("dashboard"), random_model)


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """An audit and its corpus that no browser is needed for, to be read only."""
    return write_corpus_audit(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="session")
def url(audit: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    child, address = serve([audit, audit], tmp_path_factory.mktemp("served"))
    yield address
    child.terminate()
    child.wait(30)


@pytest.fixture
def page(chromium: object) -> Iterator[object]:
    context = chromium.new_context(viewport={"width": 1440, "height": 900}, accept_downloads=True)  # type: ignore[attr-defined]
    opened = context.new_page()
    opened.set_default_timeout(PATIENCE)
    yield opened
    context.close()
