"""`auditor filter`: write the part of a corpus that is worth keeping."""

from typing import TYPE_CHECKING, Any

import click

from auditor.commands.output import CORPUS_HELP, open_audit
from auditor.commands.selection import selected, selection_options
from auditor.say import say, say_json

if TYPE_CHECKING:
    from auditor.keep.export_target import Exported
    from auditor.keep.rule_effects import Effect, Effects
    from auditor.keep.subset import Subset
    from auditor.keep.subset_drift import Drift


@click.command()
@click.argument("audit")
@click.option("--out", help="kept.npy, .parquet, .txt, a folder for new shards, or .csv, .tsv, .jsonl of a table.")
@click.option("--input-columns", is_flag=True, help="A .parquet with the rows and columns of the input table.")
@selection_options
@click.option("--keep-top", help="Keep the best share (30%) or number (100000) of the usable rows ...")
@click.option("--by", help="... by this column; of --tiers p_mismatch by default.")
@click.option("--tiers", type=click.IntRange(min=2), help="Shards in this many tiers of quality, OUT/tier-1 the best.")
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
    tiers: int | None,
    **rules: Any,
) -> None:
    """Write the usable rows of AUDIT that meet all the rules given.

    Each pair of a medium and a caption is decided on for itself, and new shards hold the kept captions only;
    --per-medium decides on all captions of a medium together. Pairs that could not be audited are never kept.

    \b
    auditor filter audit/ --max-p-mismatch 0.1 --no-duplicates --dry-run
    auditor filter audit/ --keep-top 30% --by similarity --out kept.npy
    auditor filter audit/ --lose-at-most 2% --out clean/ --shard-size 5000
    auditor filter audit/ --lose-at-most 2% --tiers 3 --out tiers/
    auditor filter audit/ --where "license = 'cc-by'" --out kept.csv
    """
    if not out and not dry_run:
        raise click.UsageError("say where to with --out, or look first with --dry-run")
    by = rules["by"] or "p_mismatch"
    if tiers and not rules["keep_top"]:
        rules["by"] = None  # it ranks the tiers
    subset = selected(open_audit(audit, corpus), rules)
    if dry_run:
        show_plan(subset, as_json)
    elif out and tiers:
        write_tiers(subset, out, tiers, by, as_json, force=force, shard_size=shard_size)
    elif out:
        write(subset, out, as_json, force=force, shard_size=shard_size, input_columns=input_columns)


def write(subset: "Subset", out: str, as_json: bool, **options: Any) -> None:
    from dataclasses import asdict

    from auditor import console
    from auditor.keep.export import export
    from auditor.keep.export_target import target_form

    quiet = as_json or target_form(out) != "webdataset"
    with console.Progress("filter", None, "samples", quiet=quiet) as progress:
        done = export(subset, out, progress=progress.advance, **options)
    if as_json:
        unscored = {"unscored": subset.usable_unscored, "unscored_kept": subset.unscored}
        say_json({**asdict(done), **unscored, "rules": subset.rules.to_dict()})
    else:
        say(f"{done.target}: {written(done)}")
        if note := unscored_note(subset.usable_unscored, subset.unscored):
            say(note)


def write_tiers(subset: "Subset", out: str, count: int, by: str, as_json: bool, **options: Any) -> None:
    from dataclasses import asdict

    from auditor import console
    from auditor.keep.tiers import export_tiers

    with console.Progress("filter", None, "samples", quiet=as_json) as progress:
        done = export_tiers(subset, out, count, by, progress=progress.advance, **options)
    if as_json:
        say_json({**asdict(done), "open_clip": done.open_clip})
        return
    rows = [
        {
            "tier": tier.folder.rsplit("/", 1)[-1],
            "pairs": tier.pairs,
            "samples": tier.samples,
            "shards": tier.shards,
            "expected to match": percent(tier.expected_good),
            "factor": f"{tier.factor:.3g}",
        }
        for tier in done.tiers
    ]
    console.table(rows, f"{done.target}: tiers by {done.by}")
    say(f"open_clip: python -m open_clip_train.main {done.open_clip} …")


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
        say_json(plan)
        return
    title = f"{effects.kept:,} of {effects.rows:,} pairs would be kept, of {subset.media:,} media"
    console.table(effect_rows(effects), title)
    if note := unscored_note(effects.unscored, effects.unscored_kept):
        say(note)
    if not effects.kept:
        return  # nothing is left that could differ
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
