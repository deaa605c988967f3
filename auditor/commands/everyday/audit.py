"""`auditor audit`: sweep a corpus and score every pair. jobs/audit.py has the same options."""

from collections.abc import Container
from typing import Any

import click

from auditor.commands.options import (
    Decorator,
    GroupedCommand,
    add_options,
    advanced_option,
    json_option,
    option,
    options_from,
)
from auditor.corpus.shard import CorpusOptions
from auditor.run.audit_config import AuditConfig
from auditor.run.start_audit import DecodeOptions, start_audit
from auditor.score.score_config import ScoreConfig
from auditor.sweep.sweep_config import SweepConfig


def media_options(skip: Container[str] = ()) -> list[Decorator]:
    return [
        *options_from(CorpusOptions, skip=skip),
        *options_from(SweepConfig, skip=skip),
        *options_from(DecodeOptions, skip=skip),
    ]


audit_options = add_options([
    click.argument("corpus"),
    option("--out", required=True, metavar="AUDIT", help="Folder of the audit. The same command resumes it."),
    option("--model", metavar="M", help="PAU checkpoint folder, or any open_clip model: NAME@TAG, hf-hub:..., "
           "local-dir:PATH. Without a PAU head, prototypes are fitted on the corpus."),
    option("--device", default="auto", help="cpu, cuda, cuda:1, ..."),
    option("--extend", is_flag=True, help="Add the shards that a finished audit lacks, score them against its "
           "reference, and report how far they drift. `auditor score --refit` fits everything again."),
    *media_options(),
    *options_from(ScoreConfig),
    *options_from(AuditConfig),
    json_option("Print the summary as JSON."),
])  # fmt: skip


@click.command(cls=GroupedCommand)
@audit_options
@advanced_option(
    "--devices",
    metavar="NAMES",
    help="Encode on several devices of this machine, one process each: all "
    "(every GPU), or cuda:0,cuda:1. A name that is given twice gets two processes.",
)
def command(devices: str | None, as_json: bool, **values: Any) -> None:
    """Sweep CORPUS and score every pair: find broken files, ambiguous samples and mismatched pairs.

    CORPUS is WebDataset shards (a path, a folder, a glob, braces; local or s3://, gs://, hf://datasets/ORG/NAME,
    ...), a folder of media with .txt files beside them, a table (CSV, TSV, JSONL, Parquet),
    coco:captions.json::images/, or, for timed captions by video as in ActivityNet and HowTo100M,
    timed:captions.json::videos/. Stored embeddings are audited without media and without a model: datacomp:FOLDER,
    clip-retrieval:FOLDER, or Parquet with two columns of vectors.

    \b
    auditor audit 'shards/{00000..00099}.tar' --out audit --model ViT-B-32@laion2b_s34b_b79k
    auditor audit photos/ --out audit --model my-pau/best
    auditor audit datacomp:metadata/ --features l14 --out audit
    auditor audit 'shards/{00000..00119}.tar' --out audit --extend
    auditor audit 'shards/{00000..00099}.tar' --out audit --devices all
    """
    manifest = start_audit(values, devices)
    from auditor.run.outcome import report_outcome

    report_outcome(values["out"], manifest, as_json=as_json)
