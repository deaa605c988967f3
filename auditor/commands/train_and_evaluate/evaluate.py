"""`auditor evaluate`: retrieval on a benchmark, and how well uncertainty predicts it."""

from contextlib import nullcontext
from tempfile import TemporaryDirectory
from typing import Any

import click

from auditor.audit_folder.folder import split_target
from auditor.commands.options import POSITIVE, SHARE, add_options, json_option, option
from auditor.console import print_table
from auditor.research.retrieval.protocols import PROTOCOLS
from auditor.terminal import print_json, print_line
from model.model_names import check_model_name

DIRECTION_LABELS = {"visual_to_text": "v2t", "text_to_visual": "t2v"}
MAX_FAILED = option("--max-failed", type=SHARE, default=0.01, help="Share of media that may fail to decode.")
benchmark_options = add_options(
    [  # of what is evaluated, here and in jobs/evaluate.py
        click.argument("benchmark", type=click.Choice(list(PROTOCOLS))),
        option("--data", required=True, help="Folder or URL of shards: test-*.tar or test/*.tar."),
        option("--model", required=True, help="An open_clip model or a checkpoint folder."),
        option("--out", metavar="FILE", help="Where the JSON for the dashboard goes; a path or a URL."),
        option("--split", help="What to report on; the benchmark's own test split by default."),
        option("--validation", help="Split that re-ranking is fitted on; val, or train where there is none."),
        option("--frames", type=POSITIVE, default=12, help="Frames of a video."),
        MAX_FAILED,
        option("--cache", help="Folder or URL for the embeddings, read instead of encoding again next time."),
        json_option("Print all results as JSON."),
    ]
)


@click.command()
@benchmark_options
@option("--decoders", type=POSITIVE, default=2, help="Decoder processes.")
@option("--device", default="auto", help="cpu, cuda, cuda:1, …")
def command(
    model: str,
    out: str | None,
    frames: int,
    decoders: int,
    device: str,
    cache: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Retrieval on a benchmark.

    The shards are what `auditor pack` writes, or CLIP_benchmark's. `shards` stands for any corpus of pairs. The same
    on a Ray cluster: python -m jobs.evaluate.

    \b
    Example:
      auditor evaluate msrvtt --data msrvtt-shards --model ViT-B-32@openai --out results.json
    """
    check_model_name(model)
    if out:
        split_target(out)  # refuses a wrong name before the work, not after it
    from auditor.research.evaluate.benchmark_evaluation import EvaluateConfig, evaluate_benchmark, save_results
    from auditor.research.evaluate.benchmark_splits import SplitSweeper, make_audit_config
    from model.backbone import resolve_device
    from model.checkpoint import load_model

    loaded = load_model(model, resolve_device(device))
    config = EvaluateConfig(**options)
    with nullcontext(cache) if cache else TemporaryDirectory() as root:
        sweep_config = make_audit_config(config.data, root, model, frames, decoders)
        sweep_split = SplitSweeper(loaded.backbone, sweep_config)
        results = evaluate_benchmark(config, loaded.backbone, loaded.head, sweep_split)
    if out:
        save_results(results, out)
    show_results(results, as_json)


def show_results(results: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(results)
        return
    data = results["data"]
    rows = [*results["tables"], *({"reranked": None, **row} for row in results["paper"])]
    title = f"{results['benchmark']} {data['split']}: {data['media']:,} media, {data['captions']:,} captions"
    print_table([flatten_row(row) for row in rows], title=title)
    if not data["complete"]:
        print_line(f"not the benchmark's own test split ({data['expected_media']:,} media): not to be compared with it")
    if data["failed"]:
        print_line(f"{len(data['failed'])} media could not be used, such as {data['failed'][0]}")
    if rerank := results["rerank"]:
        print_line(
            f"re-ranked with beta {rerank['beta_visual']} (visual) and {rerank['beta_text']} (text), "
            f"fitted on {rerank['media']:,} media of {rerank['fitted_on']}"
        )
    pearson = results["pearson"]
    print_line(f"Pearson of u and h: {pearson['PCC_V']:.3f} visual, {pearson['PCC_T']:.3f} text")
    if figures := results["eccv_caption"]:
        print_line(f"ECCV Caption: {format_eccv(figures)}")
    elif reason := results["eccv_skipped"]:
        print_line(f"no figures of ECCV Caption: {reason}")


def format_eccv(figures: dict[str, dict[str, float]]) -> str:
    from auditor.research.retrieval.eccv import METRICS

    return "; ".join(
        f"{METRICS.get(name, name)} {100 * value['i2t']:.1f} v2t, {100 * value['t2i']:.1f} t2v"
        for name, value in figures.items()
    )


def flatten_row(row: dict[str, Any]) -> dict[str, Any]:
    """One line of the table; a direction the paper gives fewer figures of has gaps."""
    line: dict[str, Any] = {"gallery": row["gallery"], "re-ranked": row.get("method") or row["reranked"]}
    for direction, short in DIRECTION_LABELS.items():
        for name in ("R@1", "R@5", "R@10", "MdR", "MnR"):
            value = row[direction].get(name)
            line[f"{short} {name}"] = None if value is None else round(value, 1)
    return line | {"RSum": None if "RSum" not in row else round(row["RSum"], 1)}
