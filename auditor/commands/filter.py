"""`auditor filter`: write the part of a corpus that is worth keeping."""

from typing import TYPE_CHECKING, Any

import click

from auditor.commands.output import CORPUS_HELP, Function, open_audit, parse_loss
from auditor.query.rules import CHOICES
from auditor.schema import RULES

if TYPE_CHECKING:
    from auditor.audit import Audit
    from auditor.keep.drift import Drift
    from auditor.keep.effects import Effect, Effects
    from auditor.keep.subset import Subset
    from auditor.keep.target import Exported


def rule_options(function: Function) -> Function:
    """One option for each column that declares a rule, in the order of the columns."""
    for rule, column in reversed(RULES.items()):
        function = click.option("--" + rule.replace("_", "-"), rule, type=float, help=column.rule)(function)
    return function


@click.command()
@click.argument("audit")
@click.option("--out", help="kept.npy, .parquet, .txt, a folder for new shards, or .csv, .tsv, .jsonl of a table.")
@click.option("--input-columns", is_flag=True, help="A .parquet with the rows and columns of the input table.")
@rule_options
@click.option("--max", "at_most", multiple=True, metavar="COLUMN=X", help="Keep rows with at most X in any column.")
@click.option("--min", "at_least", multiple=True, metavar="COLUMN=X", help="Keep rows with at least X in any column.")
@click.option("--keep-top", help="Keep the best share (30%) or number (100000) of the usable rows ...")
@click.option("--by", help="... by this column.")
@click.option("--where", help="Keep rows that meet this SQL condition.")
@click.option("--no-duplicates", is_flag=True, help="Of each group of duplicates keep one.")
@click.option("--no-overlap", metavar="OTHER", help="Leave out media that `auditor overlap` found in OTHER too.")
@click.option(
    "--unscored",
    type=click.Choice(CHOICES["unscored"]),
    default="keep",
    show_default=True,
    help="What to do with pairs that have no estimate for a limit, such as those of a kind with too few pairs.",
)
@click.option(
    "--per-medium",
    type=click.Choice(CHOICES["per_medium"]),
    help="Keep or remove all captions of a medium together: when any or all of them meet the rules, or by the mean or "
    "the worst of their numbers.",
)
@click.option("--lose-at-most", help="Choose the cut of p_mismatch that loses at most this share (2%) of good pairs.")
@click.option("--expect-precision", type=float, help="Choose the cut at which this share of the removed is mismatched.")
@click.option("--dry-run", is_flag=True, help="Write nothing: show what each rule removes, how the kept set differs.")
@click.option("--shard-size", type=click.IntRange(min=1), default=10_000, show_default=True, help="Samples per shard.")
@click.option("--corpus", help=CORPUS_HELP)
@click.option("--force", is_flag=True, help="Replace an output that exists.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    audit: str,
    out: str | None,
    input_columns: bool,
    dry_run: bool,
    shard_size: int,
    corpus: str | None,
    force: bool,
    as_json: bool,
    lose_at_most: str | None,
    expect_precision: float | None,
    at_most: tuple[str, ...],
    at_least: tuple[str, ...],
    **rules: Any,
) -> None:
    """Write the usable rows of AUDIT that meet all the rules given.

    Each pair of a medium and a caption is decided on for itself, and new shards hold the kept captions only;
    --per-medium decides on all captions of a medium together. Pairs that could not be audited are never kept.

    \b
    auditor filter audit/ --max-p-mismatch 0.1 --no-duplicates --dry-run
    auditor filter audit/ --keep-top 30% --by similarity --out kept.npy
    auditor filter audit/ --lose-at-most 2% --out clean/ --shard-size 5000
    auditor filter audit/ --where "license = 'cc-by'" --out kept.csv
    """
    if not out and not dry_run:
        raise click.UsageError("say where to with --out, or look first with --dry-run")
    opened = open_audit(audit, corpus)
    if lose_at_most is not None or expect_precision is not None:
        rules["max_p_mismatch"] = chosen_cut(opened, lose_at_most, expect_precision, rules["max_p_mismatch"])
    subset = opened.keep(**rules, max=bounds_on("max", at_most), min=bounds_on("min", at_least))
    if dry_run:
        show_plan(subset, as_json)
    elif out:
        write(subset, out, as_json, force=force, shard_size=shard_size, input_columns=input_columns)


def bounds_on(end: str, given: tuple[str, ...]) -> dict[str, float]:
    """What COLUMN=X says, by column."""
    from auditor.query.rules import RuleError

    found = {}
    for text in given:
        column, _, value = text.partition("=")
        try:
            found[column.strip()] = float(value)
        except ValueError:
            raise RuleError(f"--{end} {text!r}: write it like --{end} aesthetics_score=5") from None
    return found


def chosen_cut(audit: "Audit", lose_at_most: str | None, expect_precision: float | None, given: float | None) -> float:
    """The cut of p_mismatch within the limits; the stricter of it and a bound that was given too."""
    from auditor.query.thresholds import choose_cut

    share = parse_loss(lose_at_most) if lose_at_most is not None else None
    cut = float(choose_cut(audit.database, lose_at_most=share, expect_precision=expect_precision))
    click.echo(f"cut: p_mismatch <= {cut:.4g}", err=True)
    return cut if given is None else min(cut, given)


def write(subset: "Subset", out: str, as_json: bool, **options: Any) -> None:
    from dataclasses import asdict

    from auditor import console
    from auditor.keep.export import export
    from auditor.keep.target import target_form

    quiet = as_json or target_form(out) != "webdataset"
    with console.Progress("filter", None, "samples", quiet=quiet) as progress:
        done = export(subset, out, progress=progress.advance, **options)
    if as_json:
        unscored = {"unscored": subset.usable_unscored, "unscored_kept": subset.unscored}
        click.echo(console.as_json({**asdict(done), **unscored, "rules": subset.rules.to_dict()}))
    else:
        click.echo(f"{done.target}: {written(done)}")
        if note := unscored_note(subset.usable_unscored, subset.unscored):
            click.echo(note)


def written(done: "Exported") -> str:
    """What a target holds: "1,092 captions of 231 samples in 1 shard"."""
    if done.form == "webdataset":
        shards = f"{done.shards:,} shard{'s' if done.shards != 1 else ''}"
        return f"{done.captions:,} captions of {done.rows:,} samples kept, in {shards}"
    if done.form == "txt":
        left = " (a list of keys cannot leave out captions)" if done.rows != done.captions else ""
        return f"{done.rows:,} keys, of the media of {done.captions:,} captions kept{left}"
    return f"{done.rows:,} {'uids' if done.form == 'npy' else 'rows'} kept"


def unscored_note(usable: int, kept: int) -> str:
    """ "no estimate: 3" and what became of them; empty where there are none."""
    if not usable:
        return ""
    became = "kept; --unscored drop removes them" if kept == usable else f"{kept:,} kept" if kept else "removed"
    return f"no estimate: {usable:,} pairs without p_mismatch, {became}"


def show_plan(subset: "Subset", as_json: bool) -> None:
    from dataclasses import asdict

    from auditor import console

    effects, drift = subset.effects(), subset.drift()
    if as_json:
        plan = {
            **asdict(effects),
            "media_kept": subset.media,
            "shifts": {**asdict(drift), "topic_distance": drift.topic_distance},
        }
        click.echo(console.as_json(plan))
        return
    title = f"{effects.kept:,} of {effects.rows:,} pairs would be kept, of {subset.media:,} media"
    console.table(effect_rows(effects), title)
    if note := unscored_note(effects.unscored, effects.unscored_kept):
        click.echo(note)
    console.table(drift_rows(drift), "how the kept rows differ from all usable ones")
    console.table(topic_rows(drift), f"topics: {drift.topic_distance:.1%} of the kept rows moved")


def effect_rows(effects: "Effects") -> list[dict[str, Any]]:
    rows = [effect_row(effect) for effect in (*effects.rules, effects.together)]
    return [*rows, {"rule": "not usable (status)", "removed": effects.rows - effects.usable}]


def effect_row(effect: "Effect") -> dict[str, Any]:
    return {
        "rule": effect.rule,
        "removed": effect.removed,
        "only by it": effect.removed_only_by_it,
        "expected precision": percent(effect.expected_precision),
        "good pairs lost": percent(effect.expected_loss),
    }


def drift_rows(drift: "Drift") -> list[dict[str, Any]]:
    return [
        {"mean of": mean.measure, "all": mean.whole, "kept": mean.kept, "change": percent(mean.change, sign=True)}
        for mean in drift.measures
    ]


def topic_rows(drift: "Drift", most: int = 5) -> list[dict[str, Any]]:
    return [
        {"topic": str(topic.topic), "rows": topic.rows, "all": percent(topic.whole), "kept": percent(topic.kept)}
        for topic in drift.topics[:most]
    ]


def percent(share: float | None, *, sign: bool = False) -> str:
    if share is None:
        return ""
    return f"{share:+.1%}" if sign else f"{share:.1%}"
