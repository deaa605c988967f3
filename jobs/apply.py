"""Apply your own function to an audit on a Ray cluster; its results become columns, as with `Audit.apply`.

    python jobs/apply.py s3://bucket/audit my_scores:aesthetics --columns image --gpus-per-worker 1
    ray job submit --working-dir . -- python jobs/apply.py s3://bucket/audit my_scores:Language --columns caption

`my_scores` is a module that the workers can import: in the submitted folder, or installed. A class is instantiated once
in each worker, so that a model is loaded once. A file of linear layers on embeddings works as with `auditor apply`. Run
the same command again to continue with the missing shards.
"""

import os
import sys
from pathlib import Path
from typing import Any

import click

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a checkout works without being installed

from auditor import console
from auditor.choose.linear_heads import is_head_file
from auditor.cli import run_command_line
from auditor.commands.repair_and_export.apply import apply_options, load_function, print_applied, split_columns
from auditor.corpus.read_medium import MediaPlaces
from auditor.query.apply_function import (
    ApplyResult,
    ApplyTask,
    Function,
    ShardWorker,
    begin_apply,
    make_apply_task,
    summarize_apply,
)
from auditor.query.database import AuditDatabase
from auditor.query.join_columns import ColumnError
from auditor.query.sandbox import Limits
from auditor.run.ray_engine import BlockWorker, Placement, run_on_workers
from jobs.cluster import connect_workers
from jobs.worker_options import WorkerRequest, make_absolute, worker_options


class ApplyWorker(BlockWorker):
    """Holds the audit, the function and its decoders."""

    def __init__(self, audit: str, places: MediaPlaces, function: str | Function, work: ApplyTask):
        self.database = AuditDatabase(audit, places, limits=Limits(seconds=None))
        loaded = load_function(function) if isinstance(function, str) else function
        self.worker = ShardWorker(self.database, loaded, work).__enter__()

    def run(self, shard: str) -> int:
        return self.worker.run(shard)


def apply_on_cluster(
    database: AuditDatabase, function: str | Function, work: ApplyTask, placement: Placement, force: bool
) -> ApplyResult:
    arguments = {"audit": database.path, "places": database.places, "function": function, "work": work}
    with begin_apply(database, work, force) as todo:
        failures: dict[str, str] = {}
        with console.Progress("apply", len(todo), "shards") as progress:
            for shard, _, failure in run_on_workers(ApplyWorker, {name: name for name in todo}, arguments, placement):
                if failure:
                    failures[shard] = failure
                else:
                    progress.advance(1)
        if failures:
            shard, reason = next(iter(failures.items()))
            raise ColumnError(f"{len(failures):,} of {len(todo):,} shards failed, such as {shard}: {reason}")
    return summarize_apply(database, work, len(todo))


@click.command()
@click.argument("audit")
@apply_options
@worker_options
def command(
    audit: str,
    function: str,
    columns: str,
    activation: str | None,
    corpus: str | None,
    force: bool,
    as_json: bool,
    request: WorkerRequest,
    **options: Any,
) -> None:
    """Call FUNCTION (module:name) with batches of the usable rows of AUDIT and store its results as columns.

    \b
    python jobs/apply.py audit my_scores:aesthetics --columns image --workers 2
    """
    function_object = load_function(function, options["name"], activation)
    audit_path = make_absolute(audit)
    with AuditDatabase(audit_path, corpus and make_absolute(corpus), limits=Limits(seconds=None)) as database:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH")]))
        placement = connect_workers(request)
        work = make_apply_task(function_object, split_columns(columns), decoders=placement.threads, **options)
        portable = function_object if is_head_file(function) else function
        result = apply_on_cluster(database, portable, work, placement, force)
    print_applied(result, as_json)


if __name__ == "__main__":
    sys.exit(run_command_line(command=command))
