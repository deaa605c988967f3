"""`auditor apply`: add the columns that a function, or a linear head on embeddings, computes."""

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from auditor.commands.options import POSITIVE, add_options, audit_command, json_option, option
from auditor.commands.output import open_audit
from auditor.terminal import print_json, print_line

if TYPE_CHECKING:
    from auditor.query.apply_function import ApplyResult, Function

INPUTS = "caption, visual, text, image, media or any column of the audit"


apply_options = add_options(
    [
        click.argument("function"),
        option("--columns", default="visual", help=f"Inputs of the function, separated by commas: {INPUTS}."),
        option("--name", help="Name of the source of the new columns [default: the function's name]."),
        option("--prefix", default="", help="Prefix of the names of the new columns."),
        option(
            "--activation",
            type=click.Choice(["relu", "none"]),
            help="Activation between the layers of a head, if its file does not name it.",
        ),
        option("--batch-size", type=POSITIVE, default=256, help="Rows in a call."),
        option("--image-size", type=POSITIVE, default=224, help="Size of decoded images."),
        option("--corpus", help="Present location of the corpus, if it has moved since the audit."),
        option("--force", is_flag=True, help="Replace existing columns of this source."),
        json_option(),
    ]
)


@audit_command
@apply_options
def command(audit: str, function: str, columns: str, corpus: str | None, as_json: bool, **options: Any) -> None:
    """Call FUNCTION (module:name) with batches of the usable rows of AUDIT and store its results as columns.

    FUNCTION may also be a file of linear layers on embeddings, such as LAION's aesthetic and NSFW heads: a state dict
    (.pth), safetensors or .npz.

    \b
    auditor apply audit/ sa_0_4_vit_b_32_linear.pth --name aesthetic
    auditor apply audit/ my_scores:language --columns caption
    """
    name, activation = options["name"], options.pop("activation")
    function_object = load_function(function, name, activation)
    with open_audit(audit, corpus) as opened:
        print_applied(opened.apply(function_object, split_columns(columns), **options), as_json)


def split_columns(columns: str) -> list[str]:
    return [column.strip() for column in columns.split(",") if column.strip()]


def load_function(spec: str, name: str | None = None, activation: Any = None) -> "Function":
    """Load a head from its file, or import `module:name`, also from the current folder."""
    from auditor.choose.linear_heads import is_head_file, load_embedding_head
    from auditor.query.join_columns import ColumnError

    if is_head_file(spec):
        return load_embedding_head(spec, name or "", activation)
    module, _, attribute = spec.partition(":")
    if not module or not attribute:
        raise ColumnError(f"{spec!r} is not of the form my_module:my_function, nor a file of weights")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        function: Function = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ColumnError(f"{spec} cannot be imported: {error}") from error
    if not callable(function):
        raise ColumnError(f"{spec} is not a function but {type(function).__name__}")
    return function


def print_applied(result: "ApplyResult", as_json: bool) -> None:
    if as_json:
        print_json(result.to_dict())
        return
    missed = f"; {result.missed:,} rows without a readable medium" if result.missed else ""
    resumed = f", {result.resumed:,} of them done before" if result.resumed else ""
    print_line(f"{', '.join(result.columns)}: {result.rows:,} rows in {result.shards:,} shards{resumed}{missed}")
