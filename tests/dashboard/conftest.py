"""One browser, one audit and one running dashboard for all browser tests, and a small audit for the other tests."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.browser import TIMEOUT, launch_chromium, serve_dashboard
from tests.support.build_once import build_once
from tests.support.dashboard_audit import write_audit
from tests.support.synthetic import write_corpus_audit


@pytest.fixture(scope="session", autouse=True)
def fast_streamlit() -> Iterator[None]:
    """Read the metadata of all packages once instead of in every AppTest, and skip what the pages do not use."""
    import streamlit.components.v2.manifest_scanner as scanner
    from streamlit import config

    for option in ("runner.magicEnabled", "runner.postScriptGC"):
        config.set_option(option, False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scanner, "scan_component_manifests", cache(scanner.scan_component_manifests))
        yield


@pytest.fixture(scope="session")
def chromium() -> Iterator[object]:
    with launch_chromium() as browser:
        yield browser


@pytest.fixture(scope="session")
def audit(tmp_path_factory: pytest.TempPathFactory, random_model: str) -> Path:
    folder = build_once(tmp_path_factory, "dashboard", lambda folder: write_audit(folder, random_model))
    return folder / "audit"


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A small audit and its corpus, for tests that only read them and need no browser."""
    return write_corpus_audit(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="session")
def url(audit: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    child, address = serve_dashboard([audit, audit], tmp_path_factory.mktemp("served"))
    yield address
    child.terminate()
    child.wait(30)


@pytest.fixture(scope="session")
def tab(chromium: object) -> Iterator[object]:
    """One tab for all tests: Streamlit's scripts are loaded and compiled once, which halves the time of a visit."""
    context = chromium.new_context(accept_downloads=True, reduced_motion="reduce")  # type: ignore[attr-defined]
    opened = context.new_page()
    opened.set_default_timeout(TIMEOUT)
    yield opened
    context.close()


@pytest.fixture
def page(tab: object) -> object:
    tab.set_viewport_size({"width": 1440, "height": 900})  # type: ignore[attr-defined]
    tab.emulate_media(color_scheme="light")  # type: ignore[attr-defined]
    return tab
