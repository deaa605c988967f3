"""`auditor demo`: the whole workflow on a generated corpus whose defects are known."""

from pathlib import Path

import click

from auditor.commands.options import POSITIVE, SEED, json_option, option
from auditor.terminal import print_json, print_lines


@click.command()
@option("--out", required=True, metavar="DIR", help="Folder of the demo. The same command resumes it.")
@option("--size", type=POSITIVE, help="Samples to audit [default: 1,500, or 400 with --quick].")
@option("--seed", type=SEED, default=0, help="Random seed of the corpus and of training.")
@option("--quick", is_flag=True, help="Use a small corpus and a short training: rough figures in a third of the time.")
@option("--quiet", is_flag=True, help="Show no progress.")
@json_option("Print the comparison with the truth as JSON.")
def command(out: str, size: int | None, seed: int, quick: bool, quiet: bool, as_json: bool) -> None:
    """Generate a corpus with known defects, train a small model on its clean part, audit the rest and check the audit.

    Needs no network and no GPU; about three minutes on two cores.

    \b
    auditor demo --out demo
    """
    from auditor.demo.check_truth import compare_with_truth, print_demo_findings
    from auditor.demo.demo_corpus import read_truth
    from auditor.demo.run_demo import FULL, QUICK, DemoConfig, run_demo
    from auditor.python_api import Audit
    from auditor.report.report import write_report

    folder = Path(out)
    size = size or (QUICK if quick else FULL)
    audit_folder = run_demo(DemoConfig(folder, size, 2 * size if quick else None, seed, quiet))
    report = folder / "report.html"
    with Audit(audit_folder) as audit:
        findings = compare_with_truth(audit, read_truth(folder))
        write_report(audit.database, report)
    if as_json:
        print_json(findings.to_dict())
        return
    print_demo_findings(findings)
    print_lines(describe_next_steps(folder, audit_folder, report))


def describe_next_steps(folder: Path, audit: Path, report: Path) -> str:
    return (
        f"\nthe truth is in {folder / 'truth.jsonl'}, the report in {report}\n"
        f"next: auditor worst {audit} --by p_mismatch -n 20\n"
        f"      auditor explain {audit} KEY\n"
        f"      auditor thresholds {audit}\n"
        f"      auditor filter {audit} --lose-at-most 2% --out kept.parquet\n"
        f"      auditor dashboard {audit}"
    )
