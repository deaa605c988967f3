"""Audit a corpus on a Ray cluster: `auditor audit`, with the shards distributed to workers.

    python jobs/audit.py 's3://bucket/shards/*.tar' --out s3://bucket/audit --model ViT-B-32@laion2b_s34b_b79k
    ray job submit --working-dir . -- python jobs/audit.py CORPUS --out AUDIT --gpus-per-worker 1
    ray submit jobs/cluster.yaml jobs/audit.py -- CORPUS --out AUDIT --gpus-per-worker 1 --cpus-per-worker 16

Without a cluster, Ray is started on this machine. Every node must be able to access the corpus, the audit and the
model. Run the same command again to resume. The exit code is 1 if a shard could not be read, so that a submitted job
fails as well.
"""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import click

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a checkout works without being installed

from auditor.cli import run_command_line
from auditor.commands.everyday.audit import audit_options
from auditor.run.start_audit import build_audit_config, open_inputs
from jobs.worker_options import WorkerRequest, is_submitted_job, make_model_absolute, refuse_lost_output, worker_options


@click.command()
@audit_options
@worker_options
def command(request: WorkerRequest, as_json: bool, **values: Any) -> None:
    """Sweep CORPUS and score every pair, on a Ray cluster.

    \b
    python jobs/audit.py 'shards/{00000..00099}.tar' --out audit --model ViT-B-32@laion2b_s34b_b79k --workers 4
    """
    refuse_lost_output(values["out"])
    corpus = open_inputs(values, [values["model"]])
    from auditor.run.extend import extend_audit
    from auditor.run.outcome import report_outcome
    from auditor.run.ray_engine import make_ray_engine
    from auditor.run.run_audit import run_audit
    from jobs.cluster import connect_workers

    placement = connect_workers(request, quiet=values["quiet"])
    values["decoders"] = values["decoders"] or placement.threads
    if values["device"] == "auto":
        values["device"] = "cuda" if request.gpus else "cpu"
    values["model"] = values["model"] if is_submitted_job() else make_model_absolute(values["model"])
    work = extend_audit if values["extend"] else run_audit
    manifest = work(build_audit_config(values), partial(make_ray_engine, placement), "cpu", corpus)
    report_outcome(values["out"], manifest, as_json=as_json)


if __name__ == "__main__":
    sys.exit(run_command_line(command=command))
