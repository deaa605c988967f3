"""Measure how the cost of each step grows with the number of pairs, and fit its exponent.

    python -m tests.bench.growth [SIZE ...]

Each step is a command in a process of its own: processor seconds (children included), peak memory of its largest
process, bytes that it left on disk. Sizes up to 1,000,000 (1,000, 10,000 and 100,000 if none are given) are audits of
stored embeddings, 2 x 512 float16. Larger ones are the synthetic audits of query_10m, which have no embeddings, so that
only steps that read rows can use them. cost = start + factor * pairs ** exponent is fitted with equal relative weights,
if the cost at least doubles between the smallest and the largest size. From 100,000 pairs up, the cost of a billion
pairs on 32 machines of 16 cores is extrapolated; a step that is one process counts as one core.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.bench.query_10m import RESULTS, made_audit

EMBEDDED = 1_000_000  # pairs up to which an audit of stored embeddings is made
EXTRAPOLATED = 100_000  # pairs of the largest size, from which a billion are extrapolated
BILLION, CORES = 1e9, 32 * 16
FIRST_UID = "5f82c2d9cfeb0fa321d7d982f8bd1045"
CLI = "import sys; from auditor.cli import run_command_line; sys.exit(run_command_line(sys.argv[1:]))"
PAGE = "import sys; from tests.bench.growth import open_overview; open_overview(sys.argv[1])"
CORPUS = "import sys; from tests.bench.growth import write_corpus as f; f(sys.argv[1], int(sys.argv[2]))"
DUPLICATES = "import sys; from tests.bench.growth import repeat_duplicate_search as f; f(sys.argv[1])"
STEPS: dict[str, tuple[str, list[str]]] = {  # step: program and arguments
    "audit": (CLI, ["audit", "datacomp:CORPUS", "--out", "AUDIT", "--quiet"]),
    "score": (CLI, ["score", "AUDIT", "--quiet"]),
    "duplicates": (DUPLICATES, ["AUDIT"]),
    "faults": (CLI, ["faults", "AUDIT"]),
    "search, first": (CLI, ["search", "AUDIT", "--like", FIRST_UID]),
    "search, next": (CLI, ["search", "AUDIT", "--like", FIRST_UID]),
    "summary": (CLI, ["summary", "AUDIT"]),
    "dashboard's first page": (PAGE, ["AUDIT"]),
    "filter to .npy": (CLI, ["filter", "AUDIT", "--max-p-mismatch", "0.1", "--out", "OUT.npy"]),
    "filter to .parquet": (CLI, ["filter", "AUDIT", "--max-p-mismatch", "0.1", "--out", "OUT.parquet"]),
    "compare": (CLI, ["compare", "AUDIT", "AUDIT"]),
}
ROW_STEPS = ("summary", "dashboard's first page", "filter to .npy", "filter to .parquet", "compare")
SPREAD = ("audit", "score", "duplicates", "faults")  # over all cores of a cluster


def write_corpus(place: str, pairs: int) -> None:
    """Write stored embeddings, in a process of its own: the peak memory of a child starts at that of its parent."""
    from tests.bench import stored_embeddings

    Path(place).mkdir()
    stored_embeddings.write(Path(place), pairs)


def open_overview(path: str) -> None:
    """Render the dashboard's first page without a browser."""
    from auditor.dashboard_settings import Settings
    from tests.bench.dashboard_10m import open_page

    os.environ |= Settings((path,)).environment()
    app = open_page("overview").run()
    assert not app.exception, [error.value for error in app.exception]


def repeat_duplicate_search(path: str) -> None:
    """Search the duplicates of a finished audit again, as its scoring did."""
    from auditor.audit_folder.audit_files import find_swept_shards
    from auditor.audit_folder.folder import Folder
    from auditor.score.duplicate_search import search_duplicates
    from auditor.score.pair_sample import count_encoded
    from auditor.score.score_config import ScoreConfig

    folder = Folder(path)
    search_duplicates(folder, count_encoded(folder, find_swept_shards(folder)), ScoreConfig())


def run_step(step: str, places: dict[str, str]) -> dict[str, float]:
    """Run a step to its end; returns its processor seconds, peak MiB and MB on disk."""
    program, arguments = STEPS[step]
    for name, place in places.items():
        arguments = [argument.replace(name, place) for argument in arguments]
    before = count_bytes(places["PLACE"], places["AUDIT"])
    process = subprocess.Popen([sys.executable, "-c", program, *arguments], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0, (step, status)
    megabytes = (count_bytes(places["PLACE"], places["AUDIT"]) - before) / 1e6
    return {"processor s": usage.ru_utime + usage.ru_stime, "peak MiB": usage.ru_maxrss / 1024, "MB": megabytes}


def count_bytes(*folders: str) -> int:
    files = {path for folder in folders for path in Path(folder).rglob("*") if path.is_file()}
    return sum(path.stat().st_size for path in files)


def measure_size(pairs: int) -> Iterator[dict[str, Any]]:
    """Measure all steps that a size allows."""
    with tempfile.TemporaryDirectory(prefix="bench-growth-") as place:
        places = {"PLACE": place, "CORPUS": f"{place}/corpus", "AUDIT": f"{place}/audit", "OUT": f"{place}/kept"}
        if pairs > EMBEDDED:
            places["AUDIT"] = str(made_audit(pairs))
        else:
            subprocess.run([sys.executable, "-c", CORPUS, places["CORPUS"], str(pairs)], check=True)
        for step in STEPS if pairs <= EMBEDDED else ROW_STEPS:
            yield {"step": step, "pairs": pairs, **run_step(step, places)}


def fit_growth(pairs: list[int], cost: list[float]) -> dict[str, float]:
    """Fit cost = start + factor * pairs ** exponent by least squares of relative errors."""
    import numpy as np
    from scipy.optimize import nnls

    sizes, costs = np.array(pairs, float), np.array(cost)
    fits = []
    for exponent in np.arange(0.2, 1.5, 0.02):
        terms = np.stack([np.ones_like(sizes), sizes**exponent], axis=1) / costs[:, None]
        (start, factor), error = nnls(terms, np.ones_like(costs))
        fits.append((error, {"start": start, "factor": factor, "exponent": float(exponent)}))
    return min(fits, key=lambda fit: fit[0])[1]


def tabulate_step(step: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """One line: the costs at each size, and the fit if there are three sizes or more and the start is not all."""
    line: dict[str, Any] = {"step": step}
    for row in rows:
        line[f"{row['pairs']:,}"] = f"{row['processor s']:.1f} s, {row['peak MiB']:.0f} MiB, {row['MB']:.1f} MB"
    if len(rows) >= 3 and rows[-1]["processor s"] >= 2 * rows[0]["processor s"]:
        growth = fit_growth([row["pairs"] for row in rows], [row["processor s"] for row in rows])
        line["exponent"] = f"{growth['exponent']:.2f}"
        if rows[-1]["pairs"] < EXTRAPOLATED:
            return line
        hours = (growth["start"] + growth["factor"] * BILLION ** growth["exponent"]) / 3600
        line["processor h, a billion"] = f"{hours:,.1f}"
        line["hours on 32 machines"] = f"{hours / (CORES if step in SPREAD else 1):,.1f}"
    return line


def main(sizes: list[int]) -> None:
    from auditor import console

    load, rows = os.getloadavg()[0], []
    for pairs in sizes:
        for row in measure_size(pairs):
            print(row, flush=True)
            rows.append(row)
    table = [tabulate_step(step, [row for row in rows if row["step"] == step]) for step in STEPS]
    console.print_table(table, f"{os.cpu_count()} cores, load {load:.1f} before the run")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "growth.json").write_text(json.dumps({"load": load, "rows": rows}, indent=1))


if __name__ == "__main__":
    main([int(size) for size in sys.argv[1:]] or [1_000, 10_000, 100_000])
