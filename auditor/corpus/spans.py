"""Captions with a span of time, out of untrusted text: WebVTT, SubRip, segments in JSON, cells of tables.

Times are seconds (`12.5`) or clock times (`00:01:02.500`, `1:02,5`). What cannot be read as a time is NaN, and its row
gets the status `bad_span` when the video is decoded: nothing is dropped.
"""

import ast
import html
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from auditor.corpus.captions import captions_of, safe_text
from auditor.sample import Span

Timed = tuple[str, Span]
_CLOCK = re.compile(r"\s*(-?)(?:(\d+):)?(?:(\d{1,2}):)?(\d+(?:[.,]\d+)?)\s*s?\s*")
_ARROW = re.compile(r"^\s*([\d:.,]+)\s+-->\s+([\d:.,]+)")
_TAG = re.compile(r"<[^<>]*>|\{\\[^}]*\}")
_BLANK = re.compile(r"\n[ \t]*\n")
NOT_CUES = ("WEBVTT", "NOTE", "STYLE", "REGION")
STARTS = ("start", "start_time", "start_timestamp", "start_sec", "begin", "clip_start", "t_start")
ENDS = ("end", "end_time", "end_timestamp", "end_sec", "stop", "clip_end", "t_end")
BOTH = ("timestamp", "timestamps", "clips", "segments", "spans")  # lists of [start, end]


def parse_time(value: Any) -> float:
    """Seconds; NaN for what is no time."""
    if isinstance(value, bool) or value is None:
        return math.nan
    if isinstance(value, int | float):
        return float(value)
    match = _CLOCK.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return math.nan
    sign, first, second, seconds = match.groups()
    # 1:02:03 has hours, 1:02 has minutes
    hours, minutes = (first, second) if second is not None else (None, first)
    total = 3600 * int(hours or 0) + 60 * int(minutes or 0) + float(seconds.replace(",", "."))
    return -total if sign else total


def subtitles(text: str) -> list[Timed]:
    """The cues of WebVTT or SubRip. Lines that roll on from the cue before, as in automatic captions, come once."""
    found: list[Timed] = []
    before: list[str] = []
    for start, end, lines in cues(text):
        new = [line for line in lines if line not in before]
        before = lines or before
        if new:
            found.append((" ".join(new), Span(start, end)))
    return found


def cues(text: str) -> Iterator[tuple[float, float, list[str]]]:
    """(start, end, lines) of each block that has times."""
    for block in _BLANK.split(text.replace("\r\n", "\n").replace("\r", "\n")):
        lines = block.strip("\n").split("\n")
        at = next((i for i, line in enumerate(lines[:2]) if "-->" in line), None)
        if at is None or (at and lines[0].startswith(NOT_CUES) and not lines[0].startswith("WEBVTT")):
            continue
        times = _ARROW.match(lines[at])
        start, end = (parse_time(times[1]), parse_time(times[2])) if times else (math.nan, math.nan)
        yield start, end, [clean for line in lines[at + 1 :] if (clean := plain(line))]


def plain(line: str) -> str:
    """A line of a cue without its tags."""
    return " ".join(safe_text(html.unescape(_TAG.sub("", line))).split())


def record_segments(record: dict[str, Any]) -> list[Timed]:
    """`segments: [{start, end, caption}]` of a sample's .json."""
    return list(_segments(record.get("segments")))


def record_subtitles(record: dict[str, Any]) -> list[Timed]:
    """video2dataset's `clip_subtitles` (or `subtitles`), in the time of the file: of a clip, from where it was cut."""
    described = record.get("yt_meta_dict")
    whole = described.get("subtitles") if isinstance(described, dict) else None
    origin = _cut_from(record.get("clips"))
    found = _segments(record.get("clip_subtitles") or (whole if not origin else None) or record.get("subtitles"))
    return [(text, Span(span.start - origin, span.end - origin)) for text, span in found]


def _cut_from(clips: Any) -> float:
    """Where in the original a file begins that is one clip of it: `clips: [[start, end]]`."""
    if not isinstance(clips, list) or len(clips) != 1 or not isinstance(clips[0], list) or len(clips[0]) != 2:
        return 0.0
    start = parse_time(clips[0][0])
    return start if math.isfinite(start) else 0.0


def _segments(values: Any) -> Iterator[Timed]:
    for one in values if isinstance(values, list) else []:
        if isinstance(one, dict):
            words = one.get("caption") or one.get("text") or one.get("sentence") or one.get("lines")
            text = " ".join(captions_of(words))
            if text:
                yield text, Span(parse_time(one.get("start")), parse_time(one.get("end")))


def cell_spans(start: Any, end: Any) -> tuple[Span, ...]:
    """The spans of a row: one, or as many as its cells list. Where `end` is None, `start` lists [start, end]."""
    if end is None:
        pairs = listed(start)
        if pairs and not isinstance(pairs[0], list | tuple) and len(pairs) == 2:
            pairs = [pairs]  # a single [start, end]
        return tuple(_pair(pair) for pair in pairs)
    starts, ends = listed(start), listed(end)
    return tuple(Span(parse_time(a), parse_time(b)) for a, b in zip(starts, ends, strict=False))


def _pair(pair: Any) -> Span:
    if isinstance(pair, list | tuple) and len(pair) == 2:
        return Span(parse_time(pair[0]), parse_time(pair[1]))
    return Span(math.nan, math.nan)


def listed(value: Any) -> list[Any]:
    """A cell as a list: a list, one written as text (Python's or JSON's, as Panda-70M has them), or a single value."""
    if isinstance(value, list | tuple):
        return list(value)
    if isinstance(value, str) and value.lstrip().startswith("["):
        for read in (json.loads, ast.literal_eval):
            try:
                found = read(value)
            except (ValueError, SyntaxError, RecursionError, MemoryError):
                continue
            if isinstance(found, list):
                return found
    return [value]


def matched(captions: Sequence[str], spans: Sequence[Span]) -> tuple[Span | None, ...]:
    """A span for each caption: its own, or one for all; what has none of its own gets one that is no time."""
    if len(spans) == 1:
        return (spans[0],) * len(captions)
    missing = [Span(math.nan, math.nan)] * (len(captions) - len(spans))
    return (*spans[: len(captions)], *missing)


def joined(whole: Iterable[str], timed: Iterable[Timed]) -> tuple[tuple[str, ...], tuple[Span | None, ...]]:
    """Captions of the whole medium first, then the timed ones; no spans at all where there are none."""
    plain_ones, with_span = tuple(whole), list(timed)
    if not with_span:
        return plain_ones, ()
    captions = (*plain_ones, *(text for text, _ in with_span))
    return captions, (*(None for _ in plain_ones), *(span for _, span in with_span))
