"""The parts of a row's caption with their probabilities, from its columns `part_ends` and `part_probabilities`.

One reading for everything that shows or edits them: explain, the dashboard, the report, filters.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

WEAK = 0.5  # probability of a mismatch from which a part is marked


@dataclass(frozen=True, slots=True)
class CaptionSpan:
    """A part of a caption; the spans of a caption, one after another, are the text that was encoded."""

    text: str
    p: float | None  # probability that it does not describe the medium
    weakest: bool

    @property
    def weak(self) -> bool:
        return self.p is not None and self.p >= WEAK


def format_numbers(values: Iterable[float]) -> str:
    return " ".join(f"{value:.3f}" for value in values)


def list_caption_spans(row: Mapping[str, Any]) -> list[CaptionSpan]:
    """The parts of a row's caption; empty if it has one part, or if its columns do not fit the caption."""
    caption = row.get("caption") or ""
    try:
        ends = [int(end) for end in (row.get("part_ends") or "").split()]
        p = [float(value) for value in (row.get("part_probabilities") or "").split()]
    except ValueError:
        return []
    places = list(pairwise([0, *ends]))
    if len(ends) < 2 or ends[-1] > len(caption) or any(start >= end for start, end in places):
        return []
    probabilities: list[float | None] = [*p] if len(p) == len(ends) else [None] * len(ends)
    spans = zip(places, probabilities, strict=True)
    weakest = row.get("weakest_part")
    return [CaptionSpan(caption[a:b], p, number == weakest) for number, ((a, b), p) in enumerate(spans)]


def tabulate_caption_spans(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {"part": number, "probability": span.p, "text": span.text.strip(), "": "weakest" * span.weakest}
        for number, span in enumerate(list_caption_spans(row))
    ]
