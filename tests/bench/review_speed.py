"""Measure how long a reviewer waits: from a key press to the next picture, in a real Chromium, 200 decisions.

Run as `python -m tests.bench.review_speed AUDIT [DECISIONS]`; it works on a copy of the audit. A key is pressed 0.5 s
after the last picture, six times as fast as 200 decisions in ten minutes. The browser's clock measures the time from
the key event to the frame after the next picture is decoded.
"""

import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from auditor.python_api import Audit
from tests.support.browser import launch_chromium, serve_dashboard, visit_page

RESULTS = Path("bench-results")
DECISIONS = 200
PAUSE = 500  # milliseconds


def decide(page: Any, decisions: int) -> list[float]:
    """Press a key for each decision, and return milliseconds to the next picture."""
    for number in range(decisions):
        page.wait_for_selector(".review-cards .stage :is(img, video)")
        page.keyboard.press("gbu"[number % 3])
        page.wait_for_timeout(PAUSE)
    told = page.locator(".review-cards").get_attribute("data-latencies") or ""
    return [float(ms) for ms in told.split()]


def kept(audit: Path, decisions: int) -> int:
    """Number of marks in the audit after all have arrived or a minute has passed."""
    for _ in range(120):
        with Audit(audit) as opened:
            found = opened.sql("SELECT count(*) AS n FROM reviews WHERE reviewer = 'bench'")["n"][0].as_py()
        if found >= decisions:
            break
        time.sleep(0.5)
    return int(found)


def main(source: str, decisions: int) -> None:
    from auditor import console

    with tempfile.TemporaryDirectory() as folder, launch_chromium() as browser:
        audit = Path(shutil.copytree(source, Path(folder) / "audit"))
        (audit / "reviews.jsonl").unlink(missing_ok=True)
        child, url = serve_dashboard([audit], Path(folder))
        try:
            page = browser.new_page(viewport={"width": 1440, "height": 900})  # type: ignore[attr-defined]
            page.set_default_timeout(120_000)
            visit_page(page, f"{url}/review?reviewer=bench&queue=random")
            latencies = decide(page, decisions)
            marks = kept(audit, decisions)
        finally:
            child.terminate()
            child.wait(30)
    quantiles = {
        name: float(np.quantile(latencies, q)) for name, q in (("median", 0.5), ("95%", 0.95), ("slowest", 1.0))
    }
    line = {"decisions": len(latencies), "marks kept": marks, **{k: f"{ms:.0f} ms" for k, ms in quantiles.items()}}
    console.print_table([line], f"key press to next picture, load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "review_speed.json").write_text(json.dumps({**quantiles, "marks": marks, "load": os.getloadavg()}))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "demo/audit", int(sys.argv[2]) if len(sys.argv) > 2 else DECISIONS)
