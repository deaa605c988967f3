"""Results of `auditor evaluate` as tables and curves: reads its JSON files and lays their numbers out for charts."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DIRECTIONS = {"visual_to_text": "medium to caption", "text_to_visual": "caption to medium"}
ORDERS = {"uncertainty": "by uncertainty", "mean_similarity": "by mean similarity (h)", "random": "at random"}
FIGURES = ("R@1", "R@5", "R@10", "MdR", "MnR")


@dataclass(frozen=True)
class Results:
    """One file."""

    name: str
    content: Mapping[str, Any]

    @property
    def title(self) -> str:
        return f"{self.content['benchmark']} · {self.name}"


def read_results(folder: str | None) -> tuple[list[Results], list[str]]:
    """All results in a folder, the newest first, and the names of JSON files that are none."""
    found, passed = [], []
    for path in sorted(Path(folder).glob("*.json")) if folder else []:
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            content = None
        if isinstance(content, dict) and content.get("format") == 1 and {"benchmark", "tables"} <= set(content):
            found.append(Results(path.stem, content))
        else:
            passed.append(path.name)
    return sorted(found, key=lambda one: str(one.content.get("created")), reverse=True), passed


def figures(row: Mapping[str, Any]) -> dict[str, float | None]:
    """The figures of both directions in one line."""
    line = {
        f"{short} {name}": rounded((row.get(direction) or {}).get(name))
        for direction, short in (("visual_to_text", "v→t"), ("text_to_visual", "t→v"))
        for name in FIGURES
    }
    return {**line, "RSum": rounded(row.get("RSum"))}


def table(results: Results) -> list[dict[str, Any]]:
    """One line for each gallery, plain and re-ranked; below them what the paper reports."""
    lines = [
        {"what": "re-ranked" if row["reranked"] else "plain", "gallery": row["gallery"], **figures(row)}
        for row in results.content["tables"]
    ]
    paper = [
        {"what": f"paper: {row.get('method', '')}", "gallery": row.get("gallery"), **figures(row)}
        for row in results.content.get("paper") or []
    ]
    return [*lines, *paper]


def removal(results: Results, direction: str) -> list[dict[str, Any]]:
    return [
        {"share": row["share"], "recall": row[order], "series": words}
        for row in (results.content.get("removal") or {}).get(direction, [])
        for order, words in ORDERS.items()
        if rounded(row.get(order)) is not None
    ]


def deciles(results: Results, direction: str) -> list[dict[str, Any]]:
    found = (results.content.get("deciles") or {}).get(direction) or {}
    return [
        {"bin": row["bin"], "recall": row["recall"], "series": ORDERS[order]} for order in found for row in found[order]
    ]


def calibration(results: Results, direction: str) -> list[dict[str, Any]]:
    found = (results.content.get("calibration") or {}).get(direction) or {}
    return [  # files of version 0.1 say "foretold"
        {"predicted": row.get("predicted", row.get("foretold")), "seen": row["seen"], "series": ORDERS[order]}
        for order in found
        for row in found[order]["bins"]
    ]


def calibration_table(results: Results, direction: str) -> list[dict[str, Any]]:
    found = (results.content.get("calibration") or {}).get(direction) or {}
    return [
        {
            "score": ORDERS[order],
            "AUROC of failing": rounded(row["auroc"], 3),
            "Brier": rounded(row["brier"], 4),
            "Brier of the mean": rounded(row["brier_constant"], 4),
            "expected error": rounded(row["expected_error"], 4),
        }
        for order, row in found.items()
    ]


def rounded(value: Any, digits: int = 1) -> float | None:
    """None for what is missing or not a number: JSON of ours may hold NaN."""
    return round(value, digits) if isinstance(value, int | float) and math.isfinite(value) else None
