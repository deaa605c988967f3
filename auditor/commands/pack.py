"""`auditor pack`: convert the files of a benchmark to WebDataset shards, one set per split."""

from pathlib import Path

import click

from auditor.console import print_table
from auditor.terminal import print_json, print_line


@click.command()
@click.argument("benchmark", type=click.Choice(["coco", "flickr8k", "flickr30k", "msrvtt", "msvd", "didemo"]))
@click.option("--source", type=click.Path(path_type=Path), required=True, help="Folder of annotations and media.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="New folder for the shards.")
@click.option("--max-missing", default=0.01, show_default=True, help="Largest share of a split that may be missing.")
@click.option("--samples-per-shard", default=1000, show_default=True, help="Samples per shard.")
@click.option("--json", "json_", is_flag=True, help="Print the report as JSON.")
def command(benchmark: str, source: Path, out: Path, max_missing: float, samples_per_shard: int, json_: bool) -> None:
    """Convert the files of a benchmark to shards.

    The source is a folder with the annotation files as published and the media anywhere below it:
    dataset_coco.json, or captions_{train,val}2014.json with id lists; MSRVTT_data.json with MSRVTT_train.9k.csv and
    MSRVTT_JSFUSION_test.csv; {train,val,test}_list.txt with raw-captions.pkl (MSVD); {train,val,test}_data.json
    (DiDeMo); a token file or Karpathy's JSON (Flickr).

    \b
    Example:
      auditor pack msrvtt --source MSRVTT --out msrvtt-shards
    """
    from dataclasses import asdict

    from auditor.research.evaluate.pack import PackConfig, pack

    report = pack(benchmark, source, out, PackConfig(samples_per_shard=samples_per_shard, max_missing=max_missing))
    if json_:
        print_json(asdict(report))
        return
    rows = [
        {"split": split, "media": n, "captions": report.captions[split], "shards": report.shards[split]}
        for split, n in report.media.items()
    ]
    print_table(rows, title=f"{benchmark} in {out}")
    for problem in report.problems():
        print_line(f"left out: {problem}")
    for note in report.notes():
        print_line(f"note: {note}")
