"""`auditor doctor`: check the installation."""

import click

from auditor.say import say


@click.command()
@click.option("--json", "as_json", is_flag=True, help="For machines.")
@click.pass_context
def command(context: click.Context, as_json: bool) -> None:
    """Check the installation: packages, decoders, GPU, memory, free disk, network for hub weights.

    Exits non-zero where something that is needed is broken.

    \b
    auditor doctor
    auditor doctor --json
    """
    from dataclasses import asdict

    from auditor.console import emit
    from auditor.doctor import examine

    findings = list(examine())
    emit([asdict(finding) for finding in findings], json=as_json)
    broken = [finding.check for finding in findings if finding.status == "broken"]
    if not as_json:
        say(f"to repair: {', '.join(broken)}" if broken else "all that is needed works")
    if broken:
        context.exit(1)
