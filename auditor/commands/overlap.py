"""`auditor overlap`: media and captions of an audit that are also in another corpus, such as a test set."""

from collections import Counter

import click

from auditor.commands.options import GroupedCommand, advanced_option
from auditor.commands.output import output_options, print_notes, show_rows


@click.command(cls=GroupedCommand)
@click.argument("audit")
@click.argument("other")
@advanced_option("--media-cosine", type=float, help="Treat media as the same from this cosine up [default: estimated].")
@advanced_option(
    "--caption-cosine", type=float, help="Treat captions as the same from this cosine up [default: estimated]."
)
@click.option("--model", metavar="M", help="The model of the audit, if it is not where the audit found it.")
@click.option("--device", default="auto", show_default=True, help="Device that encodes OTHER: cpu, cuda, ...")
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
    """Find media and captions of AUDIT that are also in OTHER: equal, re-encoded, mirrored or slightly cropped.

    OTHER is an audit by the same model, or a corpus that `auditor audit` reads, which is then encoded. Afterwards
    `auditor filter AUDIT --no-overlap OTHER` leaves those media out.

    \b
    auditor overlap audit/ coco-test/
    auditor filter audit/ --no-overlap coco-test/ --out clean/
    """
    from auditor.run.find_overlap import find_overlap
    from model.backbone import resolve_device

    print_notes(audit, other)
    matches = find_overlap(
        audit,
        other,
        media_cosine=media_cosine,
        caption_cosine=caption_cosine,
        model=model,
        device=resolve_device(device),
    )
    rows = sorted(matches.to_pylist(), key=lambda row: (row["what"] != "media", -row["cosine"], row["uid"]))
    if as_json or as_csv or parquet:
        show_rows(rows, as_json=as_json, as_csv=as_csv, parquet=parquet)
        return
    tally = Counter((row["what"], row["how"]) for row in rows)
    kinds = [(part, method) for part in ("media", "caption") for method in ("exact", "near")]
    show_rows(
        [{"what": part, "how": method, "rows": tally[part, method]} for part, method in kinds],
        title=f"{audit} in {other}",
    )
    if rows[:count]:
        show_rows(rows[:count], title="nearest", columns=("key", "what", "how", "cosine", "other_key", "other_caption"))
