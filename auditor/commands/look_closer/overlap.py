"""`auditor overlap`: media and captions that are also in another corpus."""

from collections import Counter
from itertools import product
from typing import Any

import click

from auditor.commands.options import advanced_option, audit_command, count_option, option
from auditor.commands.output import Output, output_options, print_notes

SAME = "Treat {} as the same from this cosine up [default: estimated]."


@audit_command
@click.argument("other")
@advanced_option("--media-cosine", type=float, help=SAME.format("media"))
@advanced_option("--caption-cosine", type=float, help=SAME.format("captions"))
@option("--model", metavar="M", help="The model of the audit, if it is not where the audit found it.")
@option("--device", default="auto", help="Device that encodes OTHER: cpu, cuda, ...")
@count_option(10, "Matches to show.", least=0)
@output_options
def command(audit: str, other: str, device: str, count: int, output: Output, **settings: Any) -> None:
    """Find media and captions of AUDIT that are also in OTHER: equal, re-encoded, mirrored or slightly cropped.

    OTHER is an audit by the same model, or a corpus that `auditor audit` reads, which is then encoded. Afterwards
    `auditor filter AUDIT --no-overlap OTHER` leaves those media out.

    \b
    auditor overlap audit/ coco-test/
    auditor filter audit/ --no-overlap coco-test/ --out clean/
    """
    from auditor.console import print_table
    from auditor.run.find_overlap import find_overlap
    from model.backbone import resolve_device

    print_notes(audit, other)
    matches = find_overlap(audit, other, device=resolve_device(device), **settings)
    rows = sorted(matches.to_pylist(), key=lambda row: (row["what"] != "media", -row["cosine"], row["uid"]))
    if output.for_machines:
        output.show(rows)
        return
    tally = Counter((row["what"], row["how"]) for row in rows)
    kinds = product(("media", "caption"), ("exact", "near"))
    print_table([{"what": what, "how": how, "rows": tally[what, how]} for what, how in kinds], f"{audit} in {other}")
    if rows[:count]:
        print_table(rows[:count], "nearest", ("key", "what", "how", "cosine", "other_key", "other_caption"))
