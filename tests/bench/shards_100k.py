"""Measure how far one driver scales: 1,000 to 100,000 tiny shards listed, placed, resumed and scored with Ray.

    python -m tests.bench.shards_100k [--shards 1000 --shards 10000 --shards 100000] [--workers 2] [--no-score]

The encoder does nothing, so only the cost of a shard itself remains: listing, placing, opening, its files, its report.
Time per shard and the driver's memory should not grow with the number of shards. One shard in fifty has a pair that can
be decoded; the others are captions without a medium, which also become rows.
"""

import json
import os
import resource
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import numpy as np
import ray
import torch

from auditor.audit_folder.folder import Folder
from auditor.audit_folder.manifest import Manifest
from auditor.console import print_table
from auditor.corpus.open_corpus import open_corpus
from auditor.run.audit_config import AuditConfig
from auditor.run.ray_engine import Placement, RayEngine, SweepWorker
from auditor.run.run_audit import account_for_shards, begin_manifest, sweep_corpus
from auditor.run.scoring import score_corpus
from auditor.score.score_config import ScoreConfig
from auditor.sweep.sweep import Sweeper
from auditor.sweep.sweep_config import SweepConfig
from model.checkpoint import LoadedModel
from model.pixels import PixelSpec
from tests.support.corpora import make_sample, write_tar

ROOT = Path(__file__).resolve().parents[2]
DIM = 8
SOURCES = 200  # different tars; the others are links to them


class Nothing:
    """An encoder that does nothing: its vectors depend only on the size of the input."""

    spec, fingerprint, dim, logit_scale, pixels = "nothing", "0" * 32, DIM, 100.0, PixelSpec(size=(32, 32))

    def encode_images(self, pixels: np.ndarray[Any, Any]) -> torch.Tensor:
        return torch.nn.functional.normalize(torch.from_numpy(pixels.reshape(len(pixels), DIM, -1).mean(2)), dim=1)

    def encode_texts(self, captions: list[str]) -> torch.Tensor:
        counts = [[text.count(letter) + 1.0 for letter in "aeiousrt"] for text in captions]
        return torch.nn.functional.normalize(torch.tensor(counts), dim=1)


class IdleWorker(SweepWorker):
    """A worker with that encoder; everything else is as in an audit."""

    def __init__(self, folder: Folder, config: SweepConfig):
        torch.set_num_threads(1)
        self.folder = folder
        self.sweeper = Sweeper(Nothing(), folder, config).__enter__()  # type: ignore[arg-type]


def write_shards(folder: Path, count: int) -> None:
    """Write `count` tars of one sample, most of them links: only their number matters."""
    sources = folder.parent / f"sources-{count}"
    for index in range(SOURCES):
        members = make_sample(index) if index % 50 == 0 else {"txt": b"a caption without a medium"}
        write_tar(sources / f"{index}.tar", [(f"{index:06d}", members)])
    folder.mkdir()
    for index in range(count):
        os.link(sources / f"{index % SOURCES}.tar", folder / f"{index:06d}.tar")


def resident() -> float:
    """MB of memory that this process uses now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


@contextmanager
def timed(found: dict[str, float], name: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    found[name] = time.perf_counter() - start


def measure(place: Path, count: int, workers: int, scored: bool) -> dict[str, float]:
    """Audit `count` shards, then again with everything finished."""
    write_shards(place / f"corpus-{count}", count)
    folder = Folder(place / f"audit-{count}")
    sweep = SweepConfig(frames=1, decoders=1)
    audit = AuditConfig(str(place / f"corpus-{count}"), folder.url, sweep=sweep, max_error_rate=1.0, quiet=True)
    engine = RayEngine(folder, {"folder": folder, "config": sweep}, Placement(workers), IdleWorker)
    found: dict[str, float] = {"shards": count, "memory_before_mb": resident()}
    with timed(found, "list_s"):
        corpus = open_corpus(audit.corpus)
    manifest = begin_manifest(folder, corpus, LoadedModel(Nothing(), None), audit, {})  # type: ignore[arg-type]
    with timed(found, "sweep_s"):
        account_for_shards(corpus, sweep_corpus(folder, corpus, engine, audit, manifest), manifest)
    found["memory_swept_mb"] = resident()
    with timed(found, "resume_s"):
        reports = sweep_corpus(folder, corpus, engine, audit, manifest)
    names = [report.shard for report in reports if report.failure is None]
    if manifest.failed_shards or len(names) != count:
        raise RuntimeError(f"{len(manifest.failed_shards)} of {count} shards failed: {manifest.failed_shards[:1]}")
    if scored:
        with timed(found, "score_s"):
            score(folder, names, engine, manifest, audit.score)
        found["memory_scored_mb"] = resident()
    manifest.save(folder)
    found["manifest_kb"] = (place / f"audit-{count}" / "manifest.json").stat().st_size / 1024
    return found


def score(folder: Folder, names: list[str], engine: RayEngine, manifest: Manifest, config: ScoreConfig) -> None:
    score_corpus(folder, names, engine, None, manifest, config, True)


def per_shard(found: dict[str, float]) -> dict[str, float]:
    """Milliseconds per shard, and the driver's memory."""
    times = {f"{name[:-2]}_ms": found[name] / found["shards"] * 1000 for name in found if name.endswith("_s")}
    return {"shards": found["shards"], **times, **{k: round(v) for k, v in found.items() if k.endswith(("_mb", "_kb"))}}


@click.command()
@click.option("--shards", type=int, multiple=True, default=[1_000, 10_000, 100_000], show_default=True)
@click.option("--workers", default=2, show_default=True)
@click.option("--score/--no-score", "scored", default=True, show_default=True, help="Also score the shards.")
@click.option("--place", type=click.Path(path_type=Path), help="Folder for the shards [default: a temporary folder].")
def main(shards: tuple[int, ...], workers: int, scored: bool, place: Path | None) -> None:
    """Measure the cost per shard for each number of shards."""
    paths = {"env_vars": {"PYTHONPATH": str(ROOT)}}
    ray.init(
        "local",
        num_cpus=workers,
        object_store_memory=200 * 2**20,
        include_dashboard=False,
        runtime_env=paths,
        log_to_driver=False,
        logging_level="error",
    )
    results = []
    with tempfile.TemporaryDirectory(dir=place) as folder:
        for count in shards:
            results.append(measure(Path(folder), count, workers, scored))
            print_table([per_shard(found) for found in results], "per shard")
            output = ROOT / "bench-results" / "shards_100k.json"
            output.parent.mkdir(exist_ok=True)
            output.write_text(json.dumps({"workers": workers, "cores": os.cpu_count(), "runs": results}, indent=1))
    ray.shutdown()


if __name__ == "__main__":
    main()
