"""`auditor overlap`: what of an audit's corpus is also in another one, such as a benchmark's test set."""

from collections import Counter

import click

from auditor.commands.output import output_options, show, tell_notes


@click.command()
@click.argument("audit")
@click.argument("other")
@click.option("--media-cosine", type=float, help="From which cosine on media are the same; measured by default.")
@click.option("--caption-cosine", type=float, help="From which cosine on captions are the same; measured by default.")
@click.option("--model", metavar="M", help="The model of the audit, where it cannot be found by the name it had.")
@click.option("--device", default="auto", show_default=True, help="Where OTHER is encoded: cpu, cuda, …")
@click.option("-n", "count", type=click.IntRange(min=0), default=10, show_default=True, help="Matches to show.")
@output_options
def command(
    audit: str,
    other: str,
    media_cosine: float | None,
    caption_cosine: float | None,
    model: str | None,
    device: str,
    count: int,
    as_json: bool,
    as_csv: bool,
    parquet: str | None,
) -> None:
    """Media and captions of AUDIT that also are in OTHER, exactly or nearly: re-encoded, mirrored or slightly cropped.

    OTHER is an audit by the same model, or a corpus as `auditor audit` takes it, which is encoded for the purpose.
    `auditor filter AUDIT --no-overlap OTHER` then leaves those media out.

    \b
    auditor overlap audit/ coco-test/
    auditor filter audit/ --no-overlap coco-test/ --out clean/
    """
    from auditor.run.find_overlap import find_overlap
    from model.backbone import device_named

    tell_notes(audit, other)
    found = find_overlap(
        audit, other, media_cosine=media_cosine, caption_cosine=caption_cosine, model=model, device=device_named(device)
    )
    rows = sorted(found.to_pylist(), key=lambda row: (row["what"] != "media", -row["cosine"], row["uid"]))
    if as_json or as_csv or parquet:
        show(rows, as_json=as_json, as_csv=as_csv, parquet=parquet)
        return
    tally = Counter((row["what"], row["how"]) for row in rows)
    kinds = [(what, how) for what in ("media", "caption") for how in ("exact", "near")]
    show([{"what": what, "how": how, "rows": tally[what, how]} for what, how in kinds], title=f"{audit} in {other}")
    if rows[:count]:
        show(rows[:count], title="nearest", columns=("key", "what", "how", "cosine", "other_key", "other_caption"))
