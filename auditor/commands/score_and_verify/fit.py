"""`auditor fit`: fit PAU prototypes on stored embeddings."""

from typing import Any

import click

from auditor.commands.options import add_options, audit_command, json_option, option, options_from
from auditor.score.score_config import HeadFitConfig


@audit_command
@option("--out", required=True, type=click.Path(file_okay=False), help="Folder of the new checkpoint.")
@json_option()
@add_options(options_from(HeadFitConfig))
def command(audit: str, out: str, as_json: bool, **settings: Any) -> None:
    """Fit PAU prototypes on the stored embeddings of AUDIT; the encoders do not change.

    Use the result with `auditor score AUDIT --model DIR` or for any audit with the same encoders.

    \b
    auditor fit audit --out my-head
    auditor fit audit --out my-head --target h --prototypes 32
    """
    from auditor.audit_folder.folder import Folder
    from auditor.commands.output import print_notes
    from auditor.console import print_rows
    from auditor.score.fit_audit import fit_audit

    print_notes(audit)
    config = HeadFitConfig(**settings)
    rows = fit_audit(Folder(audit), out, config)
    print_rows(rows, title=f"{config.prototypes} prototypes per modality, saved in {out}", json=as_json)
