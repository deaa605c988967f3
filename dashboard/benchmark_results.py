"""Reads the JSON results of `auditor evaluate` and lays them out as tables and series for charts."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DIRECTIONS = {"visual_to_text": "medium to caption", "text_to_visual": "caption to medium"}
ORDERS = {"uncertainty": "by uncertainty", "mean_similarity": "by mean similarity (h)", "random": "at random"}
METRICS = ("R@1", "R@5", "R@10", "MdR", "MnR")
Series = dict[str, list[tuple[float, float]]]


@dataclass(frozen=True)
class BenchmarkResult:
    name: str
    content: Mapping[str, Any]


def read_results(folder: str | None) -> tuple[list[BenchmarkResult], list[str]]:
    """All results in a folder, the newest first, and the names of JSON files that hold no result."""
    results, other_files = [], []
    for path in sorted(Path(folder).glob("*.json")) if folder else []:
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            content = None
        if isinstance(content, dict) and content.get("format") == 1 and {"benchmark", "tables"} <= set(content):
            results.append(BenchmarkResult(path.stem, content))
        else:
            other_files.append(path.name)
    return sorted(results, key=lambda result: str(result.content.get("created")), reverse=True), other_files


def metric_columns(row: Mapping[str, Any]) -> dict[str, float | None]:
    columns = {
        f"{arrow} {metric}": round_finite((row.get(direction) or {}).get(metric))
        for direction, arrow in zip(DIRECTIONS, ("v→t", "t→v"), strict=True)
        for metric in METRICS
    }
    return {**columns, "RSum": round_finite(row.get("RSum"))}


def list_metrics(result: BenchmarkResult) -> list[dict[str, Any]]:
    """One record for each gallery, plain and re-ranked, then the figures that the paper reports."""
    measured = [
        {"method": "re-ranked" if row["reranked"] else "plain", "gallery": row["gallery"], **metric_columns(row)}
        for row in result.content["tables"]
    ]
    reported = [
        {"method": f"paper: {row.get('method', '')}", "gallery": row.get("gallery"), **metric_columns(row)}
        for row in result.content.get("paper") or []
    ]
    return [*measured, *reported]


def read_part(result: BenchmarkResult, part: str, direction: str) -> Any:
    return (result.content.get(part) or {}).get(direction)


def removal_series(result: BenchmarkResult, direction: str) -> Series:
    """Recall of the remaining items against the share removed, for each order of removal."""
    rows = read_part(result, "removal", direction) or []
    series = {
        label: [(row["share"], row[order]) for row in rows if round_finite(row.get(order)) is not None]
        for order, label in ORDERS.items()
    }
    return {label: points for label, points in series.items() if points}


def decile_series(result: BenchmarkResult, direction: str) -> Series:
    deciles = read_part(result, "deciles", direction) or {}
    return {ORDERS[order]: [(row["bin"], row["recall"]) for row in rows] for order, rows in deciles.items()}


def calibration_series(result: BenchmarkResult, direction: str) -> Series:
    """Observed against predicted recall, for each score."""
    scores = read_part(result, "calibration", direction) or {}
    return {ORDERS[order]: [(bin["predicted"], bin["seen"]) for bin in row["bins"]] for order, row in scores.items()}


def list_calibration(result: BenchmarkResult, direction: str) -> list[dict[str, Any]]:
    scores = read_part(result, "calibration", direction) or {}
    columns = {"Brier": "brier", "Brier of the mean": "brier_constant", "expected error": "expected_error"}
    return [
        {"score": ORDERS[order], "AUROC of failure": round_finite(row["auroc"], 3)}
        | {title: round_finite(row[name], 4) for title, name in columns.items()}
        for order, row in scores.items()
    ]


def round_finite(value: Any, digits: int = 1) -> float | None:
    """The rounded number, or None if it is missing or not finite: the JSON files may hold NaN."""
    return round(value, digits) if isinstance(value, int | float) and math.isfinite(value) else None
