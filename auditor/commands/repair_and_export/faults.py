"""`auditor faults`: faults of a corpus that come in patterns."""

from auditor.commands.options import audit_command, option
from auditor.commands.output import Output, open_audit, output_options
from auditor.terminal import print_line


@audit_command
@option("--by", default="shard", help="Column whose values are compared: shard, topic, ...")
@output_options
def command(audit: str, by: str, output: Output) -> None:
    """Find faults of AUDIT that come in patterns, from its stored embeddings alone.

    Finds shifted, exchanged, reversed and mixed-up captions, shards whose captions belong to another shard, shards
    with many bad rows, and repeated captions. The result is stored in faults.parquet.

    \b
    auditor faults audit/
    auditor faults audit/ --by topic
    auditor faults audit/ --json
    """
    rows = [fault.to_dict() for fault in open_audit(audit).faults(by)]
    if rows or output.for_machines:
        output.show(rows, f"{len(rows)} faults", ("kind", "rows", "p_value", "sentence"))
    else:
        print_line("no faults found")
