"""Plant shifted captions in long videos and measure how well an audit finds the shifts.

    python -m tests.bench.drift [--model demo/model/best] [--videos 100]

Generated clips of 3 to 8 seconds (from seeds that the demo's model has not seen) are joined to videos of 20 clips. Each
caption has the span of its clip. The same videos are audited with these spans, with spans shifted by 2 to 20 seconds in
either direction, and with ends that are wrong by up to 4 seconds each. The default model is that of `make demo`.
"""

import argparse
import itertools
import json
import random
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from auditor import Audit
from auditor.console import print_table
from auditor.corpus.shard_writer import write_shard
from auditor.demo.scene_clips import FPS, describe_shot, draw_shot, encode_mp4, imagine_shot
from auditor.run.audit_config import AuditConfig
from auditor.run.run_audit import run_audit
from auditor.sweep.sweep_config import SweepConfig
from tests.support.clips import concatenate_clips

MODEL = Path("demo/model/best")
CLIPS, SCENES, SHARD = 400, 20, 25
FIRST = 70_000  # seed of the first clip
HALF = 1.0  # seconds: half of the step between the frames around spans
SURE = 0.01
Scene = tuple[bytes, float, str]  # the clip, its seconds and its caption


def scene(number: int) -> Scene:
    rng = random.Random(number)
    shot, count = imagine_shot(rng), rng.randint(3 * FPS, 8 * FPS)
    return encode_mp4(draw_shot(shot, count)), count / FPS, describe_shot(shot, rng)


def sample(scenes: list[Scene], shift: float, jitter: float, rng: random.Random) -> tuple[dict[str, bytes], Any]:
    """A video with its captions, `shift` seconds too early, and the true spans."""
    edges = np.concatenate([[0.0], np.cumsum([seconds for _, seconds, _ in scenes])])
    truth = [(float(a), float(b)) for a, b in itertools.pairwise(edges)]
    segments = []
    for (start, end), (_, _, text) in zip(truth, scenes, strict=True):
        a, b = (time - shift + rng.uniform(-jitter, jitter) for time in (start, end))
        segments.append({"start": min(a, b - 0.5), "end": b, "caption": text})
    return {
        "mp4": concatenate_clips(clip for clip, _, _ in scenes),
        "json": json.dumps({"segments": segments}).encode(),
    }, truth


def audited(folder: Path, model: str, pool: list[Scene], shifts: list[float], jitter: float) -> list[dict[str, Any]]:
    """Rows of timed captions, each with the planted truth."""
    truths, samples = [], []
    for number, shift in enumerate(shifts):
        rng = random.Random(f"video {number}")
        members, truth = sample(rng.sample(pool, SCENES), shift, jitter, rng)
        samples.append((f"v{number:04d}", members))
        truths.append(truth)
    for first in range(0, len(samples), SHARD):
        write_shard(folder / "corpus" / f"{first // SHARD:05d}.tar", samples[first : first + SHARD])
    sweep = SweepConfig(frames=4, decoders=1)
    run_audit(AuditConfig(str(folder / "corpus"), str(folder / "audit"), model, quiet=True, sweep=sweep))
    with Audit(folder / "audit") as audit:
        rows = audit.sql("SELECT * FROM samples WHERE status = 'ok' AND start IS NOT NULL").to_pylist()
    return [
        {**row, "planted": shifts[(video := int(row["key"][1:]))], "true": truths[video][row["caption_index"]]}
        for row in rows
    ]


def by_video(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return list({row["key"]: row for row in rows}.values())


def reported(row: dict[str, Any]) -> bool:
    return row["p_time_shift"] is not None and row["p_time_shift"] <= SURE and abs(row["time_shift"]) > HALF


def shift_row(name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    videos = by_video(rows)
    error = np.array([abs(row["time_shift"] - row["planted"]) for row in videos])
    told = np.array([reported(row) for row in videos])
    return {
        "videos": name,
        "of": len(videos),
        "reported": f"{np.mean(told):.1%}",
        "within 1 s (half the grid)": f"{np.mean(error <= HALF):.1%}",
        "within 0.5 s": f"{np.mean(error <= HALF / 2):.1%}",
        "reported and within 1 s": f"{np.mean(told & (error <= HALF)):.1%}",
        "median error, s": round(float(np.median(error)), 2),
    }


def overlap(row: dict[str, Any], start: str, end: str) -> float:
    (a, b), low, high = row["true"], row[start], row[end]
    both = max(0.0, min(high, b) - max(low, a))
    return both / (high - low + b - a - both)


def span_row(name: str, rows: list[dict[str, Any]], start: str, end: str) -> dict[str, Any]:
    found = np.array([overlap(row, start, end) for row in rows])
    return {"span": name, "captions": len(rows), "IoU >= 0.5": f"{np.mean(found >= 0.5):.1%}", "mean": found.mean()}


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--model", default=str(MODEL))
    arguments.add_argument("--videos", type=int, default=100)
    chosen = arguments.parse_args()
    if not Path(chosen.model).exists():
        raise SystemExit(f"{chosen.model} is not there: `make demo` trains it")
    with ProcessPoolExecutor(2) as workers:
        pool = list(workers.map(scene, range(FIRST, FIRST + CLIPS), chunksize=8))
    rng = random.Random(0)
    shifts = [rng.uniform(2, 20) * rng.choice((-1, 1)) for _ in range(chosen.videos)]
    with tempfile.TemporaryDirectory() as folder:
        runs = {"aligned": ([0.0] * chosen.videos, 0.0), "shifted": (shifts, 0.0), "loose": ([0.0] * 40, 4.0)}
        rows = {name: audited(Path(folder) / name, chosen.model, pool, *given) for name, given in runs.items()}
    print_table([shift_row(name, rows[name]) for name in ("aligned", "shifted")], "shifts of whole videos")
    loose = rows["loose"]
    spans = span_row("as given", loose, "start", "end"), span_row("as found", loose, "best_start", "best_end")
    print_table(list(spans), "spans in which each caption is true; the given spans are wrong by up to 4 s at each end")


if __name__ == "__main__":
    main()
