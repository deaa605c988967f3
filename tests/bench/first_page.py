"""Seconds from opening the browser to the first page of the dashboard.

Run as `python -m tests.bench.first_page AUDIT [RUNS] [PAGE]`. Each run starts the server, waits until it listens, and
opens the page in a new Chromium without a cache: once at once, and once in another new Chromium, when the server has
already shown it. The first content is the title of the page and an element below it; the page is complete when its
script has ended.
"""

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

from tests.support.browser import launch_chromium, serve_dashboard, wait_until_idle

CONTENT = """() => {
  const main = document.querySelector("[data-testid=stMain]");
  return main && main.querySelector("h1") && main.querySelectorAll("[data-testid=stElementContainer]").length > 2;
}"""


def time_visit(address: str) -> dict[str, float]:
    """Open a page in a new browser; the start of Chromium itself is not counted."""
    with launch_chromium() as browser:
        tab = browser.new_page()  # type: ignore[attr-defined]
        started = time.monotonic()
        tab.goto(address, wait_until="commit")
        tab.wait_for_function(CONTENT, polling=20, timeout=60_000)
        content = time.monotonic() - started
        wait_until_idle(tab)
        complete = time.monotonic() - started - 0.4  # wait_until_idle() waits that long after the end
        scripts = tab.evaluate("performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd") / 1000
    return {"scripts loaded": scripts, "first content": content, "complete": complete}


def main(audit: str, runs: int, page: str) -> None:
    visits: dict[str, list[dict[str, float]]] = {"first": [], "second": []}
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as folder:
            started = time.monotonic()
            child, url = serve_dashboard([Path(audit)], Path(folder))
            listening = time.monotonic() - started
            try:
                for visit in visits:
                    visits[visit].append({"server listens": listening, **time_visit(f"{url}/{page}")})
            finally:
                child.terminate()
                child.wait(30)
    for visit, times in visits.items():
        medians = {name: round(statistics.median(one[name] for one in times), 2) for name in times[0]}
        print(json.dumps({"visit": visit, "runs": runs, "median seconds": medians}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3, sys.argv[3] if len(sys.argv) > 3 else "")
