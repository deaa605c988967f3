"""`auditor verify`: re-read a random sample of the corpus and compare."""

from dataclasses import asdict
from typing import Any

from auditor.commands.options import SEED, audit_command, count_option, json_option, option
from auditor.commands.output import print_notes
from auditor.errors import AuditorError
from auditor.terminal import print_json, print_line


@audit_command
@count_option(50, "Number of rows to check.")
@option("--model", help="The model, if it is not where the audit found it.")
@option("--corpus", metavar="NEW_ROOT", help="Where the corpus is now, if it has moved.")
@option("--seed", type=SEED, default=0, help="Random seed of the sample.")
@option("--files", is_flag=True, help="Instead, check that no stored file is missing, foreign or damaged.")
@json_option("Print every check as JSON.")
def command(audit: str, count: int, files: bool, as_json: bool, **options: Any) -> None:
    """Read a random sample of the rows of AUDIT from the corpus again, encode and score it, and compare.

    Exits non-zero if a row differs from the stored one.

    \b
    auditor verify audit -n 100
    auditor verify audit --files
    """
    if files:
        verify_files(audit, as_json)
        return
    from auditor.console import print_table
    from auditor.run.verify import list_checks, verify_audit

    print_notes(audit)
    rows = list_checks(verify_audit(audit, count, **options))
    different = [row for row in rows if row["differs"]]
    if as_json:
        print_json(rows)
    elif different:
        print_table(different, "rows that differ")
    if different:
        raise AuditorError(f"{len(different)} of {len(rows)} rows differ from the stored ones")
    if not as_json:
        print_line(f"{len(rows)} rows read, encoded and scored again: all equal to the stored ones")


def verify_files(audit: str, as_json: bool) -> None:
    """Check the stored files; needs neither the corpus nor the model."""
    from auditor.audit_folder.check_files import check_audit_files
    from auditor.audit_folder.folder import Folder
    from auditor.console import print_table

    count, problems = check_audit_files(Folder(audit))
    rows = [asdict(problem) for problem in problems]
    if as_json:
        print_json(rows)
    elif rows:
        print_table(rows, "damaged, missing, foreign or unreadable files")
    if rows:
        has_refusal = any(row["problem"].startswith("cannot read") for row in rows)
        remedy = "check your access, then verify again" if has_refusal else "run the `auditor audit` command again"
        raise AuditorError(f"{len(rows)} problems with the files of {audit}; {remedy}")
    if not as_json:
        print_line(f"{count:,} files are complete and undamaged")
