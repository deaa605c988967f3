"""Apply your own function to an audit on a Ray cluster; its results become columns, as with `Audit.apply`.

    python jobs/apply.py s3://bucket/audit my_scores:aesthetics --columns image --gpus-per-worker 1
    ray job submit --working-dir . -- python jobs/apply.py s3://bucket/audit my_scores:Language --columns caption

`my_scores` is a module that the workers can import: in the submitted folder, or installed. A class is instantiated once
in each worker, so that a model is loaded once. Run the same command again to continue with the missing shards.
"""

import importlib
import json
import os
import pickle
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a checkout works without being installed

from auditor import console
from auditor.cli import run_command_line
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
from auditor.run.ray_engine import PASSES, Placement, stream_worker_rows, summarize_error
from auditor.terminal import print_line
from jobs.cluster import check_cluster_room, choose_worker_cpus, connect, make_absolute, worker_options


class ApplyWorker:
    """Holds the audit, the function and its decoders; applies the function to the shards of a block."""

    def __init__(self, audit: str, corpus: str | None, function: str, work: ApplyTask):
        self.database = AuditDatabase(audit, corpus, limits=Limits(seconds=None))
        self.worker = ShardWorker(self.database, find_function(function), work).__enter__()

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, list[Any]]:
        shards = [pickle.loads(item) for item in batch["item"]]
        return {"shard": shards, "failure": [self.failure(shard) for shard in shards]}

    def failure(self, shard: str) -> str:
        """Apply the function to a shard; returns the reason if that fails, else an empty string."""
        try:
            self.worker.run(shard)
        except Exception as error:  # any error must fail only this shard, and be reported
            return summarize_error(error)
        return ""


def find_function(spec: str) -> Function:
    """Import `package.module:name`, also from the current folder."""
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
    """Process all missing shards on the cluster; failed ones are retried, at last each in a worker of its own."""
    arguments = {"audit": database.path, "corpus": database.moved_to, "function": function, "work": work}
    with begin_apply(database, work, force) as todo:
        missing = dict.fromkeys(todo, "its worker died")
        with console.Progress("apply", len(todo), "shards") as progress:
            for alone in PASSES:
                items = [pickle.dumps(shard) for shard in missing]
                for row in stream_worker_rows(ApplyWorker, items, arguments, placement, alone=alone):
                    if row["failure"]:
                        missing[row["shard"]] = row["failure"]
                    elif missing.pop(row["shard"], None) is not None:
                        progress.advance(1)
        if missing:
            shard, why = next(iter(missing.items()))
            raise ColumnError(f"{len(missing):,} of {len(todo):,} shards failed, such as {shard}: {why}")
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
        started = connect(address, Path(__file__).resolve().parents[1], quiet=True)
        placement = Placement(workers, cpus or choose_worker_cpus(gpus), gpus)
        check_cluster_room(placement, started=started)
        work = make_apply_task(function_object, column_names, decoders=placement.threads, **options)
        result = apply_on_cluster(database, function, work, placement, force)
    print_line(json.dumps(result.to_dict()) if as_json else format_applied(result))


def format_applied(result: ApplyResult) -> str:
    missed = f"; {result.missed:,} rows without a readable medium" if result.missed else ""
    resumed = f", {result.resumed:,} of them done before" if result.resumed else ""
    return f"{', '.join(result.columns)}: {result.rows:,} rows in {result.shards:,} shards{resumed}{missed}"


if __name__ == "__main__":
    sys.exit(run_command_line(command=command))
