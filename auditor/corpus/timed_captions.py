"""Captions with a span of time, out of untrusted text: WebVTT, SubRip, segments in JSON, cells of tables.

Times are seconds (`12.5`) or clock times (`00:01:02.500`, `1:02,5`). What cannot be read as a time is NaN, and its row
gets the status `bad_span` when the video is decoded: nothing is dropped.
"""

import ast
import datetime
import html
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from itertools import zip_longest
from typing import Any

from auditor.corpus.caption_text import captions_of, record_uid, safe_text
from auditor.corpus.sample import Span

Timed = tuple[str, Span]
_CLOCK = re.compile(r"\s*(-?)(?:(\d+):)?(?:(\d{1,2}):)?(\d+(?:[.,]\d+)?(?:[eE][-+]?\d+)?)\s*s?\s*")
_ARROW = re.compile(r"^\s*(-?[\d:.,]+)\s*-->\s*(-?[\d:.,]+)")
_TAG = re.compile(r"</?[\w.:][^<>]*>|\{\\[^{}]*\}")
_NOT_CUES = re.compile(r"(NOTE|STYLE|REGION)(\s|:|$)")  # how a block of WebVTT begins that is no caption
MARK, LONGEST_LINE = 0.02, 10.0  # seconds
ROLLS_ON = 0.1  # seconds between cues, or of one, up to which the lines of the one before stay on the screen
STARTS = (
    *("start", "start_time", "start_timestamp", "start_sec", "start_seconds", "begin", "clip_start", "t_start"),
    *("starts", "captions_starts"),
)
ENDS = (
    *("end", "end_time", "end_timestamp", "end_sec", "end_seconds", "stop", "clip_end", "t_end"),
    *("ends", "captions_ends"),
)
TEXTS = ("caption", "text", "sentence", "lines", "line")
BOTH = ("timestamp", "timestamps", "clips", "segments", "spans")  # lists of [start, end]


def parse_time(value: Any) -> float:
    """Seconds; NaN for what is no time."""
    if isinstance(value, bool) or value is None:
        return math.nan
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, datetime.time):
        value = value.isoformat()
    try:
        return float(value) if isinstance(value, int | float | Decimal) else _clock(value)
    except OverflowError:  # an integer of hundreds of digits
        return math.nan


def _clock(value: Any) -> float:
    match = _CLOCK.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return math.nan
    sign, first, second, seconds = match.groups()
    # 1:02:03 has hours, 1:02 has minutes
    hours, minutes = (first, second) if second is not None else (None, first)
    total = 3600 * float(hours or 0) + 60 * float(minutes or 0) + float(seconds.replace(",", "."))
    return -total if sign else total


def subtitles(text: str) -> list[Timed]:
    """The cues of WebVTT or SubRip. Lines that roll on from the cue before, as in automatic captions, come once."""
    found: list[Timed] = []
    before: set[str] = set()
    until = -math.inf
    for start, end, lines in cues(text):
        rolls_on = start - until <= ROLLS_ON
        new = [line for line in lines if not (rolls_on and line in before)]
        if not new and not end - start <= ROLLS_ON:  # said again
            new = lines
        before, until = set(lines) or before, end
        if new:
            found.append((" ".join(new), Span(start, end)))
    return found


def cues(text: str) -> Iterator[tuple[float, float, list[str]]]:
    """(start, end, lines) of each cue: what stands between its times and a blank line, or the times of the next."""
    times: tuple[float, float] | None = None
    said: list[str] = []
    remark, begins = False, True  # the block is no caption; the line is the first of its block
    for line in [*text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), ""]:
        arrow = None if remark else _ARROW.match(line)
        # YouTube's automatic captions begin with a line of one blank
        if times is not None and (arrow or not line or (said and not line.strip())):
            numbered = arrow is not None and bool(said) and said[-1].strip().isdecimal()  # the next one's number
            yield *times, [clean for one in (said[:-1] if numbered else said) if (clean := plain(one))]
            times = None
        if times is not None:
            said += [line] if line.strip() else []
        elif "-->" in line and not remark:
            times = (parse_time(arrow[1]), parse_time(arrow[2])) if arrow else (math.nan, math.nan)
            said = []
        elif begins:
            remark = bool(_NOT_CUES.match(line))
        begins = not line.strip()
        remark = remark and not begins


def plain(line: str) -> str:
    """A line of a cue without its tags."""
    return " ".join(safe_text(html.unescape(_TAG.sub("", line))).split())


def record_timed(record: dict[str, Any], whole: tuple[str, ...]) -> tuple[tuple[str, ...], list[Timed]]:
    """Captions of the whole medium, and those with a span: `segments: [{start, end, caption}]` of a sample's .json.

    Else what video2dataset has: a span for each caption, or speech where there is no caption.
    """
    if segments := list(_segments(record.get("segments"))):
        return whole, segments
    if clips := record_clips(record, whole):
        return (), clips
    return whole, [] if whole else record_subtitles(record)


def record_clips(record: dict[str, Any], captions: Sequence[str]) -> list[Timed]:
    """video2dataset's `clips` of a video that was not cut: as many spans as captions, or lines in `subtitles`."""
    spans = cell_spans(record.get("clips"), None) if isinstance(record.get("clips"), list) else ()
    texts = captions or captions_of(record.get("subtitles"))
    if len(spans) < 2 or len(spans) != len(texts):
        return []
    return [(text, span) for text, span in zip(texts, spans, strict=True) if span is not None]


def record_subtitles(record: dict[str, Any]) -> list[Timed]:
    """video2dataset's `clip_subtitles` (or `subtitles`), in the time of the file: of a clip, from where it was cut."""
    described = record.get("yt_meta_dict")
    whole = described.get("subtitles") if isinstance(described, dict) else None
    clip = _cut_from(record.get("clips"))
    found = _segments(record.get("clip_subtitles") or (whole if clip is None else None) or record.get("subtitles"))
    return [(text, span if clip is None else _within(span, clip)) for text, span in _since_the_mark_before(found)]


def _since_the_mark_before(found: Iterable[Timed]) -> Iterator[Timed]:
    """Of YouTube's automatic captions video2dataset keeps marks of 10 ms, at which a line has been said to its end."""
    before = 0.0
    for text, span in found:
        is_mark = 0 < span.end - span.start <= MARK
        yield text, Span(max(before, span.end - LONGEST_LINE), span.end) if is_mark and before < span.start else span
        before = span.end


def _cut_from(clips: Any) -> Span | None:
    """Where in the original a file stands that is one clip of it: `clips: [[start, end]]`, or `[start, end]`."""
    if not isinstance(clips, list) or len(spans := cell_spans(clips, None)) != 1 or spans[0] is None:
        return None
    return spans[0] if math.isfinite(spans[0].start) else None


def _within(span: Span, clip: Span) -> Span:
    """A span of the original in the time of a clip; what reaches beyond its ends is cut off with it."""
    start, end = span.start - clip.start, span.end - clip.start
    if start < 0 < end:
        start = 0.0
    if start < clip.end - clip.start < end:
        end = clip.end - clip.start
    return Span(start, end)


def segment_uids(record: dict[str, Any], whole: int) -> tuple[str | None, ...]:
    """The uid of each caption, as an export writes them into `segments`, behind `whole` that have none."""
    uids = [record_uid(one) for _, one in _said(record.get("segments"))]
    return (*(None for _ in range(whole)), *uids) if any(uids) else ()


def _segments(values: Any) -> Iterator[Timed]:
    for text, one in _said(values):
        yield text, Span(parse_time(one.get("start")), parse_time(one.get("end")))


def _said(values: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each record that has a text, with it."""
    found = _first_language(values)
    for one in found if isinstance(found, list) else []:
        if isinstance(one, dict):
            words = next((words for name in TEXTS if (words := one.get(name))), None)
            text = " ".join(captions_of(_first_language(words)))
            if text:
                yield text, one


def _first_language(value: Any) -> Any:
    """The value, or the first of several by language, as video2dataset has them."""
    return next((one for one in value.values() if one), None) if isinstance(value, dict) else value


def cell_spans(start: Any, end: Any) -> tuple[Span | None, ...]:
    """The spans of a row: one, or as many as its cells list. Where `end` is None, `start` lists [start, end]."""
    if end is None:
        pairs = listed(start)
        if pairs and not isinstance(pairs[0], list | tuple) and len(pairs) == 2:
            pairs = [pairs]  # a single [start, end]
        return tuple(_pair(pair) for pair in pairs)
    return tuple(_span(a, b) for a, b in zip_longest(listed(start), listed(end)))


def _pair(pair: Any) -> Span | None:
    return _span(*pair) if isinstance(pair, list | tuple) and len(pair) == 2 else Span(math.nan, math.nan)


def _span(start: Any, end: Any) -> Span | None:
    """None where neither is said: the caption is about the whole video."""
    if start in (None, "") and end in (None, ""):
        return None
    return Span(parse_time(start), parse_time(end))


def is_listed(value: Any) -> bool:
    """Whether a cell is a list, or is written like one."""
    return isinstance(value, list | tuple) or (isinstance(value, str) and value.lstrip().startswith("["))


def listed(value: Any) -> list[Any]:
    """A cell as a list: a list, one written as text (Python's or JSON's, as Panda-70M has them), or a single value."""
    if isinstance(value, list | tuple):
        return list(value)
    if isinstance(value, str) and is_listed(value):
        for read in (json.loads, ast.literal_eval):
            try:
                found = read(value)
            except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
                continue
            if isinstance(found, list):
                return found
    return [value]


def timed_texts(texts: Sequence[Any], spans: Sequence[Span | None]) -> list[tuple[int, str, Span | None]]:
    """(place, caption, span) of each text that says something: its own span, or one for all.

    What has none of its own gets one that is no time.
    """
    every = list(spans) * len(texts) if len(spans) == 1 else list(spans[: len(texts)])
    every += [Span(math.nan, math.nan)] * (len(texts) - len(every))
    said = ((place, " ".join(captions_of(text)), every[place]) for place, text in enumerate(texts))
    return [one for one in said if one[1]]


def joined(whole: Iterable[str], timed: Iterable[Timed]) -> tuple[tuple[str, ...], tuple[Span | None, ...]]:
    """Captions of the whole medium first, then the timed ones; no spans at all where there are none."""
    plain_ones, with_span = tuple(whole), list(timed)
    if not with_span:
        return plain_ones, ()
    captions = (*plain_ones, *(text for text, _ in with_span))
    return captions, (*(None for _ in plain_ones), *(span for _, span in with_span))
