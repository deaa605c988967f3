"""Try models on a sample of a corpus on a Ray cluster: `auditor encoders`, with a worker for each model.

    python jobs/encoders.py 's3://bucket/shards/*.tar' --try ViT-B-32@laion2b_s34b_b79k --try my-pau/best
    ray job submit --working-dir . -- python jobs/encoders.py CORPUS --try M1 --try M2 --gpus-per-worker 1

Every worker draws the same pairs from the corpus, which all nodes must be able to access.
"""

import sys
from pathlib import Path
from typing import Any

import click

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a checkout works without being installed

from auditor.cli import run_command_line
from auditor.commands.everyday.encoders import build_trial_config, encoders_options, show_trials
from auditor.run.start_audit import open_inputs
from jobs.worker_options import WorkerRequest, is_submitted_job, make_model_absolute, worker_options


@click.command()
@encoders_options
@worker_options
def command(
    models: tuple[str, ...],
    sample: int,
    request: WorkerRequest,
    as_json: bool,
    **values: Any,
) -> None:
    """Try models on a random sample of CORPUS, each on a worker of a Ray cluster, and rank them.

    \b
    python jobs/encoders.py 'shards/{00000..00099}.tar' --try ViT-B-32@laion2b_s34b_b79k --try my-pau/best --workers 2
    """
    if values["device"] == "auto":
        values["device"] = "cuda" if request.gpus else "cpu"
    corpus = open_inputs(values, models if len(models) == 1 else ())  # of several, the others are tried
    from auditor.run.compare_encoders import list_models
    from auditor.run.ray_engine import run_on_workers
    from jobs.cluster import connect_workers
    from jobs.trial_worker import TrialWorker

    names = list_models(corpus, [model if is_submitted_job() else make_model_absolute(model) or "" for model in models])
    placement = connect_workers(request)
    values["decoders"] = values["decoders"] or placement.threads
    config = build_trial_config({**values, "quiet": True})
    arguments = {"corpus": corpus, "config": config, "count": sample, "threads": placement.threads}
    show_trials(run_on_workers(TrialWorker, {name: name for name in names}, arguments, placement), as_json=as_json)


if __name__ == "__main__":
    sys.exit(run_command_line(command=command))
