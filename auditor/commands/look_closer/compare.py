"""`auditor compare`: two audits side by side."""

from typing import TYPE_CHECKING, Any

import click

from auditor.commands.options import GroupedCommand, count_option
from auditor.commands.output import Output, open_audit, output_options, show_sources
from auditor.errors import AuditorError
from auditor.terminal import print_json

if TYPE_CHECKING:
    from auditor.query.compare import Comparison

MOVED = ("key", "caption", "p_first", "p_second")


@click.command(cls=GroupedCommand)
@click.argument("first")
@click.argument("second")
@count_option(10)
@output_options
def command(first: str, second: str, count: int, output: Output) -> None:
    """Compare audits FIRST and SECOND of one corpus, or of two versions of a corpus.

    --csv and --parquet write the rows whose p_mismatch moved most.

    \b
    auditor compare audit-b32/ audit-l14/
    auditor compare audit-monday/ audit-friday/ -n 100 --csv
    """
    from auditor.console import print_table

    audits = open_audit(first), open_audit(second)
    comparison = audits[0].compare(audits[1], count)
    if output.json:
        names = ("sources_first", "sources_second")
        print_json(comparison.to_dict() | {name: a.sources().to_dict() for name, a in zip(names, audits, strict=True)})
    elif not comparison.matched:
        raise AuditorError(
            f"{first} and {second} have no row in common by uid, nor by shard, key and caption: "
            f"{comparison.only_first:,} rows are only in the first, {comparison.only_second:,} only in the second"
        )
    elif output.for_machines:
        output.show(comparison.moved)
    else:
        print_table(tabulate_comparison(comparison), f"{comparison.first} -> {comparison.second}")
        print_table([{"column": name, "rank correlation": value} for name, value in comparison.correlation.items()])
        print_table([{"flag": f.flag, "both": f.both, "newly": f.newly, "gone": f.gone} for f in comparison.flags])
        if comparison.status_changes:
            print_table(comparison.status_changes, "status changed")
        for audit in audits:
            show_sources(audit.sources(), f"sources of captions, {audit.path}")
        if comparison.moved:
            print_table(comparison.moved, "moved most", MOVED)


def tabulate_comparison(comparison: "Comparison") -> list[dict[str, Any]]:
    values = {
        f"matched by {comparison.matched_by}": f"{comparison.matched:,}",
        "only in the first": f"{comparison.only_first:,}",
        "only in the second": f"{comparison.only_second:,}",
    }
    for position, noise in (("first", comparison.noise_first), ("second", comparison.noise_second)):
        values |= {f"mismatched {n.kind}s, {position}": n.words() for n in noise}
    return [{"what": what, "value": value} for what, value in values.items()]
