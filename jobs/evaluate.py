"""Benchmarks on a Ray cluster: shards are encoded by workers, everything else is what `auditor evaluate` does.

    python jobs/evaluate.py coco --data s3://bucket/coco --model ViT-B-32@openai --workers 8 --out results.json

A worker holds one backbone and its decoders and encodes one shard at a time; results come back in the order of the
shards, so the tables are those of a single machine to the last digit.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import ray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a checkout works without being installed

from auditor.benchmark_encoding import EncodedShard, Encoder
from auditor.cli import run
from auditor.commands.evaluate import BENCHMARKS, show
from auditor.corpus.reader import Shard
from auditor.evaluate import EvaluateConfig, evaluate, save_results
from model.checkpoint import load_model

RETRIES = 3  # of a shard whose worker died


class ShardEncoder:
    """What each worker holds."""

    def __init__(self, model: str, device: str, frames: int, decoders: int):
        self.encoder = Encoder(load_model(model, device).backbone, frames, decoders)

    def encode(self, shard: Shard) -> EncodedShard:
        return self.encoder.encode(shard)


class RayEncoder:
    """Encodes shards on the cluster, at most two ahead per worker, in order."""

    def __init__(self, model: str, *, workers: int, device: str, frames: int, decoders: int, cpus: float, gpus: float):
        remote: Any = ray.remote(num_cpus=cpus, num_gpus=gpus, max_restarts=RETRIES, max_task_retries=RETRIES)(
            ShardEncoder
        )
        self.actors = [remote.remote(model, device, frames, decoders) for _ in range(workers)]

    def __call__(self, shards: Sequence[Shard]) -> Iterator[EncodedShard]:
        ahead = 2 * len(self.actors)
        running: list[Any] = []
        for number, shard in enumerate(shards):
            running.append(self.actors[number % len(self.actors)].encode.remote(shard))
            if len(running) >= ahead:
                yield ray.get(running.pop(0))
        while running:
            yield ray.get(running.pop(0))

    def close(self) -> None:
        for actor in self.actors:
            ray.kill(actor)


@click.command()
@click.argument("benchmark", type=click.Choice(BENCHMARKS))
@click.option("--data", required=True, help="Folder or URL of shards that every worker can read.")
@click.option("--model", required=True, help="An open_clip model or a checkpoint folder.")
@click.option("--out", type=click.Path(path_type=Path), required=True)
@click.option("--split", help="What to report on; the benchmark's own test split by default.")
@click.option("--validation", help="Split that re-ranking is fitted on; val, or train where there is none.")
@click.option("--workers", default=2, show_default=True)
@click.option("--cpus", default=1.0, show_default=True, help="Of each worker.")
@click.option("--gpus", default=0.0, show_default=True, help="Of each worker; above zero the model runs on cuda.")
@click.option("--frames", default=12, show_default=True)
@click.option("--decoders", default=2, show_default=True, help="Decoder processes of each worker.")
@click.option("--max-failed", default=0.01, show_default=True, help="Share of media that may fail to decode.")
@click.option("--json", "json_", is_flag=True, help="All results as JSON.")
def command(
    benchmark: str,
    data: str,
    model: str,
    out: Path,
    split: str | None,
    validation: str | None,
    workers: int,
    cpus: float,
    gpus: float,
    frames: int,
    decoders: int,
    max_failed: float,
    json_: bool,
) -> None:
    """Retrieval on a benchmark, encoded on a Ray cluster.

    \b
    Example:
      python jobs/evaluate.py coco --data coco-shards --model ViT-B-32@openai --workers 8 --out results.json
    """
    ray.init(ignore_reinit_error=True, log_to_driver=False)
    device = "cuda" if gpus > 0 else "cpu"
    encoder = RayEncoder(model, workers=workers, device=device, frames=frames, decoders=decoders, cpus=cpus, gpus=gpus)
    try:
        loaded = load_model(model, "cpu")
        config = EvaluateConfig(benchmark, data, split, validation, max_failed=max_failed)
        results = evaluate(config, loaded.backbone, loaded.head, encoder)
    finally:
        encoder.close()
    save_results(results, out)
    show(results, json_)


if __name__ == "__main__":
    sys.exit(run(command=command))
