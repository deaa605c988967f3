"""`auditor filter`: write the part of a corpus that is worth keeping."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from auditor.commands.options import CORPUS_HELP, POSITIVE, advanced_option, audit_command, json_option, option
from auditor.commands.output import open_audit, print_changes
from auditor.commands.selection import is_ranked, select_rows, selection_options
from auditor.terminal import print_json, print_line

if TYPE_CHECKING:
    from auditor.keep.export_target import ExportResult
    from auditor.keep.rule_effects import RuleEffect
    from auditor.keep.subset import Subset

TIERS = click.IntRange(min=2)
SHOWN_TOPICS = 5
NOT_RULES = ("by", "unscored", "per_medium", "no_edits")  # they say how rules apply


@audit_command
@option(
    "--out", help="Target: a folder for new shards, kept.npy, .parquet or .txt; for a table also .csv, .tsv, .jsonl."
)
@advanced_option("--input-columns", is_flag=True, help="Write a .parquet with the columns of the input table.")
@selection_options
@option("--keep-top", help="Keep the best share (30%) or number (100000) of the usable rows ...")
@option("--by", help="... by this column; also that of --tiers or --lose-at-most, p_mismatch by default.")
@advanced_option("--tiers", type=TIERS, help="Write shards in this many tiers of quality; OUT/tier-1 is best.")
@option("--dry-run", is_flag=True, help="Write nothing; show what each rule removes and how the kept rows differ.")
@advanced_option("--shard-size", type=POSITIVE, default=10_000, help="Samples per shard.")
@advanced_option("--corpus", help=CORPUS_HELP)
@option("--force", is_flag=True, help="Replace an existing output.")
@json_option()
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
    """Write the usable rows of AUDIT that satisfy all rules.

    The rules apply to each pair of a medium and a caption, and new shards hold the kept captions only; --per-medium
    keeps or removes all captions of a medium together. Pairs that could not be audited are never kept.

    --recommended limits p_mismatch to 0.5, and uncertainty_text so that at most 5% of the captions that find their
    medium are lost. These rules were chosen by training models on what rules keep.

    \b
    auditor filter audit/ --recommended --out clean/
    auditor filter audit/ --max-uncertainty-text 0.6 --dry-run
    auditor filter audit/ --max-p-mismatch 0.1 --no-duplicates --dry-run
    auditor filter audit/ --keep-top 30% --by similarity --out kept.npy
    auditor filter audit/ --recommended --balance topic --keep-count 100000 --out kept.npy
    auditor filter audit/ --recommended --towards coco-train/ --keep-share 30% --out kept.npy
    auditor filter audit/ --lose-at-most 2% --out clean/ --shard-size 5000
    auditor filter audit/ --lose-at-most 5% --by uncertainty_text --out clear/
    auditor filter audit/ --lose-at-most 2% --tiers 3 --out tiers/
    auditor filter audit/ --where "license = 'cc-by'" --out kept.csv
    auditor filter audit/ --recommended --out hf://datasets/ME/CLEAN
    """
    if not out and not dry_run:
        raise click.UsageError("name a target with --out, or preview with --dry-run")
    if not tiers and not any(value for name, value in rules.items() if name not in NOT_RULES):
        raise click.UsageError("keep which rows? --recommended, --max-p-mismatch 0.5, ...; --where true keeps all")
    if tiers and input_columns:
        raise click.UsageError("--tiers writes shards, which cannot hold --input-columns")
    by = rules["by"] or "p_mismatch"
    if tiers and not is_ranked(rules):
        rules["by"] = None  # then it ranks the tiers only
    subset = select_rows(open_audit(audit, corpus), rules)
    if dry_run:
        show_dry_run(subset, as_json)
    elif out and tiers:
        write_subset_tiers(subset, out, tiers, by, as_json, force=force, shard_size=shard_size)
    elif out:
        write_subset(subset, out, as_json, force=force, shard_size=shard_size, input_columns=input_columns)


def write_subset(subset: "Subset", out: str, as_json: bool, **options: Any) -> None:
    from auditor import console
    from auditor.keep.export import export_subset
    from auditor.keep.export_target import parse_target_form

    quiet = as_json or parse_target_form(out) != "webdataset"
    with console.Progress("filter", None, "samples", quiet=quiet) as progress:
        result = export_subset(subset, out, progress=progress.advance, **options)
    if as_json:
        unscored = {"unscored": subset.usable_unscored, "unscored_kept": subset.unscored}
        print_json({**asdict(result), **unscored, "sources": subset.sources, "rules": subset.rules.to_dict()})
    else:
        print_line(f"{result.target}: {describe_result(result)}")
        print_changes(result.changes, result.form in ("npy", "txt"))
        if result.empty_columns:
            print_line(f"columns left out because they hold no value in this audit: {len(result.empty_columns)}")
        for note in filter(
            None, (describe_unscored(subset.usable_unscored, subset.unscored), subset.describe_sources())
        ):
            print_line(note)


def write_subset_tiers(subset: "Subset", out: str, count: int, by: str, as_json: bool, **options: Any) -> None:
    from auditor import console
    from auditor.keep.tiers import export_tiers

    with console.Progress("filter", None, "samples", quiet=as_json) as progress:
        result = export_tiers(subset, out, count, by, progress=progress.advance, **options)
    if as_json:
        print_json({**asdict(result), "open_clip": result.open_clip, "changes": subset.change_counts})
        return
    rows = [
        {"tier": tier.folder.rsplit("/", 1)[-1], "pairs": tier.pairs, "samples": tier.samples, "shards": tier.shards}
        | {"expected to match": format_share(tier.expected_good), "factor": f"{tier.factor:.3g}"}
        for tier in result.tiers
    ]
    console.print_table(rows, f"{result.target}: tiers by {result.by}")
    print_changes(subset.change_counts)
    print_line(f"open_clip: python -m open_clip_train.main {result.open_clip} ...")


def describe_result(result: "ExportResult") -> str:
    """Describe what a target holds, such as "1,092 captions of 231 samples in 1 shard"."""
    if result.form == "webdataset":
        shards = f"{result.shards:,} shard{'s' if result.shards != 1 else ''}"
        return f"{result.captions:,} captions of {result.rows:,} samples kept, in {shards}"
    if result.form == "txt":
        note = " (a list of keys cannot leave out captions)" if result.rows != result.captions else ""
        return f"{result.rows:,} keys, of the media of {result.captions:,} captions kept{note}"
    return f"{result.rows:,} {'uids' if result.form == 'npy' else 'rows'} kept"


def describe_unscored(usable: int, kept_count: int) -> str:
    """Say how many pairs have no estimate and whether they are kept; empty if there are none."""
    if not usable:
        return ""
    partly = f"{kept_count:,} kept" if kept_count else "removed"
    outcome = "kept; --unscored drop removes them" if kept_count == usable else partly
    return f"no estimate: {usable:,} pairs without p_mismatch, {outcome}"


def show_dry_run(subset: "Subset", as_json: bool) -> None:
    from auditor import console
    from auditor.keep.uncertainty_cuts import measure_limits

    effects, drift, cuts = subset.effects(), subset.drift(), measure_limits(subset.database, subset.rules)
    if as_json:
        effective = dict(zip(("effective_topics", "effective_topics_kept"), drift.effective_numbers, strict=True))
        shifts = {**asdict(drift), "topic_distance": drift.topic_distance, **effective}
        counts = {"media_kept": subset.media, "sources": subset.sources, "changes": subset.change_counts}
        print_json({**asdict(effects), **counts, "shifts": shifts, "cuts": [cut.to_dict() for cut in cuts]})
        return
    title = f"{effects.kept:,} of {effects.rows:,} pairs would be kept, of {subset.media:,} media"
    rows = [tabulate_effect(effect) for effect in (*effects.rules, effects.together)]
    console.print_table([*rows, {"rule": "not usable (status)", "removed": effects.rows - effects.usable}], title)
    for note in filter(None, (describe_unscored(effects.unscored, effects.unscored_kept), subset.describe_sources())):
        print_line(note)
    print_changes(subset.change_counts)
    for cut in cuts:
        console.print_table([cut.tabulate()], f"{cut.column}: {cut.describe_failures()}")
    if not effects.kept:
        return  # there are no kept rows to compare
    means = [
        {"mean of": mean.measure, "all": mean.whole, "kept": mean.kept, "change": format_share(mean.change, "+")}
        for mean in drift.measures
    ]
    topics = [
        {drift.column: str(topic.topic), "rows": topic.rows}
        | {"all": format_share(topic.whole), "kept": format_share(topic.kept)}
        for topic in drift.topics[:SHOWN_TOPICS]
    ]
    console.print_table(means, "how the kept rows differ from all usable ones")
    console.print_table(topics, drift.describe_topics())


def tabulate_effect(effect: "RuleEffect") -> dict[str, Any]:
    return {
        "rule": effect.rule,
        "removed": effect.removed,
        "only by it": effect.removed_only_by_it,
        "expected precision": format_share(effect.expected_precision),
        "good pairs lost": format_share(effect.expected_loss),
    }


def format_share(share: float | None, sign: str = "") -> str:
    return "" if share is None else f"{share:{sign}.1%}"
