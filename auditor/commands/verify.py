"""`auditor verify`: re-read a random sample of the corpus and compare."""

import click


@click.command()
@click.argument("audit")
@click.option("-n", "count", default=50, show_default=True, help="Rows to check.")
@click.option("--model", help="The model, where it is not where the audit found it.")
@click.option("--corpus", metavar="NEW_ROOT", help="Where the corpus is now, if it has moved.")
@click.option("--seed", default=0, show_default=True, help="Which rows are chosen.")
@click.option("--json", "as_json", is_flag=True, help="Every check as JSON.")
def command(audit: str, count: int, model: str | None, corpus: str | None, seed: int, as_json: bool) -> None:
    """Read a random sample of the rows of AUDIT from the corpus again, encode, score and compare.

    Exits non-zero when a row does not come out as it is stored.

    \b
    auditor verify audit -n 100
    """
    from auditor.console import as_json as to_json
    from auditor.console import table
    from auditor.errors import AuditorError
    from auditor.run.verify import as_rows, verify

    checks = verify(audit, count, model=model, corpus=corpus, seed=seed)
    rows = as_rows(checks)
    wrong = [row for row in rows if row["differs"]]
    if as_json:
        click.echo(to_json(rows))
    elif wrong:
        table(wrong, "rows that differ")
    if wrong:
        raise AuditorError(f"{len(wrong)} of {len(rows)} rows do not come out as they are stored")
    if not as_json:
        click.echo(f"{len(rows)} rows read, encoded and scored again: all as stored")
