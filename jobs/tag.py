"""Add columns by prompts on a Ray cluster: `auditor tag`, with the shards distributed to workers.

    python jobs/tag.py s3://bucket/audit "a watermark" --against "a photo" --workers 8
    ray job submit --working-dir . -- python jobs/tag.py s3://bucket/audit --prompts medium

The prompts are encoded by this process, so only it needs the model of the audit. Run the same command again to resume.
"""

import sys
from pathlib import Path
from typing import Any

import click

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a checkout works without being installed

from auditor.choose.tag_columns import tag_media
from auditor.cli import run_command_line
from auditor.commands.repair_and_export.tag import print_tags, tag_options
from auditor.query.database import AuditDatabase
from auditor.query.sandbox import Limits
from auditor.run.ray_engine import RayEngine
from jobs.cluster import connect_workers
from jobs.worker_options import WorkerRequest, make_absolute, worker_options


@click.command()
@click.argument("audit")
@tag_options
@worker_options
def command(audit: str, as_json: bool, request: WorkerRequest, **values: Any) -> None:
    """Add a column for each prompt to AUDIT, on a Ray cluster.

    \b
    python jobs/tag.py audit "a watermark" --workers 2
    """
    with AuditDatabase(make_absolute(audit), limits=Limits(seconds=None)) as database:
        placement = connect_workers(request)
        engine = RayEngine(database.files.folder, {}, placement)
        print_tags(tag_media(database, engine=engine, **values), as_json)


if __name__ == "__main__":
    sys.exit(run_command_line(command=command))
