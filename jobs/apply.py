"""Apply your own function to an audit on a Ray cluster; its results become columns, as with `Audit.apply`.

    python jobs/apply.py s3://bucket/audit my_scores:aesthetics --columns image --gpus-per-worker 1
    ray job submit --working-dir . -- python jobs/apply.py s3://bucket/audit my_scores:Language --columns caption

`my_scores` is a module that the workers can import: in the submitted folder, or installed. A class is instantiated once
in each worker, so that a model is loaded once. Run the same command again to continue with the missing shards.
"""

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import click

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a checkout works without being installed

from auditor import console
from auditor.cli import run_command_line
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
from auditor.terminal import print_line
from jobs.cluster import connect_workers
from jobs.worker_options import make_absolute, worker_options


class ApplyWorker(BlockWorker):
    """Holds the audit, the function and its decoders."""

    def __init__(self, audit: str, places: MediaPlaces, function: str, work: ApplyTask):
        self.database = AuditDatabase(audit, places, limits=Limits(seconds=None))
        self.worker = ShardWorker(self.database, find_function(function), work).__enter__()

    def run(self, shard: str) -> int:
        return self.worker.run(shard)


def find_function(spec: str) -> Function:
    """Import `module:name`, also from the current folder."""
    module, _, name = spec.partition(":")
    if not module or not name:
        raise ColumnError(f"{spec!r} is not of the form my_module:my_function")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        candidate = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ColumnError(f"{spec} cannot be imported: {error}") from error
    if not callable(candidate):
        raise ColumnError(f"{spec} is not a function but {type(candidate).__name__}")
    function: Function = candidate
    return function


def apply_on_cluster(
    database: AuditDatabase, function: str, work: ApplyTask, placement: Placement, force: bool
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
@click.argument("function")
@click.option(
    "--columns",
    required=True,
    help="Inputs of the function, separated by commas: caption, visual, text, image, media or any column of the audit.",
)
@click.option("--name", help="Name of the source of the new columns [default: the function's name].")
@click.option("--prefix", default="", help="Prefix of the names of the new columns.")
@click.option("--batch-size", type=click.IntRange(1), default=256, show_default=True, help="Rows in a call.")
@click.option("--image-size", type=click.IntRange(1), default=224, show_default=True, help="Size of decoded images.")
@click.option("--corpus", help="Present location of the corpus, if it has moved since the audit.")
@click.option("--force", is_flag=True, help="Replace existing columns of this source.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@worker_options
def command(
    audit: str,
    function: str,
    columns: str,
    corpus: str | None,
    force: bool,
    as_json: bool,
    workers: int | None,
    cpus: float | None,
    gpus: float,
    address: str | None,
    **options: Any,
) -> None:
    """Call FUNCTION (module:name) with batches of the usable rows of AUDIT and store its results as columns.

    \b
    python jobs/apply.py audit my_scores:aesthetics --columns image --workers 2
    """
    column_names = [column.strip() for column in columns.split(",") if column.strip()]
    function_object = find_function(function)
    audit_path = make_absolute(audit)
    with AuditDatabase(audit_path, corpus and make_absolute(corpus), limits=Limits(seconds=None)) as database:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH")]))
        placement = connect_workers(workers, cpus, gpus, address, quiet=True)
        work = make_apply_task(function_object, column_names, decoders=placement.threads, **options)
        result = apply_on_cluster(database, function, work, placement, force)
    print_line(json.dumps(result.to_dict()) if as_json else format_applied(result))


def format_applied(result: ApplyResult) -> str:
    missed = f"; {result.missed:,} rows without a readable medium" if result.missed else ""
    resumed = f", {result.resumed:,} of them done before" if result.resumed else ""
    return f"{', '.join(result.columns)}: {result.rows:,} rows in {result.shards:,} shards{resumed}{missed}"


if __name__ == "__main__":
    sys.exit(run_command_line(command=command))
