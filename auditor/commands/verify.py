"""`auditor verify`: re-read a random sample of the corpus and compare."""

import click

from auditor.say import say, say_json


@click.command()
@click.argument("audit")
@click.option("-n", "count", default=50, show_default=True, help="Rows to check.")
@click.option("--model", help="The model, where it is not where the audit found it.")
@click.option("--corpus", metavar="NEW_ROOT", help="Where the corpus is now, if it has moved.")
@click.option("--seed", default=0, show_default=True, help="Which rows are chosen.")
@click.option("--files", is_flag=True, help="Check every stored file instead: none missing, foreign or damaged.")
@click.option("--json", "as_json", is_flag=True, help="Every check as JSON.")
def command(
    audit: str, count: int, model: str | None, corpus: str | None, seed: int, files: bool, as_json: bool
) -> None:
    """Read a random sample of the rows of AUDIT from the corpus again, encode, score and compare.

    Exits non-zero when a row does not come out as it is stored.

    \b
    auditor verify audit -n 100
    auditor verify audit --files
    """
    if files:
        verify_files(audit, as_json)
        return
    from auditor.commands.output import tell_notes
    from auditor.console import table
    from auditor.errors import AuditorError
    from auditor.run.verify import as_rows, verify

    tell_notes(audit)
    checks = verify(audit, count, model=model, corpus=corpus, seed=seed)
    rows = as_rows(checks)
    wrong = [row for row in rows if row["differs"]]
    if as_json:
        say_json(rows)
    elif wrong:
        table(wrong, "rows that differ")
    if wrong:
        raise AuditorError(f"{len(wrong)} of {len(rows)} rows do not come out as they are stored")
    if not as_json:
        say(f"{len(rows)} rows read, encoded and scored again: all as stored")


def verify_files(audit: str, as_json: bool) -> None:
    """Needs neither the corpus nor the model."""
    from dataclasses import asdict

    from auditor.audit_folder.check_files import check_files
    from auditor.audit_folder.folder import Folder
    from auditor.console import table
    from auditor.errors import AuditorError

    count, problems = check_files(Folder(audit))
    rows = [asdict(problem) for problem in problems]
    if as_json:
        say_json(rows)
    elif rows:
        table(rows, "files that are not as they should be")
    if rows:
        raise AuditorError(f"{len(rows)} problems with the files of {audit}; run the `auditor audit` command again")
    if not as_json:
        say(f"{count:,} files are all here and as they were written")
