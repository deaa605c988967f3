"""`auditor weigh`: write weights of rows, as a table or as uids that repeat."""

from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from auditor.commands.options import SEED, audit_command, json_option, option
from auditor.commands.output import open_audit
from auditor.commands.selection import select_rows, selection_options
from auditor.terminal import print_json, print_lines

if TYPE_CHECKING:
    from auditor.keep.weights import Weighed


@audit_command
@option("--out", required=True, help="weights.parquet, or weights.npy with repeated uids.")
@option(
    "--by",
    multiple=True,
    default=["p_mismatch"],
    metavar="COLUMN",
    help="Weigh by 1 - x if a large x is suspicious, else by x; several columns multiply.",
)
@option(
    "--temperature",
    default=1.0,
    help="Weights become w^(1/T): below 1 the best rows count more, above 1 rows count more equally.",
)
@option("--cap", type=float, help="Soft cap: weights approach it and never reach it.")
@option("--size", type=int, help="Sum of all weights: the number of uids in the .npy.")
@option(
    "--spread",
    is_flag=True,
    help="Order a .npy so that copies of a uid are far apart; otherwise it is sorted, as "
    "DataComp's resharder requires.",
)
@option("--seed", type=SEED, default=0, help="Random seed for rounding the number of copies.")
@selection_options
@option("--force", is_flag=True, help="Replace an existing output.")
@json_option()
def command(audit: str, out: str, spread: bool, force: bool, as_json: bool, **options: Any) -> None:
    """Weigh the usable rows of AUDIT that satisfy all rules, instead of cutting.

    A .parquet has uid, shard, key, caption_index and weight of every usable row, 0 if it violates a rule;
    `auditor train --weights` reads it. In a .npy each uid is repeated according to its weight.

    \b
    auditor weigh audit/ --out weights.parquet
    auditor weigh audit/ --out weights.npy --size 12800000 --cap 4 --temperature 0.5
    auditor weigh audit/ --by p_mismatch --by aesthetics_score --min aesthetics_score=0 --out weights.npy
    """
    from auditor.keep.weights import Weighing

    weighing = Weighing(**{field.name: options.pop(field.name) for field in fields(Weighing)})
    result = select_rows(open_audit(audit), options).weigh(out, weighing, spread=spread, force=force)
    if as_json:
        print_json(asdict(result))
    else:
        print_lines(describe_weights(result, spread))


def describe_weights(result: "Weighed", spread: bool) -> str:
    if result.form == "parquet":
        counts = f"{result.rows:,} rows, {result.different:,} with a weight above 0, the largest {result.most:.3g}"
        return f"{result.target}: {counts}; {result.total:,.1f} in all, worth {result.effective:,.0f} equal ones"
    counts = f"{result.rows:,} uids, {result.different:,} of them distinct, each at most {result.most:.0f} times"
    if spread:
        return f"{result.target}: {counts}; not sorted, so not for DataComp's resharder"
    hint = "resharder.py writes copies side by side unless it shuffles"
    return f"{result.target}: {counts}\n{hint}: --subset-file {result.target} --shuffle-bufsize 100000"
