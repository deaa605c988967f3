"""The figures printed in the paper, so that ours can stand beside them (auditor/research/retrieval/paper.json)."""

import json
from functools import cache
from pathlib import Path
from typing import Any


@cache
def load_figures() -> dict[str, Any]:
    figures: dict[str, Any] = json.loads(Path(__file__).with_name("paper.json").read_text(encoding="utf-8"))
    return figures


def read_table_figures(table: str) -> Any:
    """What the paper says in one of its tables; an empty list where it says nothing."""
    return load_figures().get(table, [])
