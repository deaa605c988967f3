"""`auditor import-pau`: turn a checkpoint of the authors' released program into one of ours."""

from pathlib import Path
from typing import Any

import click

from auditor.commands.options import json_option, option
from auditor.terminal import print_json, print_line

CLIP_VOCABULARY = 49408


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@option("--out", required=True, type=click.Path(file_okay=False, path_type=Path), help="Folder of the new checkpoint.")
@option("--tau", default=5.0, help="Temperature of the evidence; the file does not hold it.")
@option("--head-width", default=64, help="Width of an attention head; 64 in every CLIP model by OpenAI.")
@json_option()
def command(file: Path, out: Path, tau: float, head_width: int, as_json: bool) -> None:
    """Turn FILE, a checkpoint of the authors' released program (leolee99/PAU), into a checkpoint of ours.

    FILE is pytorch_model.bin of the video program, epochN.pt of the image program, or the same weights as safetensors.
    Only weights are read, never pickled code. Use the result wherever a model is named: audit, evaluate, score, train.

    \b
    auditor import-pau pytorch_model.bin --out pau-msrvtt
    auditor audit clips --model pau-msrvtt --out audit
    """
    from model.released_checkpoint import import_checkpoint

    imported = import_checkpoint(file, out, tau, head_width)
    backbone, head = imported.backbone, imported.head
    vocabulary = int(backbone.config["model_cfg"]["text_cfg"]["vocab_size"])
    facts: dict[str, Any] = {
        "checkpoint": str(out),
        "layout": imported.layout,
        "dim": backbone.dim,
        "image_size": backbone.pixels.size[0],
        "prototypes": head.config.prototypes,
        "temporal_layers": backbone.temporal.layers if backbone.temporal else 0,
        "logit_scale": backbone.logit_scale,
        "dropped": imported.dropped,
    }
    if as_json:
        print_json(facts)
        return
    shown = ("dim", "image_size", "prototypes", "temporal_layers")
    print_line(f"{imported.layout} checkpoint saved in {out}: {', '.join(f'{name} {facts[name]}' for name in shown)}")
    if imported.dropped:
        print_line(f"left out, because the released program never uses them: {', '.join(imported.dropped)}")
    if vocabulary != CLIP_VOCABULARY:
        print_line(f"its vocabulary of {vocabulary:,} tokens is not CLIP's: captions cannot be encoded with it")
