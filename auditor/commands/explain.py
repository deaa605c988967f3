"""`auditor explain`: the evidence behind one row."""

from typing import TYPE_CHECKING, Any

import click

from auditor.commands.options import audit_command, count_option, json_option, option
from auditor.commands.output import open_audit
from auditor.schema import list_column_names
from auditor.terminal import print_json, print_line

if TYPE_CHECKING:
    from auditor.query.explain import Explanation, Fit
    from auditor.query.prototype_evidence import PrototypeBelief


@audit_command
@click.argument("key")
@option("--caption", "caption_index", type=click.IntRange(min=0), help="Index of the caption, counted from 0.")
@count_option(5, "Number of alternatives.")
@json_option()
def command(audit: str, key: str, caption_index: int | None, count: int, as_json: bool) -> None:
    """Show why the row KEY (or uid) of AUDIT is flagged or not: what fits better, its frames and its duplicates.

    \b
    auditor explain audit/ 000000123
    auditor explain audit/ 000000123 --caption 2 --json
    """
    explanation = open_audit(audit).explain(key, caption_index, n=count)
    if as_json:
        print_json(explanation.to_dict())
    else:
        show_explanation(explanation)


def show_explanation(explanation: "Explanation") -> None:
    from auditor import console

    row = explanation.row
    span = f", {row['start']:g} to {row['end']:g} s" if None not in (row.get("start"), row.get("end")) else ""
    header = f"{row['key']} caption {row['caption_index']}{span} ({row['kind']}, {row['status']})"
    print_line(f"{header}: {row['caption'] or ''}")
    if row["status"] != "ok":
        print_line(f"  {row['error_message']}")
    names = [name for name in list_column_names("headline", "detail") if row.get(name) is not None]
    console.print_table([{"measure": name, "value": row[name]} for name in names])
    for reason in explanation.reasons:
        print_line(f"  {reason}")
    if explanation.caption_rank is not None and explanation.medium_rank is not None:
        where = f"in the {explanation.compared_with}"
        captions = f"{explanation.captions_of:,} captions of {row['kind']}s {where} for this medium"
        media = f"{explanation.media_of:,} {row['kind']}s {where} for this caption"
        print_line(f"its caption is number {explanation.caption_rank:,} of the {captions}")
        print_line(f"its medium is number {explanation.medium_rank:,} of the {media}")
        console.print_table(tabulate_fits(explanation.captions), "captions of other media that fit this medium best")
        console.print_table(tabulate_fits(explanation.media), "other media that fit this caption best")
    if explanation.frames:
        frames = [
            {"time": frame.time, "similarity": frame.similarity, "fits": frame.fits}
            | {"": "best" if position == explanation.best_frame else ""}
            for position, frame in enumerate(explanation.frames)
        ]
        console.print_table(frames, "frames against the caption")
    for side, beliefs in (("medium", explanation.prototypes_visual), ("caption", explanation.prototypes_text)):
        if beliefs:
            like = "the caption nearest to it" if side == "medium" else "the medium nearest to it"
            console.print_table(tabulate_prototypes(beliefs, like), f"prototypes behind the uncertainty of the {side}")
    if explanation.duplicates:
        console.print_table(explanation.duplicates, "duplicates of this medium")


def tabulate_fits(matches: "list[Fit]") -> list[dict[str, Any]]:
    timed = any(fit.start is not None for fit in matches)
    return [
        {"similarity": fit.similarity, "key": fit.key}
        | ({"start": fit.start, "end": fit.end} if timed else {})
        | {"caption": fit.caption}
        for fit in matches
    ]


def tabulate_prototypes(beliefs: "list[PrototypeBelief]", like: str, limit: int = 4) -> list[dict[str, Any]]:
    return [
        {"prototype": belief.prototype, "cosine": belief.cosine, "belief": belief.belief}
        | ({like: belief.like} if belief.like is not None else {})
        for belief in beliefs[:limit]
    ]
