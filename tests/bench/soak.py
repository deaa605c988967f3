"""Soak: generated shards go through audit, extend, score and query in a loop, and each of them is killed on the way.

    python -m tests.bench.soak --minutes 240

A child process runs each command first and is killed with SIGKILL at a random moment; then this process finishes the
work. Every round prints the memory, file handles and child processes of this process, and compares the rows by status
with the files that were written. It stops at the first difference.
"""

import argparse
import io
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path

from auditor.cli import run_command_line
from auditor.python_api import Audit
from tests.support.corpora import make_sample, write_random_model, write_tar


def write_shard(folder: Path, number: int, size: int, chance: random.Random) -> Counter[str]:
    """Write a shard with broken samples, and return its rows by status."""
    statuses: Counter[str] = Counter()
    samples = []
    for index in range(size):
        sample = make_sample(number * size + index, captions=1 + index % 3)
        status = chance.choices(["ok", "corrupt", "missing_caption", "missing_media"], [90, 4, 3, 3])[0]
        if status == "corrupt":
            sample["jpg"] = sample["jpg"][:60]
        elif status == "missing_caption":
            del sample["txt"]
        elif status == "missing_media":
            del sample["jpg"]
        samples.append((f"{number:05d}{index:04d}", sample))
        statuses[status] += 1 if status == "missing_caption" else 1 + index % 3
    write_tar(folder / f"{number:05d}.tar", samples)
    return statuses


def run_and_kill(arguments: list[str], seconds: float) -> bool:
    """Run a command in a child process, and kill it and its children after a time. Return whether it was killed."""
    child = subprocess.Popen(
        [sys.executable, "-m", "auditor.cli", *arguments],
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        child.wait(seconds)
        return False
    except subprocess.TimeoutExpired:
        return True
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait(60)


def finish(arguments: list[str]) -> None:
    """Run a command in this process, to its end."""
    output = io.StringIO()
    with redirect_stdout(output), redirect_stderr(output):
        code = run_command_line(arguments)
    if code:
        raise SystemExit(f"{' '.join(arguments)} ended with {code}: {output.getvalue()[-2000:]}")


def check(audit: Path, expected: Counter[str]) -> None:
    """Compare the rows of an audit by status with the corpus; no unfinished file may be left."""
    with Audit(str(audit)) as opened:
        rows = opened.sql("SELECT status, count(*) AS n FROM samples GROUP BY status").to_pylist()
        counts = Counter({str(row["status"]): int(row["n"]) for row in rows})
        opened.sql("SELECT shard, avg(p_mismatch), max(uncertainty_text) FROM samples GROUP BY shard ORDER BY 2")
    leftovers = [path.name for path in audit.rglob("*") if path.suffix in (".part", ".tmp")]
    if counts != expected or leftovers:
        raise SystemExit(f"rows {dict(counts)}, expected {dict(expected)}; unfinished files {leftovers}")
    finish(["verify", str(audit), "--files"])


def run_round(folder: Path, model: str, number: int, shards: int, size: int) -> tuple[int, int]:
    """Audit, extend and score one generated corpus; return (rows, kills)."""
    chance = random.Random(number)
    corpus, audit = folder / "corpus", folder / "audit"
    for path in (corpus, audit):
        shutil.rmtree(path, ignore_errors=True)
    corpus.mkdir()
    expected: Counter[str] = Counter()
    kills = 0
    audit_command = ["audit", str(corpus), "--out", str(audit), "--model", model, "--quiet", "--decoders", "1"]
    stages = [(audit_command, shards), ([*audit_command, "--extend"], 2), (["score", str(audit), "--refit"], 0)]
    for command, new_shards in stages:
        for _ in range(new_shards):
            shard = len(list(corpus.iterdir()))
            expected += write_shard(corpus, shard, size, chance)
        kills += run_and_kill(command, chance.uniform(2.0, 14.0))
        finish(command)
        check(audit, expected)
    return sum(expected.values()), kills


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--size", type=int, default=60, help="samples per shard")
    options = parser.parse_args()
    start, number = time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        folder = Path(name)
        model = write_random_model(folder / "model")
        print("round seconds rows kills memory_MB handles children", flush=True)
        while number == 0 or time.monotonic() - start < 60 * options.minutes:
            rows, kills = run_round(folder, model, number, options.shards, options.size)
            number += 1
            resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 2**20
            children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
            handles = len(os.listdir("/proc/self/fd"))
            print(number, round(time.monotonic() - start), rows, kills, resident, handles, len(children), flush=True)


if __name__ == "__main__":
    main()
