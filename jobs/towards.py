"""Compare the media of an audit with a target set on a Ray cluster, as `auditor towards` does on one machine.

    python jobs/towards.py s3://bucket/audit s3://bucket/coco-train --name coco
    ray job submit --working-dir . -- python jobs/towards.py s3://bucket/audit s3://bucket/coco-train --name coco

This process opens the target; workers compare the shards of the audit with it. Run the same command again to continue
with the missing shards.
"""

import json
import sys
from pathlib import Path
from typing import Any

import click

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a checkout works without being installed

from auditor.audit_folder.folder import Folder
from auditor.cli import run_command_line
from auditor.commands.repair_and_export.towards import target_options
from auditor.query.database import AuditDatabase
from auditor.query.sandbox import Limits
from auditor.run.compare_target import compare_target
from auditor.run.ray_engine import RayEngine
from auditor.terminal import print_line
from jobs.cluster import connect_workers
from jobs.worker_options import WorkerRequest, make_absolute, worker_options


@click.command()
@click.argument("audit")
@click.argument("other")
@target_options
@worker_options
def command(audit: str, other: str, as_json: bool, request: WorkerRequest, **options: Any) -> None:
    """Store the similarity of the media of AUDIT to OTHER as a column.

    \b
    python jobs/towards.py audit coco-train/ --name coco --workers 2
    """
    audit_path = make_absolute(audit)
    placement = connect_workers(request)
    engine = RayEngine(Folder(audit_path), {}, placement)
    with AuditDatabase(audit_path, limits=Limits(seconds=None)) as database:
        column = compare_target(database, other, engine=engine, quiet=as_json, **options)
    print_line(json.dumps(column.to_dict()) if as_json else column.describe())


if __name__ == "__main__":
    sys.exit(run_command_line(command=command))
