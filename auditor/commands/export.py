"""`auditor export`: the rows of an audit for other programs, FiftyOne and spreadsheets."""

from typing import TYPE_CHECKING, Any

import click

from auditor.commands.output import CORPUS_HELP, open_audit
from auditor.commands.selection import select_rows, selection_options
from auditor.terminal import print_json, print_line

if TYPE_CHECKING:
    from auditor.keep.subset import Subset


@click.command()
@click.argument("audit")
@click.option("--fiftyone", metavar="NAME", help="Make a FiftyOne dataset: fields, flags as tags, embeddings.")
@click.option("--media", metavar="FOLDER", help="Where media that lie in tars or tables are written for FiftyOne.")
@click.option("--csv", metavar="FILE", help="Write all columns to a CSV for spreadsheets.")
@selection_options
@click.option("--corpus", help=CORPUS_HELP)
@click.option("--force", is_flag=True, help="Replace what exists.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    audit: str,
    fiftyone: str | None,
    media: str | None,
    csv: str | None,
    corpus: str | None,
    force: bool,
    as_json: bool,
    **rules: Any,
) -> None:
    """Give the usable rows of AUDIT that meet all the rules given to FiftyOne, or to a spreadsheet.

    \b
    auditor export audit/ --fiftyone my-audit --min p_mismatch=0.5
    auditor export audit/ --csv suspects.csv --where "mismatch AND kind = 'image'"
    """
    if not (fiftyone or csv):
        raise click.UsageError("say where to: --fiftyone NAME or --csv FILE")
    if fiftyone:
        from auditor.keep.export_fiftyone import load_fiftyone

        load_fiftyone()  # before any work
    subset = select_rows(open_audit(audit, corpus), rules)
    done: dict[str, int] = {}
    if csv:
        done |= {csv: export_to_csv(subset, csv, force)}
    if fiftyone:
        done |= export_to_fiftyone(subset, fiftyone, media, force, as_json)
    if as_json:
        print_json(done)
        return
    for target, rows in done.items():
        print_line(f"{target}: {rows:,} rows")


def export_to_csv(subset: "Subset", target: str, force: bool) -> int:
    from auditor.keep.export import MOST_ROWS, export_csv

    rows = export_csv(subset, target, force=force)
    if rows > MOST_ROWS:
        print_line(f"note: a spreadsheet shows {MOST_ROWS:,} rows at most", err=True)
    return rows


def export_to_fiftyone(subset: "Subset", name: str, media: str | None, force: bool, quiet: bool) -> dict[str, int]:
    from auditor import console
    from auditor.keep.export_fiftyone import to_fiftyone

    with console.Progress("export", None, "samples", quiet=quiet) as progress:
        return to_fiftyone(subset, name, media, force=force, progress=progress.advance)
