"""Benchmarks on a Ray cluster: shards are encoded by workers, everything else is what `auditor evaluate` does.

    python jobs/evaluate.py coco --data coco-shards --model ViT-B-32@openai --out results.json
    ray job submit --working-dir . -- python jobs/evaluate.py coco --data s3://bucket/coco --model ViT-B-32@openai \\
        --out s3://bucket/coco.json --workers 8 --gpus-per-worker 1
    ray submit jobs/cluster.yaml jobs/evaluate.py -- coco --data s3://bucket/coco --model ViT-B-32@openai \\
        --out s3://bucket/coco.json --workers 8 --gpus-per-worker 1 --cpus-per-worker 16

A worker holds one backbone and its decoders and encodes one shard at a time; results are put back into the order of the
shards, so the tables are those of a single machine to the last digit.
"""

import itertools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import ray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a checkout works without being installed

from auditor.cli import run
from auditor.commands.evaluate import BENCHMARKS, show
from auditor.console import as_json
from auditor.corpus.reader import Shard
from auditor.evaluate.encoding import EncodedShard, Encoder
from auditor.evaluate.evaluate import EvaluateConfig, evaluate
from auditor.run.distribute import Placement, WorkerError, one_line
from auditor.store.folder import Folder
from jobs.cluster import await_room, check_out, connect, full_path, share_of_node, visible, worker_options
from model.checkpoint import load_model

RETRIES = 3  # of a shard whose worker died


class ShardEncoder:
    """What each worker holds."""

    def __init__(self, model: str, device: str, frames: int, decoders: int):
        self.encoder = Encoder(load_model(model, device).backbone, frames, decoders)

    def ready(self) -> None:
        """Answered once the worker has its node and its model."""

    def encode(self, shard: Shard) -> EncodedShard:
        return self.encoder.encode(shard)


class RayEncoder:
    """Encodes shards on the cluster: each goes to the next worker that is free, and they come back in order.

    Ray's ActorPool would give shards to workers that still wait for a node, which may never come.
    """

    def __init__(self, model: str, placement: Placement, *, frames: int, decoders: int | None = None):
        remote: Any = ray.remote(
            num_cpus=placement.cpus, num_gpus=placement.gpus, max_restarts=RETRIES, max_task_retries=RETRIES
        )(ShardEncoder)
        device = "cuda" if placement.gpus else "cpu"
        count = placement.workers or placement.room() or 1
        arguments = (model, device, frames, decoders or placement.threads)
        self.actors = [remote.remote(*arguments) for _ in range(count)]

    def __call__(self, shards: Sequence[Shard]) -> Iterator[EncodedShard]:
        try:
            yield from self._in_order(shards)
        except ray.exceptions.RayError as error:
            raise WorkerError(f"a shard could not be encoded: {one_line(error)}") from error

    def _in_order(self, shards: Sequence[Shard]) -> Iterator[EncodedShard]:
        todo = enumerate(shards)
        busy: dict[Any, tuple[int | None, Any]] = {actor.ready.remote(): (None, actor) for actor in self.actors}
        done: dict[int, EncodedShard] = {}
        given = 0
        while given < len(shards):
            [answer], _ = ray.wait(list(busy))
            number, actor = busy.pop(answer)
            encoded = ray.get(answer)
            if number is not None:
                done[number] = encoded
            for following, shard in itertools.islice(todo, 1):
                busy[actor.encode.remote(shard)] = (following, actor)
            while given in done:
                yield done.pop(given)
                given += 1

    def close(self) -> None:
        for actor in self.actors:
            ray.kill(actor)


@click.command()
@click.argument("benchmark", type=click.Choice(BENCHMARKS))
@click.option("--data", required=True, help="Folder or URL of shards that every worker can read.")
@click.option("--model", required=True, help="An open_clip model or a checkpoint folder.")
@click.option("--out", required=True, metavar="FILE", help="Where the JSON for the dashboard goes; a path or a URL.")
@click.option("--split", help="What to report on; the benchmark's own test split by default.")
@click.option("--validation", help="Split that re-ranking is fitted on; val, or train where there is none.")
@worker_options
@click.option("--frames", default=12, show_default=True, help="Frames of a video.")
@click.option("--decoders", type=int, help="Decoder processes of each worker; one for each of its CPUs by default.")
@click.option("--max-failed", default=0.01, show_default=True, help="Share of media that may fail to decode.")
@click.option("--json", "json_", is_flag=True, help="All results as JSON.")
def command(
    benchmark: str,
    data: str,
    model: str,
    out: str,
    split: str | None,
    validation: str | None,
    workers: int | None,
    cpus: float | None,
    gpus: float,
    address: str | None,
    frames: int,
    decoders: int | None,
    max_failed: float,
    json_: bool,
) -> None:
    """Retrieval on a benchmark, encoded on a Ray cluster.

    \b
    Example:
      python jobs/evaluate.py coco --data coco-shards --model ViT-B-32@openai --workers 8 --out results.json
    """
    check_out(out)
    folder, name = file_at(out)
    loaded = load_model(model, "cpu")
    started = connect(address, Path(__file__).resolve().parents[1], quiet=True)
    placement = Placement(workers, cpus or share_of_node(gpus), gpus)
    await_room(placement, started=started)
    encoder = RayEncoder(visible(model) or model, placement, frames=frames, decoders=decoders)
    try:
        config = EvaluateConfig(benchmark, data, split, validation, max_failed=max_failed)
        results = evaluate(config, loaded.backbone, loaded.head, encoder)
    finally:
        encoder.close()
    with folder.writing(name) as partial:
        partial.write_text(as_json(results) + "\n", encoding="utf-8")
    show(results, json_)


def file_at(out: str) -> tuple[Folder, str]:
    """The folder that a file goes into, on disk or behind a URL, and its name there."""
    folder, _, name = full_path(out).rpartition("/")
    if not name or folder.endswith(":/"):
        raise WorkerError(f"--out {out} names no file: give one such as results.json or s3://bucket/results.json")
    return Folder(folder or "/"), name


if __name__ == "__main__":
    sys.exit(run(command=command))
