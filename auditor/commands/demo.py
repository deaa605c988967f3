"""`auditor demo`: everything at once on a generated corpus whose defects are known."""

from pathlib import Path

import click

from auditor.say import say_json, say_lines


@click.command()
@click.option("--out", required=True, metavar="DIR", help="Folder of the demo; the same command again goes on with it.")
@click.option("--size", type=click.IntRange(min=1), help="Samples to audit: 1,500, or 400 with --quick.")
@click.option("--seed", default=0, show_default=True, help="Of the corpus and of training.")
@click.option(
    "--quick", is_flag=True, help="A small corpus and a short training: rough figures in a third of the time."
)
@click.option("--quiet", is_flag=True, help="No progress.")
@click.option("--json", "as_json", is_flag=True, help="What was found against the truth, as JSON.")
def command(out: str, size: int | None, seed: int, quick: bool, quiet: bool, as_json: bool) -> None:
    """Draw a corpus with known defects, train a small model on its sound part, audit the rest and check the audit.

    Needs no network and no GPU; about three minutes on two cores.

    \b
    auditor demo --out demo
    """
    from auditor.audit import Audit
    from auditor.demo.check_truth import compare, show
    from auditor.demo.demo_corpus import read_truth
    from auditor.demo.run_demo import FULL, DemoConfig, quick_config, run_demo
    from auditor.report.report import ReportOptions, write_report

    place = Path(out)
    full = DemoConfig(place, size or FULL, seed=seed, quiet=quiet)
    audited = run_demo(quick_config(place, size, seed, quiet) if quick else full)
    report = place / "report.html"
    with Audit(audited) as audit:
        findings = compare(audit, read_truth(place))
        write_report(audit.database, report, ReportOptions(), force=True)
    if as_json:
        say_json(findings.to_dict())
        return
    show(findings)
    say_lines(next_steps(place, audited, report))


def next_steps(place: Path, audit: Path, report: Path) -> str:
    return (
        f"\nthe truth is in {place / 'truth.jsonl'}, the report to look at in {report}\n"
        f"next: auditor worst {audit} --by p_mismatch -n 20\n"
        f"      auditor explain {audit} KEY\n"
        f"      auditor thresholds {audit}\n"
        f"      auditor filter {audit} --lose-at-most 2% --out kept.parquet\n"
        f"      auditor dashboard {audit}"
    )
