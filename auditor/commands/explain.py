"""`auditor explain`: the evidence behind one row."""

from typing import TYPE_CHECKING, Any

import click

from auditor.commands.output import open_audit
from auditor.say import say, say_json
from auditor.schema import named

if TYPE_CHECKING:
    from auditor.query.explain import Explanation, Fit
    from auditor.query.prototype_evidence import PrototypeBelief


@click.command()
@click.argument("audit")
@click.argument("key")
@click.option("--caption", "caption_index", type=click.IntRange(min=0), help="Which caption of the medium, from 0.")
@click.option("-n", "count", type=click.IntRange(min=1), default=5, show_default=True, help="Alternatives to show.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(audit: str, key: str, caption_index: int | None, count: int, as_json: bool) -> None:
    """Why the row KEY (or uid) of AUDIT is flagged, or not: what fits better, frame by frame, and its duplicates.

    \b
    auditor explain audit/ 000000123
    auditor explain audit/ 000000123 --caption 2 --json
    """

    found = open_audit(audit).explain(key, caption_index, n=count)
    if as_json:
        say_json(found.to_dict())
    else:
        show(found)


def show(found: "Explanation") -> None:
    from auditor import console

    row = found.row
    span = f", {row['start']:g} to {row['end']:g} s" if None not in (row.get("start"), row.get("end")) else ""
    about = f"{row['key']} caption {row['caption_index']}{span} ({row['kind']}, {row['status']})"
    say(f"{about}: {row['caption'] or ''}")
    if row["status"] != "ok":
        say(f"  {row['error_message']}")
    console.table(
        [
            {"measure": name, "value": row[name]}
            for name in named(use=["headline", "detail"])
            if row.get(name) is not None
        ]
    )
    for reason in found.reasons:
        say(f"  {reason}")
    if found.caption_rank is not None and found.medium_rank is not None:
        where = f"in the {found.compared_with}"
        captions, media = f"{found.captions_of:,} captions of {row['kind']}s", f"{found.media_of:,} {row['kind']}s"
        say(f"its caption is number {found.caption_rank:,} of the {captions} {where} for this medium")
        say(f"its medium is number {found.medium_rank:,} of the {media} {where} for this caption")
        console.table(fits(found.captions), "captions of other media that fit this medium best")
        console.table(fits(found.media), "other media that fit this caption best")
    if found.frames:
        frames = [
            {
                "time": frame.time,
                "similarity": frame.similarity,
                "fits": frame.fits,
                "": "best" if at == found.best_frame else "",
            }
            for at, frame in enumerate(found.frames)
        ]
        console.table(frames, "frames against the caption")
    for side, beliefs in (("medium", found.prototypes_visual), ("caption", found.prototypes_text)):
        if beliefs:
            like = "the caption nearest to it" if side == "medium" else "the medium nearest to it"
            console.table(evidence(beliefs, like), f"prototypes behind the uncertainty of the {side}")
    if found.duplicates:
        console.table(found.duplicates, "duplicates of this medium")


def fits(found: "list[Fit]") -> list[dict[str, Any]]:
    """With their spans where some have one."""
    timed = any(fit.start is not None for fit in found)
    return [
        {"similarity": fit.similarity, "key": fit.key}
        | ({"start": fit.start, "end": fit.end} if timed else {})
        | {"caption": fit.caption}
        for fit in found
    ]


def evidence(beliefs: "list[PrototypeBelief]", like: str, most: int = 4) -> list[dict[str, Any]]:
    return [
        {"prototype": belief.prototype, "cosine": belief.cosine, "belief": belief.belief}
        | ({like: belief.like} if belief.like is not None else {})
        for belief in beliefs[:most]
    ]
