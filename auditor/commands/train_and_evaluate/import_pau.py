"""`auditor import-pau`: convert a checkpoint of the authors' released program."""

from pathlib import Path

import click

from auditor.commands.options import json_option, option
from auditor.terminal import print_json, print_line


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@option("--out", required=True, type=click.Path(file_okay=False, path_type=Path), help="Folder of the new checkpoint.")
@option("--tau", default=5.0, help="Temperature of the evidence; the file does not hold it.")
@option("--head-width", default=64, help="Width of an attention head; 64 in every CLIP model by OpenAI.")
@json_option()
def command(file: Path, out: Path, tau: float, head_width: int, as_json: bool) -> None:
    """Convert FILE, a checkpoint of the authors' released program (leolee99/PAU), so that `auditor` can use it.

    FILE is pytorch_model.bin of the video program, epochN.pt of the image program, or the same weights as safetensors.
    Only weights are read, never pickled code. Use the result wherever a model is named: audit, evaluate, score, train.

    \b
    auditor import-pau pytorch_model.bin --out pau-msrvtt
    auditor audit clips --model pau-msrvtt --out audit
    """
    from model.released_checkpoint import import_checkpoint

    facts = import_checkpoint(file, out, tau, head_width)
    if as_json:
        print_json(facts)
        return
    dropped = ", ".join(facts.pop("dropped"))
    print_line(f"saved in {out}: {', '.join(f'{name} {value}' for name, value in facts.items())}")
    if dropped:
        print_line(f"left out, because the released program never uses them: {dropped}")
