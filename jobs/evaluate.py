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

from auditor.audit_folder.folder import split_target
from auditor.cli import run
from auditor.commands.evaluate import benchmark_options, show
from auditor.corpus.open_corpus import Shard
from auditor.research.evaluate.benchmark_encoding import EncodedShard, Encoder
from auditor.research.evaluate.evaluate import EvaluateConfig, evaluate, save_results
from auditor.run.ray_engine import Placement, WorkerError, one_line
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
@benchmark_options
@worker_options
@click.option("--decoders", type=int, help="Decoder processes of each worker; one for each of its CPUs by default.")
def command(
    model: str,
    out: str | None,
    workers: int | None,
    cpus: float | None,
    gpus: float,
    address: str | None,
    frames: int,
    decoders: int | None,
    json_: bool,
    **given: Any,
) -> None:
    """Retrieval on a benchmark, encoded on a Ray cluster.

    \b
    Example:
      python jobs/evaluate.py coco --data coco-shards --model ViT-B-32@openai --workers 8 --out results.json
    """
    if out is None:
        raise click.MissingParameter(param_type="option", param_hint="--out")
    check_out(out)
    split_target(full_path(out))  # a wrong name is refused before the work, not after it
    loaded = load_model(model, "cpu")
    started = connect(address, Path(__file__).resolve().parents[1], quiet=True)
    placement = Placement(workers, cpus or share_of_node(gpus), gpus)
    await_room(placement, started=started)
    encoder = RayEncoder(visible(model) or model, placement, frames=frames, decoders=decoders)
    try:
        results = evaluate(EvaluateConfig(**given), loaded.backbone, loaded.head, encoder)
    finally:
        encoder.close()
    save_results(results, full_path(out))
    show(results, json_)


if __name__ == "__main__":
    sys.exit(run(command=command))
