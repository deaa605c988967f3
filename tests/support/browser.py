"""The real dashboard in a real Chromium: the command served, pages visited, waiting until they have come to rest."""

import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.results import write_results

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 120_000  # milliseconds
SWITCHES = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]


@contextmanager
def launched() -> Iterator[object]:
    """Chromium; skips where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next((p for name in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(name))), None)
    if path is None:
        pytest.skip("there is no Chromium on this machine")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=SWITCHES)
        yield browser
        browser.close()


def serve(audits: list[Path], folder: Path) -> tuple[subprocess.Popen[bytes], str]:
    """The real command; returns when it answers."""
    write_results(folder / "results" / "flickr8k.json")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "auditor.cli", "dashboard", *map(str, audits), "--port", str(port), "--no-open"]
    child = subprocess.Popen([*command, "--results", str(folder / "results")], cwd=ROOT)
    url = f"http://127.0.0.1:{port}"
    for _ in range(600):
        assert child.poll() is None, "the dashboard ended"
        try:
            urllib.request.urlopen(f"{url}/_stcore/health", timeout=5).close()
            return child, url
        except OSError:
            time.sleep(0.2)
    raise AssertionError("the dashboard does not answer")


def visit(page: object, address: str) -> None:
    page.goto(address)  # type: ignore[attr-defined]
    settled(page)


def settled(page: object) -> None:
    """Until the script has run; an error box is an error."""
    page.wait_for_selector("[data-testid=stMain] :is(h1, h4, [data-testid=stText])")  # type: ignore[attr-defined]
    idle = "[data-testid=stApp][data-test-script-state=notRunning]"
    for _ in range(2):  # a rerun may start just after the first
        page.wait_for_timeout(400)  # type: ignore[attr-defined]
        page.wait_for_selector(idle)  # type: ignore[attr-defined]
    assert page.locator("[data-testid=stException]").count() == 0  # type: ignore[attr-defined]
