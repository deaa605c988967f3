"""`auditor worst`: list the most suspicious rows by any column."""

from auditor.commands.options import audit_command, count_option, option, where_option
from auditor.commands.output import Output, add_place_columns, open_database, output_options
from auditor.schema import HEADLINES
from auditor.terminal import print_line


@audit_command
@option("--by", default="p_mismatch", help=f"Column, like {', '.join(HEADLINES)}; the suspicious end comes first.")
@count_option(20)
@where_option
@output_options
def command(audit: str, by: str, count: int, where: str | None, output: Output) -> None:
    """List the most suspicious usable rows of AUDIT by a column.

    \b
    auditor worst audit/
    auditor worst audit/ --by uncertainty_text -n 50 --where "kind = 'video'"
    """
    from auditor.query.row_queries import find_worst_rows, write_calm_note

    table = find_worst_rows(open_database(audit), by, count, where)
    rows = table.to_pylist()
    output.show(table, columns=add_place_columns(list(dict.fromkeys((by, "uid", "key", "caption"))), rows))
    if note := write_calm_note(rows, by):
        print_line(f"note: {note}", err=True)
