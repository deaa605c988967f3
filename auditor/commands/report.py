"""`auditor report`: write one self-contained HTML file."""

import click

from auditor.commands.options import CORPUS_HELP, audit_command, option
from auditor.commands.output import open_audit
from auditor.terminal import print_line


@audit_command
@option("--out", default="report.html", help="File to write.")
@option("--per-gallery", type=click.IntRange(0, 200), default=12, help="Pairs per gallery.")
@option("--no-media", is_flag=True, help="Omit thumbnails, so that the corpus is not read.")
@option("--corpus", help=CORPUS_HELP)
@option("--force", is_flag=True, help="Replace an existing report.")
def command(audit: str, out: str, per_gallery: int, no_media: bool, corpus: str | None, force: bool) -> None:
    """Write one self-contained HTML file: numbers, charts, galleries of the worst pairs, settings and versions.

    \b
    auditor report audit/ --out report.html
    """
    from auditor.report.report import ReportOptions, write_report

    opened = open_audit(audit, corpus)
    size = write_report(opened.database, out, ReportOptions(per_gallery, not no_media), force=force)
    print_line(f"{out}: {size / 1e6:.1f} MB")
