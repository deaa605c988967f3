"""`auditor audit`: sweep a corpus and score every pair. The options are shared with jobs/audit.py."""

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from auditor.commands.output import SHARE

if TYPE_CHECKING:
    from auditor.run.run_audit import AuditConfig
    from model.pixels import Limits

F = TypeVar("F", bound=Callable[..., Any])

OPTIONS = [
    click.argument("corpus"),
    click.option("--out", required=True, metavar="AUDIT", help="Folder of the audit; the same command again resumes."),
    click.option("--model", metavar="M", help="PAU checkpoint folder, or any open_clip model: NAME@TAG, hf-hub:…, "
                 "local-dir:PATH. Without a PAU head, prototypes are fitted on the corpus itself."),
    click.option("--device", default="auto", show_default=True, help="cpu, cuda, cuda:1, …"),
    click.option("--precision", type=click.Choice(["auto", "float32", "bfloat16", "float16"]), default="auto",
                 show_default=True, help="What the encoder computes in: auto is float32 on a CPU, 16 bits on a GPU, "
                 "where the first samples must keep a cosine of 0.999 to float32."),
    click.option("--compile", "compiled", is_flag=True, help="Let torch.compile make the encoder's code: minutes at "
                 "the start, faster afterwards on a GPU."),
    click.option("--frames", default=12, show_default=True, help="Frames sampled from a video."),
    click.option("--exact-pixels", is_flag=True, help="Byte for byte the pixels of open_clip's own transform, at less "
                 "than half the rate; without it an embedding keeps a cosine above 0.999 to the exact one."),
    click.option("--context", default=30.0, show_default=True, help="Seconds around the spans of timed captions "
                 "that are looked at, for captions that are early or late; 0: none."),
    click.option("--motion", is_flag=True, help="Decode videos densely, for their cuts and motion."),
    click.option("--batch-size", default=32, show_default=True, help="Frames encoded at once."),
    click.option("--decoders", type=int, help="Decoder processes; as many as there are cores by default."),
    click.option("--timeout", default=60.0, show_default=True, help="Seconds a file may take to decode."),
    click.option("--max-pixels", default=150_000_000, show_default=True, help="Larger images are `too_large`."),
    click.option("--max-bytes", type=click.IntRange(1), default=1 << 30, show_default=True, help="Larger files are "
                 "`too_large`; each decoder holds one file in memory."),
    click.option("--max-error-rate", type=SHARE, default=0.5, show_default=True, help="Stop when more than this share "
                 "of the rows fails."),
    click.option("--captions", type=click.Choice(["lines", "whole"]), default="lines", show_default=True,
                 help="A .txt is one caption a line, or one caption."),
    click.option("--media-column", help="Column of a table that holds paths or bytes."),
    click.option("--caption-column", help="Column of a table that holds captions."),
    click.option("--key-column", help="Column of a table that holds keys."),
    click.option("--start-column", help="Column of a table with the start of each caption's span, in seconds or "
                 "HH:MM:SS.mmm; where there is no column of ends, with lists of [start, end]."),
    click.option("--end-column", help="Column of a table with the end of each caption's span."),
    click.option("--encoding", help="Of captions that are not in Unicode; found out by default."),
    click.option("--delimiter", help="Of a CSV; found out by default."),
    click.option("--header/--no-header", default=None, help="Whether a CSV begins with names; found out by default. "
                 "Columns without names are called 1, 2, …"),
    click.option("--carry", default="", metavar="NAMES", help="Columns of a table, or fields of .json files, to carry "
                 "into the audit: url,license"),
    click.option("--features", metavar="NAME", help="Of DataComp's metadata: l14 (the default) or b32."),
    click.option("--visual-column", help="Column of a Parquet table that holds embeddings of the media."),
    click.option("--text-column", help="Column of a Parquet table that holds embeddings of the captions."),
    click.option("--logit-scale", type=click.FloatRange(0, min_open=True), default=100.0, show_default=True,
                 help="Of the model that made stored embeddings."),
    click.option("--shard-size", default=1000, show_default=True, help="Media per shard of a corpus without shards."),
    click.option("--prototypes", default=8, show_default=True, help="K, where prototypes are fitted."),
    click.option("--target", type=click.Choice(["h", "retrieval"]), default="retrieval", show_default=True,
                 help="What u follows, where prototypes are fitted: the paper's h (mean similarity), or how much of "
                 "the corpus fits."),
    click.option("--reference", default=4096, show_default=True, help="Pairs that every pair is compared with."),
    click.option("--near-duplicate", type=float, help="Cosine of near-duplicates; measured by default."),
    click.option("--keep-duplicate", metavar="COLUMN", default="first", show_default=True, help="Which of a group of "
                 "duplicates stays: the first, that with the most pixels, or with the largest value of a column that "
                 "the sweep finds (media_size, sharpness, words, …); `duplicate_of` of the others names it."),
    click.option("--ambiguous-top", type=click.FloatRange(0, 1, max_open=True), help="Flag this share as ambiguous, "
                 "0.05 for the top 5%, instead of what fits a fifth of the corpus or says nothing."),
    click.option("--seed", default=0, show_default=True, help="Of every random choice."),
    click.option("--allow-random-weights", is_flag=True, help="Accept a model without trained weights (for tests)."),
    click.option("--extend", is_flag=True, help="Add the shards that a finished audit does not have, scored against "
                 "the reference it has; says how far they drift from it. `auditor score --refit` fits all again."),
    click.option("--force", is_flag=True, help="Write into a folder that has other files in it."),
    click.option("--quiet", is_flag=True, help="No progress."),
    click.option("--json", "as_json", is_flag=True, help="The summary as JSON."),
]  # fmt: skip


def audit_options(function: F) -> F:
    for option in reversed(OPTIONS):
        function = option(function)
    return function


def limits_of(values: dict[str, Any]) -> "Limits":
    """What one file may cost; where larger files are allowed, a decoder may take as much more memory."""
    from model.pixels import Limits

    usual, most = Limits(), values["max_bytes"]
    more = max(0, most - usual.max_bytes)
    return Limits(values["max_pixels"], most, seconds=values["timeout"], memory=usual.memory + more)


def config_from(values: dict[str, Any]) -> "AuditConfig":
    """The settings of an audit from the values of OPTIONS."""
    from auditor.corpus.open_corpus import CorpusOptions
    from auditor.run.run_audit import AuditConfig
    from auditor.score.corpus_statistics import ScoreConfig
    from auditor.sweep.sweep import SweepConfig
    from model.backbone import device_named
    from model.precision import precision_for

    device = device_named(values["device"])
    return AuditConfig(
        corpus=values["corpus"],
        out=values["out"],
        model=values["model"],
        options=CorpusOptions(
            captions=values["captions"],
            media_column=values["media_column"],
            caption_column=values["caption_column"],
            key_column=values["key_column"],
            start_column=values["start_column"],
            end_column=values["end_column"],
            features=values["features"],
            visual_column=values["visual_column"],
            text_column=values["text_column"],
            shard_size=values["shard_size"],
            encoding=values["encoding"],
            delimiter={"tab": "\t", "\\t": "\t"}.get(values["delimiter"] or "", values["delimiter"]),
            header=values["header"],
            carry=tuple(name.strip() for name in values["carry"].split(",") if name.strip()),
        ),
        sweep=SweepConfig(
            frames=values["frames"],
            exact_pixels=values["exact_pixels"],
            context=values["context"],
            motion=values["motion"],
            precision=precision_for(values["precision"], device),
            compiled=values["compiled"],
            batch_size=values["batch_size"],
            decoders=values["decoders"] or len(os.sched_getaffinity(0)),
            limits=limits_of(values),
        ),
        score=ScoreConfig(
            reference=values["reference"],
            prototypes=values["prototypes"],
            target=values["target"],
            near_duplicate=values["near_duplicate"],
            ambiguous_top=values["ambiguous_top"],
            keep_duplicate=values["keep_duplicate"],
            seed=values["seed"],
        ),
        logit_scale=values["logit_scale"],
        device=device,
        max_error_rate=values["max_error_rate"],
        allow_random_weights=values["allow_random_weights"],
        force=values["force"],
        quiet=values["quiet"],
    )


@click.command()
@audit_options
@click.option(
    "--devices",
    metavar="NAMES",
    help="Encode on several devices of this machine, a process for each: all (every "
    "GPU), or cuda:0,cuda:1; a name that comes twice gets two processes.",
)
def command(as_json: bool, devices: str | None, **values: Any) -> None:
    """Sweep CORPUS and score every pair: broken files, ambiguous samples, mismatched pairs.

    CORPUS is WebDataset shards (a path, a folder, a glob, braces; local or s3://, gs://, …), a folder of media with
    .txt files beside them, a table (CSV, TSV, JSONL, Parquet), coco:captions.json::images/ or, of timed captions by
    video as ActivityNet and HowTo100M have them, timed:captions.json::videos/. Embeddings that exist already are
    audited without media and model: datacomp:FOLDER, clip-retrieval:FOLDER, or Parquet with two columns of vectors.

    \b
    auditor audit 'shards/{00000..00099}.tar' --out audit --model ViT-B-32@laion2b_s34b_b79k
    auditor audit photos/ --out audit --model my-pau/best
    auditor audit datacomp:metadata/ --features l14 --out audit
    auditor audit 'shards/{00000..00119}.tar' --out audit --extend
    auditor audit 'shards/{00000..00099}.tar' --out audit --devices all
    """
    from auditor.run.device_engine import devices_engine, devices_named
    from auditor.run.extend import extend_audit
    from auditor.run.outcome import report_outcome
    from auditor.run.run_audit import run_audit

    run = extend_audit if values["extend"] else run_audit
    if devices is None:
        manifest = run(config_from(values))
    else:
        names = devices_named(devices)
        manifest = run(config_from({**values, "device": names[0]}), partial(devices_engine, names), "cpu")
    report_outcome(values["out"], manifest, as_json=as_json)
