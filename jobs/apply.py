"""Run a function of your own over an audit on a Ray cluster; its results become columns, as of `Audit.apply`.

    python jobs/apply.py s3://bucket/audit my_scores:aesthetics --columns image --gpus-per-worker 1
    ray job submit --working-dir . -- python jobs/apply.py s3://bucket/audit my_scores:Language --columns caption

`my_scores` is a module that the workers can import: of the folder that is submitted, or installed. A class is made once
in each worker, so that a model is loaded once. The same command again goes on with the shards that are missing.
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
from auditor.cli import run
from auditor.query.apply_function import Applied, Function, ShardWorker, Work, applied, applying, make_work
from auditor.query.column_source import ColumnError
from auditor.query.database import AuditDatabase
from auditor.query.sandbox import Limits
from auditor.run.ray_engine import PASSES, Placement, one_line, stream
from auditor.say import say
from jobs.cluster import await_room, connect, full_path, share_of_node, worker_options


class ApplyWorker:
    """The audit, the function and its decoders; writes the shards of a block."""

    def __init__(self, audit: str, corpus: str | None, function: str, work: Work):
        self.database = AuditDatabase(audit, corpus, limits=Limits(seconds=None))
        self.worker = ShardWorker(self.database, find_function(function), work).__enter__()

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, list[Any]]:
        shards = [pickle.loads(item) for item in batch["item"]]
        return {"shard": shards, "failure": [self.failure(shard) for shard in shards]}

    def failure(self, shard: str) -> str:
        """Why a shard could not be done; empty where it is."""
        try:
            self.worker.run(shard)
        except Exception as error:  # whatever it is, it must cost this shard alone and be told
            return one_line(error)
        return ""


def find_function(spec: str) -> Function:
    """`package.module:name`; the current folder is looked in too."""
    module, _, name = spec.partition(":")
    if not module or not name:
        raise ColumnError(f"{spec!r} names no function: write it like my_module:my_function")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ColumnError(f"{spec} cannot be imported: {error}") from error
    if not callable(found):
        raise ColumnError(f"{spec} is not a function but {type(found).__name__}")
    function: Function = found
    return function


def spread(database: AuditDatabase, function: str, work: Work, placement: Placement, force: bool) -> Applied:
    """All missing shards on the cluster; what failed is tried again, in the end each shard alone."""
    arguments = {"audit": database.path, "corpus": database.moved_to, "function": function, "work": work}
    with applying(database, work, force) as todo:
        missing = dict.fromkeys(todo, "its worker died")
        with console.Progress("apply", len(todo), "shards") as progress:
            for alone in PASSES:
                items = [pickle.dumps(shard) for shard in missing]
                for row in stream(ApplyWorker, items, arguments, placement, alone=alone):
                    if row["failure"]:
                        missing[row["shard"]] = row["failure"]
                    elif missing.pop(row["shard"], None) is not None:
                        progress.advance(1)
        if missing:
            shard, why = next(iter(missing.items()))
            raise ColumnError(f"{len(missing):,} of {len(todo):,} shards could not be done, such as {shard}: {why}")
    return applied(database, work, len(todo))


@click.command()
@click.argument("audit")
@click.argument("function")
@click.option(
    "--columns",
    required=True,
    help="What the function is given, with commas between: caption, visual, text, "
    "image, media or any column of the audit.",
)
@click.option("--name", help="Of the new columns' source; the function's own by default.")
@click.option("--prefix", default="", help="Before the name of each new column.")
@click.option("--batch-size", type=click.IntRange(1), default=256, show_default=True, help="Rows of a call.")
@click.option("--image-size", type=click.IntRange(1), default=224, show_default=True, help="Of decoded pictures.")
@click.option("--corpus", help="Where the corpus is now, if it has moved since the audit.")
@click.option("--force", is_flag=True, help="Replace columns that were made before.")
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
    """Call FUNCTION (module:name) with batches of the usable rows of AUDIT; keep what it gives as columns.

    \b
    python jobs/apply.py audit my_scores:aesthetics --columns image --workers 2
    """
    given = [column.strip() for column in columns.split(",") if column.strip()]
    found = find_function(function)
    place = full_path(audit)
    with AuditDatabase(place, corpus and full_path(corpus), limits=Limits(seconds=None)) as database:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH")]))
        started = connect(address, Path(__file__).resolve().parents[1], quiet=True)
        placement = Placement(workers, cpus or share_of_node(gpus), gpus)
        await_room(placement, started=started)
        work = make_work(found, given, decoders=placement.threads, **options)
        done = spread(database, function, work, placement, force)
    say(json.dumps(done.to_dict()) if as_json else in_words(done))


def in_words(done: Applied) -> str:
    missed = f"; {done.missed:,} rows without a readable medium" if done.missed else ""
    before = f", {done.resumed:,} of them done before" if done.resumed else ""
    return f"{', '.join(done.columns)}: {done.rows:,} rows in {done.shards:,} shards{before}{missed}"


if __name__ == "__main__":
    sys.exit(run(command=command))
