"""`auditor encoders`: which model can judge a corpus? jobs/encoders.py has the same options."""

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from auditor.commands.everyday.audit import media_options
from auditor.commands.options import SEED, GroupedCommand, add_options, advanced_option, json_option, option
from auditor.errors import AuditError
from auditor.run.start_audit import build_audit_config, open_inputs

if TYPE_CHECKING:
    from auditor.run.audit_config import AuditConfig
    from auditor.run.compare_encoders import EncoderTrial

encoders_options = add_options([
    click.argument("corpus"),
    option("--try", "models", multiple=True, metavar="M", help="A model to try, as in `auditor audit --model`. Repeat "
           "the option to compare models. Stored embeddings need none: they are tried as they are."),
    option("--sample", default=1000, type=click.IntRange(min=20), help="Number of random pairs."),
    option("--device", default="auto", help="cpu, cuda, cuda:1, ..."),
    option("--quiet", is_flag=True, help="Show no progress."),
    advanced_option("--seed", type=SEED, default=0, help="Random seed of the sample."),
    *media_options(skip={"carry", "shard_size", "context", "motion", "compiled"}),
    json_option(),
])  # fmt: skip


def build_trial_config(values: dict[str, Any]) -> "AuditConfig":
    config = build_audit_config(values)
    return replace(config, sweep=replace(config.sweep, context=0.0))  # frames around spans cost time and change nothing


def show_trials(outcomes: "Iterable[tuple[str, EncoderTrial | None, str]]", *, as_json: bool) -> None:
    """Print the models, best first, and which one to use; raise if a model could not be tried."""
    from auditor.console import print_table
    from auditor.run.compare_encoders import rank_trials
    from auditor.terminal import print_json, print_line

    finished = list(outcomes)
    failures = {name: failure for name, _, failure in finished if failure}
    if trials := [trial for _, trial, _ in finished if trial is not None]:
        ranked, model, conclusion = rank_trials(trials)
        rows = [trial.to_dict() for trial in ranked]
        if as_json:
            print_json({"encoders": rows, "use": model, "conclusion": conclusion, "failures": failures})
        else:
            print_table([format_row(row) for row in rows], f"{rows[0]['pairs']:,} random pairs; intervals of 90%")
            print_line(conclusion)
    if len(set(failures.values())) == 1 and not trials:
        raise AuditError(next(iter(failures.values())))
    if failures:
        raise AuditError("; ".join(f"{name} could not be tried: {failure}" for name, failure in failures.items()))


def format_row(row: dict[str, Any]) -> dict[str, Any]:
    def interval(name: str) -> str:
        return "{value:.2f} ({low:.2f} to {high:.2f})".format(**row[name])

    return {
        "model": row["model"],
        "can judge": f"{row['judged']:.0%} of pairs" + (": blind" if row["blind"] else ""),
        "pairs above random ones, sd": interval("separation"),
        "sees related captions": interval("relatedness"),
        "pairs/s": row["pairs_per_second"],
        "parameters": row["parameters"] and f"{row['parameters'] / 1e6:,.1f} M",
        "weights": row["weight_bytes"] and f"{row['weight_bytes'] / 2**20:,.0f} MiB",
        "width": row["width"],
    }


@click.command(cls=GroupedCommand)
@encoders_options
def command(models: tuple[str, ...], sample: int, as_json: bool, **values: Any) -> None:
    """Try models on a random sample of CORPUS, and rank them: which one can judge this corpus, and how fast?

    CORPUS is anything that `auditor audit` reads. A model that is blind to a corpus tells its captions hardly better
    from random ones than chance, and cannot find mismatched pairs. No labels are needed. Nothing is written.

    \b
    auditor encoders photos/ --try ViT-B-32@laion2b_s34b_b79k --try my-pau/best
    auditor encoders datacomp:metadata/ --features b32
    """
    corpus = open_inputs(values, models if len(models) == 1 else ())  # of several, the others are tried
    from auditor.run.compare_encoders import try_encoders

    config = build_trial_config(values)
    show_trials(try_encoders(corpus, config, models, sample), as_json=as_json)
