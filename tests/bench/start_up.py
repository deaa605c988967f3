"""Seconds from start to exit of short commands and of an audit of 60 photos, child processes included.

    python -m tests.bench.start_up AUDIT [CHECKOUT]

Prints the wall clock and the processor time. With the folder of another checkout, such as one of an earlier version,
both take turns in one run. The model of the audit is tiny. `first page` is from the start of the dashboard to the first
content in a new browser; it has no processor time, because the browser's would be in it.
"""

import ctypes
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from auditor.console import print_table
from tests.bench.first_page import time_visit
from tests.support.browser import serve_dashboard
from tests.support.corpora import make_caption, make_picture, write_random_model

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path("bench-results")
RUNS, LONG_RUNS, PHOTOS = 7, 3, 60
PR_SET_CHILD_SUBREAPER = 36
PROGRAM = "from auditor.cli import main; main()"
Measurement = tuple[float, float]  # wall clock and processor seconds


def write_photos(folder: Path) -> None:
    folder.mkdir()
    for number in range(PHOTOS):
        (folder / f"{number:03d}.jpg").write_bytes(make_picture(number, (500, 375)))
        (folder / f"{number:03d}.txt").write_text(make_caption(number))


def read_processor_time() -> float:
    """Processor seconds of all child processes that have ended, after waiting for those that a command left."""
    while True:
        try:
            os.wait()
        except ChildProcessError:
            usage = resource.getrusage(resource.RUSAGE_CHILDREN)
            return usage.ru_utime + usage.ru_stime


def time_command(checkout: Path, arguments: list[str], expected: int) -> Measurement:
    before, started = read_processor_time(), time.monotonic()
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM, *arguments],
        env={**os.environ, "PYTHONPATH": str(checkout)},
        capture_output=True,
        check=False,
    )
    seconds = time.monotonic() - started
    assert done.returncode == expected, done.stderr.decode()
    return seconds, read_processor_time() - before


def time_first_page(audit: Path) -> float:
    with tempfile.TemporaryDirectory() as folder:
        started = time.monotonic()
        child, url = serve_dashboard([audit], Path(folder))
        listening = time.monotonic() - started
        try:
            return listening + time_visit(url)["first content"]
        finally:
            child.terminate()
            child.wait(30)


def list_commands(audit: str, root: Path) -> dict[str, tuple[list[str], int]]:
    """The arguments of each command by its name in the table, and its exit code; {} is the number of the run."""
    corpus, model = str(root / "photos"), f"local-dir:{root / 'model'}"
    return {
        "--help": (["--help"], 0),
        "summary": (["summary", audit], 0),
        "query": (["query", audit, "SELECT count(*) FROM samples"], 0),
        "thresholds": (["thresholds", audit], 0),
        "worst": (["worst", audit], 0),
        "wrong path": (["audit", str(root / "none"), "--out", str(root / "out")], 1),
        f"audit of {PHOTOS} photos": (["audit", corpus, "--out", f"{root}/{{}}", "--model", model, "--quiet"], 0),
    }


def measure_turns(checkouts: list[Path], measure: Callable[[Path, int], Measurement], runs: int) -> dict[str, Any]:
    """Medians of each checkout; both take turns."""
    seconds: dict[Path, list[Measurement]] = {checkout: [] for checkout in checkouts}
    for run in range(runs):
        for checkout in checkouts:
            seconds[checkout].append(measure(checkout, run))
    row: dict[str, Any] = {}
    for checkout, label in zip(checkouts, ("", "other: "), strict=False):
        for name, values in zip(("wall s", "processor s"), zip(*seconds[checkout], strict=True), strict=True):
            row[f"{label}{name}"] = round(statistics.median(values), 2)
    return row


def main(audit: str, checkouts: list[Path]) -> None:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # so that all processes of a command can be waited for
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_photos(root / "photos")
        write_random_model(root / "model")
        for name, (arguments, expected) in list_commands(audit, root).items():

            def measure(
                checkout: Path, run: int, arguments: list[str] = arguments, code: int = expected
            ) -> Measurement:
                out = f"{checkouts.index(checkout)}-{run}"
                return time_command(checkout, [argument.format(out) for argument in arguments], code)

            runs = LONG_RUNS if name.startswith("audit") else RUNS
            rows.append({"command": name, **measure_turns(checkouts, measure, runs)})
            print(json.dumps(rows[-1]), flush=True)
    pages = [time_first_page(Path(audit)) for _ in range(LONG_RUNS)]
    rows.append({"command": "first page", "wall s": round(statistics.median(pages), 2)})
    print_table(rows, f"load {os.getloadavg()[0]:.1f} at the end", list(rows[0]))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "start_up.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main(sys.argv[1], [ROOT, *map(Path, sys.argv[2:3])])
