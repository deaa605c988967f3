"""`auditor edits`: list the captions that people have edited."""

from auditor.commands.options import audit_command
from auditor.commands.output import Output, open_audit, output_options
from auditor.terminal import print_line

COLUMNS = ("key", "status", "reviewer", "old_caption", "new_caption")


@audit_command
@output_options
def command(audit: str, output: Output) -> None:
    """List the captions of AUDIT that people have edited on the dashboard or with Audit.edit.

    `filter`, `export` and `repair --apply` write captions as edited. An edit is "replaced" if another reviewer has
    edited the caption later, and "gone" if no row has its key and caption any more; neither is applied.

    \b
    auditor edits audit/
    auditor edits audit/ --csv > edits.csv
    """
    edits = open_audit(audit).edits()
    if not edits and not output.for_machines:
        print_line("nobody has edited a caption of this audit")
        return
    output.show([edit.to_dict() for edit in edits], columns=COLUMNS)
