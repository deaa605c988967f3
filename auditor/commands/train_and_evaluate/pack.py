"""`auditor pack`: convert the files of a benchmark to WebDataset shards, one set per split."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from auditor.commands.options import POSITIVE, SHARE, json_option, option
from auditor.console import print_table
from auditor.research.retrieval.protocols import PROTOCOLS
from auditor.terminal import print_json, print_line


@click.command()
@click.argument("benchmark", type=click.Choice([name for name in PROTOCOLS if name != "shards"]))
@option("--source", type=click.Path(path_type=Path), required=True, help="Folder of annotations and media.")
@option("--out", type=click.Path(path_type=Path), required=True, help="New folder for the shards.")
@option("--max-missing", type=SHARE, default=0.01, help="Largest share of a split that may be missing.")
@option("--samples-per-shard", type=POSITIVE, default=1000, help="Samples per shard.")
@json_option("Print the report as JSON.")
def command(benchmark: str, source: Path, out: Path, as_json: bool, **limits: Any) -> None:
    """Convert the files of a benchmark to shards.

    The source is a folder with the annotation files as published and the media anywhere below it:
    dataset_coco.json, or captions_{train,val}2014.json with id lists; MSRVTT_data.json with MSRVTT_train.9k.csv and
    MSRVTT_JSFUSION_test.csv; {train,val,test}_list.txt with raw-captions.pkl (MSVD); {train,val,test}_data.json
    (DiDeMo); a token file or Karpathy's JSON (Flickr).

    \b
    Example:
      auditor pack msrvtt --source MSRVTT --out msrvtt-shards
    """
    from auditor.research.evaluate.pack import PackConfig, pack

    report = pack(benchmark, source, out, PackConfig(**limits))
    if as_json:
        print_json(asdict(report))
        return
    rows = [
        {"split": split, "media": n, "captions": report.captions[split], "shards": report.shards[split]}
        for split, n in report.media.items()
    ]
    print_table(rows, title=f"{benchmark} in {out}")
    for line in (*(f"left out: {text}" for text in report.problems()), *(f"note: {text}" for text in report.notes())):
        print_line(line)
