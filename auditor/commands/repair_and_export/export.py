"""`auditor export`: rows of an audit for FiftyOne and spreadsheets."""

from typing import TYPE_CHECKING, Any

import click

from auditor.commands.options import CORPUS_HELP, audit_command, json_option, option
from auditor.commands.output import open_audit, print_changes
from auditor.commands.selection import select_rows, selection_options
from auditor.terminal import print_json, print_line, print_lines

if TYPE_CHECKING:
    from auditor.keep.subset import Subset


@audit_command
@option("--fiftyone", metavar="NAME", help="Create a FiftyOne dataset with fields, tags and embeddings.")
@option("--media", metavar="FOLDER", help="Folder for media that FiftyOne cannot read from tars or tables.")
@option("--csv", metavar="FILE", help="Write all columns to a CSV for spreadsheets.")
@selection_options
@option("--corpus", help=CORPUS_HELP)
@option("--force", is_flag=True, help="Replace an existing file or dataset.")
@json_option()
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
    """Export the usable rows of AUDIT that satisfy all rules to FiftyOne or a spreadsheet.

    \b
    auditor export audit/ --fiftyone my-audit --min p_mismatch=0.5
    auditor export audit/ --csv suspects.csv --where "mismatch AND kind = 'image'"
    """
    if not (fiftyone or csv):
        raise click.UsageError("name a target with --fiftyone NAME or --csv FILE")
    if fiftyone:
        from auditor.keep.export_fiftyone import load_fiftyone

        load_fiftyone()  # before any work
    subset = select_rows(open_audit(audit, corpus), rules)
    row_counts: dict[str, int] = {}
    if csv:
        row_counts[csv] = export_to_csv(subset, csv, force)
    if fiftyone:
        row_counts |= export_to_fiftyone(subset, fiftyone, media, force, as_json)
    if as_json:
        print_json(row_counts)
    else:
        print_lines("\n".join(f"{target}: {rows:,} rows" for target, rows in row_counts.items()))
        print_changes(subset.change_counts)


def export_to_csv(subset: "Subset", target: str, force: bool) -> int:
    from auditor.keep.export import MOST_ROWS, export_csv

    rows = export_csv(subset, target, force=force)
    if rows > MOST_ROWS:
        print_line(f"note: a spreadsheet shows {MOST_ROWS:,} rows at most", err=True)
    return rows


def export_to_fiftyone(subset: "Subset", name: str, media: str | None, force: bool, quiet: bool) -> dict[str, int]:
    from auditor import console
    from auditor.keep.export_fiftyone import export_fiftyone

    with console.Progress("export", None, "samples", quiet=quiet) as progress:
        return export_fiftyone(subset, name, media, force=force, progress=progress.advance)
