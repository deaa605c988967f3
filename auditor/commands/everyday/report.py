"""`auditor report`: write one self-contained HTML file."""

from auditor.commands.options import CORPUS_HELP, audit_command, option
from auditor.commands.output import open_audit, refuse_existing_file
from auditor.terminal import print_line


@audit_command
@option("--out", default="report.html", help="File to write.")
@option("--no-media", is_flag=True, help="Omit thumbnails, so that the corpus is not read.")
@option("--corpus", help=CORPUS_HELP)
@option("--force", is_flag=True, help="Replace an existing report.")
def command(audit: str, out: str, no_media: bool, corpus: str | None, force: bool) -> None:
    """Write one self-contained HTML file: findings with pictures, numbers, charts, settings and versions.

    \b
    auditor report audit/ --out report.html
    """
    from auditor.report.report import write_report

    if not force:
        refuse_existing_file(out)
    size = write_report(open_audit(audit, corpus).database, out, media=not no_media)
    print_line(f"{out}: {size / 1e6:.1f} MB")
