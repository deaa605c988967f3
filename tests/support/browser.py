"""Serves the dashboard with the real command and visits its pages in a real Chromium."""

import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.results import write_results

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT = 120_000  # milliseconds
# Idle for 400 ms since this call, which its time identifies: another run may start right after the first.
IDLE = """call => {
  const app = document.querySelector("[data-testid=stApp][data-test-script-state=notRunning]");
  const idle = app && document.querySelector("[data-testid=stMain] :is(h1, h4, [data-testid=stText])");
  if (!idle || window.idleCall !== call) [window.idleCall, window.idleSince] = [call, performance.now()];
  return idle && performance.now() - window.idleSince >= 400;
}"""
RUNNING: list[object] = []
SWITCHES = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]


@contextmanager
def launch_chromium() -> Iterator[object]:
    """Start Chromium; skips the test if it is not installed."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next((p for name in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(name))), None)
    if path is None:
        pytest.skip("there is no Chromium on this machine")
    if RUNNING:  # playwright starts once in a process
        yield RUNNING[0]
        return
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=SWITCHES)
        RUNNING.append(browser)
        try:
            yield browser
        finally:
            RUNNING.clear()
            browser.close()


def serve_dashboard(audits: list[Path], folder: Path, *options: str) -> tuple[subprocess.Popen[bytes], str]:
    """Start the command; returns its process and its URL when it answers."""
    write_results(folder / "results" / "flickr8k.json")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "auditor.cli", "dashboard", *map(str, audits), "--port", str(port), "--no-open"]
    child = subprocess.Popen([*command, "--results", str(folder / "results"), *options], cwd=ROOT)
    url = f"http://127.0.0.1:{port}"
    for _ in range(600):
        assert child.poll() is None, "the dashboard has exited"
        try:
            urllib.request.urlopen(f"{url}/_stcore/health", timeout=5).close()
            return child, url
        except urllib.error.HTTPError:  # it answers, but wants a password
            return child, url
        except OSError:
            time.sleep(0.2)
    raise AssertionError("the dashboard does not answer")


def visit_page(page: object, address: str) -> None:
    page.goto(address)  # type: ignore[attr-defined]
    wait_until_idle(page)


def wait_until_idle(page: object) -> None:
    """Wait until the script of the page has run and no other run starts; fails if the page shows an exception."""
    page.wait_for_function(IDLE, arg=time.monotonic(), polling=50)  # type: ignore[attr-defined]
    assert page.locator("[data-testid=stException]").count() == 0  # type: ignore[attr-defined]
