"""`auditor weigh`: weights of the rows of an audit, as a table or as a list of uids that repeats the good ones."""

from typing import TYPE_CHECKING, Any

import click

from auditor.commands.output import open_audit
from auditor.commands.selection import selected, selection_options
from auditor.say import say_json, say_lines

if TYPE_CHECKING:
    from auditor.keep.weights import Weighed


@click.command()
@click.argument("audit")
@click.option("--out", required=True, help="weights.parquet, or weights.npy in which uids repeat.")
@click.option(
    "--by",
    multiple=True,
    default=["p_mismatch"],
    show_default=True,
    metavar="COLUMN",
    help="Weigh by 1 - x where a large x is suspicious, else by x; given several times, by the product.",
)
@click.option(
    "--temperature",
    type=float,
    default=1.0,
    show_default=True,
    help="Weights become w^(1/T): below 1 the best count for more, above 1 all count alike.",
)
@click.option("--cap", type=float, help="Soft cap: weights near it grow ever slower, none reaches it.")
@click.option("--size", type=int, help="What all weights add up to: uids of the .npy.")
@click.option(
    "--spread",
    is_flag=True,
    help="Order a .npy so that copies of a uid stand far apart; without it it is "
    "sorted, as DataComp's resharder needs it.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of which uids get one copy more.")
@selection_options
@click.option("--force", is_flag=True, help="Replace an output that exists.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    audit: str,
    out: str,
    by: tuple[str, ...],
    temperature: float,
    cap: float | None,
    size: int | None,
    spread: bool,
    seed: int,
    force: bool,
    as_json: bool,
    **rules: Any,
) -> None:
    """Weigh the usable rows of AUDIT that meet all the rules given, instead of cutting.

    A .parquet has uid, shard, key, caption_index and weight of every usable row, 0 where it does not meet the rules;
    `auditor train --weights` takes it. In a .npy each uid stands as often as its weight says on average.

    \b
    auditor weigh audit/ --out weights.parquet
    auditor weigh audit/ --out weights.npy --size 12800000 --cap 4 --temperature 0.5
    auditor weigh audit/ --by p_mismatch --by aesthetics_score --min aesthetics_score=0 --out weights.npy
    """
    from dataclasses import asdict

    from auditor.keep.weights import Weighing

    how = Weighing(tuple(by), temperature, cap, size, seed)
    done = selected(open_audit(audit), rules).weigh(out, how, spread=spread, force=force)
    if as_json:
        say_json(asdict(done))
    else:
        say_lines(in_words(done, spread))


def in_words(done: "Weighed", spread: bool) -> str:
    if done.form == "parquet":
        above = f"{done.rows:,} rows, {done.different:,} with a weight above 0, the largest {done.most:.3g}"
        return f"{done.target}: {above}; {done.total:,.1f} in all, worth {done.effective:,.0f} equal ones"
    text = f"{done.target}: {done.rows:,} uids, {done.different:,} different ones, none more than {done.most:.0f} times"
    if spread:
        return text + "; not sorted, so not for DataComp's resharder"
    return (
        text
        + "\nresharder.py writes copies side by side unless it shuffles: --subset-file "
        + (f"{done.target} --shuffle-bufsize 100000")
    )
