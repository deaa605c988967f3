"""`auditor score`: score an audit again from its stored embeddings."""

from dataclasses import replace
from typing import Any

from auditor.commands.options import add_options, audit_command, json_option, option, options_from
from auditor.score.score_config import ScoreConfig
from model.model_names import check_model_name


@audit_command
@option("--model", metavar="CHECKPOINT", help="PAU checkpoint made for the audit's own backbone.")
@option("--refit", is_flag=True, help="Fit everything again on all shards of an audit that was extended.")
@option("--quiet", is_flag=True, help="Show no progress.")
@json_option("Print the summary as JSON.")
@add_options(options_from(ScoreConfig, optional=True))
def command(audit: str, model: str | None, refit: bool, quiet: bool, as_json: bool, **settings: Any) -> None:
    """Score AUDIT again from its stored embeddings alone: with another PAU head, more prototypes, another reference.

    A setting that is not given keeps the value of the last scoring.

    \b
    auditor score audit --model my-pau/best
    """
    if model:
        check_model_name(model)
    from auditor.run.outcome import report_outcome
    from auditor.run.rescore import read_score_settings, rescore

    changes = {name: value for name, value in settings.items() if value is not None}
    config = replace(read_score_settings(audit), **changes)
    report_outcome(audit, rescore(audit, model, config, refit=refit, quiet=quiet), as_json=as_json)
