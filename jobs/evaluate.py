"""Evaluate a benchmark on a Ray cluster: workers sweep its shards as in jobs/audit.py, the rest is `auditor evaluate`.

    python jobs/evaluate.py coco --data coco-shards --model ViT-B-32@openai --out results.json
    ray job submit --working-dir . -- python jobs/evaluate.py coco --data s3://bucket/coco --model ViT-B-32@openai \\
        --out s3://bucket/coco.json --workers 8 --gpus-per-worker 1
    ray submit jobs/cluster.yaml jobs/evaluate.py -- coco --data s3://bucket/coco --model ViT-B-32@openai \\
        --out s3://bucket/coco.json --workers 8 --gpus-per-worker 1 --cpus-per-worker 16

Workers write embeddings to --cache, which every node must see: OUT-embeddings by default. The same command again reads
the shards that are there. A shard's embeddings do not depend on the worker, so the tables are those of a single machine
to the last digit.
"""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import click

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a checkout works without being installed

from auditor.audit_folder.folder import split_target
from auditor.cli import run_command_line
from auditor.commands.train_and_evaluate.evaluate import benchmark_options, show_results
from jobs.worker_options import WorkerRequest, make_absolute, make_model_absolute, refuse_lost_output, worker_options
from model.model_names import check_model_name


@click.command()
@benchmark_options
@worker_options
@click.option("--decoders", type=int, help="Decoder processes of each worker [default: one for each of its CPUs].")
def command(
    model: str,
    out: str | None,
    cache: str | None,
    request: WorkerRequest,
    frames: int,
    decoders: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Measure retrieval on a benchmark, encoded on a Ray cluster.

    \b
    Example:
      python jobs/evaluate.py coco --data coco-shards --model ViT-B-32@openai --workers 8 --out results.json
    """
    if out is None:
        raise click.MissingParameter(param_type="option", param_hint="--out")
    refuse_lost_output(out)
    out = make_absolute(out)
    split_target(out)  # refuses a wrong name before the work, not after it
    check_model_name(model)
    from auditor.research.evaluate.benchmark_evaluation import EvaluateConfig, evaluate_benchmark, save_results
    from auditor.research.evaluate.benchmark_splits import SplitSweeper, make_audit_config
    from auditor.run.ray_engine import make_ray_engine
    from jobs.cluster import connect_workers
    from model.checkpoint import load_model

    loaded = load_model(model, "cpu")
    placement = connect_workers(request)
    config = EvaluateConfig(**options)
    root = make_absolute(cache) if cache else f"{out}-embeddings"
    device, decoders = "cuda" if request.gpus else "cpu", decoders or placement.threads
    sweep_config = make_audit_config(config.data, root, make_model_absolute(model) or model, frames, decoders, device)
    sweep_split = SplitSweeper(loaded.backbone, sweep_config, partial(make_ray_engine, placement))
    results = evaluate_benchmark(config, loaded.backbone, loaded.head, sweep_split)
    save_results(results, out)
    show_results(results, as_json)


if __name__ == "__main__":
    sys.exit(run_command_line(command=command))
