"""`auditor card`: a dataset card, and Croissant metadata."""

from auditor.commands.options import audit_command, option
from auditor.commands.output import open_audit
from auditor.terminal import print_line


@audit_command
@option("--out", default="README.md", help="Card to write, or to update.")
@option("--subset", metavar="DIR", help="Shards that `auditor filter` wrote from AUDIT, to say what was removed.")
@option("--croissant", metavar="FILE", help="Also describe the Parquet files of AUDIT in Croissant.")
def command(audit: str, out: str, subset: str | None, croissant: str | None) -> None:
    """Write what AUDIT found into a dataset card in Hugging Face's format.

    In an existing card, only the section between the markers and the metadata key `auditor` change.

    \b
    auditor card audit/ --out README.md
    auditor card audit/ --out clean/README.md --subset clean/ --croissant croissant.json
    """
    from auditor.report.croissant import write_croissant
    from auditor.report.dataset_card import write_card

    database = open_audit(audit).database
    digest = write_card(database, out, subset)
    if croissant:
        write_croissant(database.files.folder, digest, croissant)
    print_line(f"written: {', '.join(filter(None, (out, croissant)))}")
