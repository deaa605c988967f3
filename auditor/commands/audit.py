"""`auditor audit`: sweep a corpus and score every pair. jobs/audit.py has the same options."""

from collections.abc import Container, Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from auditor.commands.options import (
    POSITIVE,
    Decorator,
    Function,
    GroupedCommand,
    add_options,
    advanced_option,
    json_option,
    option,
    options_from,
    settings_in,
)
from auditor.corpus.shard import CorpusOptions
from auditor.run.audit_config import AuditConfig
from auditor.score.score_config import ScoreConfig
from auditor.sweep.sweep_config import SweepConfig
from model.pixels import DecodeLimits

if TYPE_CHECKING:
    from auditor.corpus.open_corpus import Corpus

LIMITS = DecodeLimits()


def media_options(skip: Container[str] = ()) -> list[Decorator]:
    """The options of reading, decoding and encoding a corpus."""
    return [
        *options_from(CorpusOptions, skip=skip),
        *options_from(SweepConfig, skip=skip),
        advanced_option("--precision", type=click.Choice(["auto", "float32", "bfloat16", "float16"]), default="auto",
                        help="Numerical precision of the encoder. `auto` is float32 on a CPU, and 16 bits on a GPU if "
                        "the first samples keep a cosine of 0.999 to float32."),
        advanced_option("--decoders", type=int, help="Number of decoder processes [default: the number of cores]."),
        advanced_option("--timeout", default=LIMITS.seconds, help="Time limit for a file in seconds."),
        advanced_option("--max-pixels", default=LIMITS.max_pixels, help="Give larger images the status `too_large`."),
        advanced_option("--max-bytes", type=POSITIVE, default=LIMITS.max_bytes,
                        help="Give larger files the status `too_large`. Each decoder holds one file in memory."),
    ]  # fmt: skip


OPTIONS: list[Decorator] = [
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
]  # fmt: skip


def audit_options(command: Function) -> Function:
    return add_options(command, OPTIONS)


def build_limits(values: dict[str, Any]) -> DecodeLimits:
    """The limits on one file. If larger files are allowed, a decoder may use that much more memory."""
    memory = LIMITS.memory + max(0, values["max_bytes"] - LIMITS.max_bytes)
    return DecodeLimits(values["max_pixels"], values["max_bytes"], seconds=values["timeout"], memory=memory)


def open_inputs(values: dict[str, Any], models: Iterable[str | None]) -> "Corpus":
    """Open the corpus; refuse a wrong path, column or model name before torch is imported, which takes seconds."""
    from auditor.corpus.open_corpus import open_corpus
    from model.model_names import check_model_name

    for model in filter(None, models):
        check_model_name(model)
    return open_corpus(values["corpus"], CorpusOptions(**settings_in(CorpusOptions, values)))


def build_audit_config(values: dict[str, Any]) -> AuditConfig:
    from model.backbone import resolve_device
    from model.precision import resolve_precision

    device = resolve_device(values["device"])
    sweep = SweepConfig(
        **settings_in(SweepConfig, values),
        precision=resolve_precision(values["precision"], device),
        limits=build_limits(values),
    )
    return AuditConfig(
        values["corpus"],
        values.get("out", ""),
        values.get("model"),
        CorpusOptions(**settings_in(CorpusOptions, values)),
        replace(sweep, decoders=values["decoders"]) if values["decoders"] else sweep,
        ScoreConfig(**settings_in(ScoreConfig, values)),
        device,
        **settings_in(AuditConfig, values),
    )


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
    corpus = open_inputs(values, [values["model"]])
    from auditor.run.device_engine import make_device_engine, parse_devices
    from auditor.run.extend import extend_audit
    from auditor.run.outcome import report_outcome
    from auditor.run.run_audit import run_audit

    run = extend_audit if values["extend"] else run_audit
    if devices is None:
        manifest = run(build_audit_config(values), corpus=corpus)
    else:
        names = parse_devices(devices)
        config = build_audit_config({**values, "device": names[0]})
        manifest = run(config, partial(make_device_engine, names), "cpu", corpus)
    report_outcome(values["out"], manifest, as_json=as_json)
