"""Parse captions with a time span from untrusted text: WebVTT, SubRip, segments in JSON, cells of tables.

Times are seconds (`12.5`) or clock times (`00:01:02.500`, `1:02,5`). An unreadable time becomes NaN, and its row gets
the status `bad_span` when the video is decoded. pysubs2 is not used: it drops cues with unreadable times, loses the
sign of negative ones, reads NOTE blocks as captions, and is four times as slow.
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

from auditor.corpus.caption_text import parse_captions, parse_uid, read_record_captions, replace_unsafe
from auditor.corpus.sample import Span

TimedCaption = tuple[str, Span]
UNREADABLE = Span(math.nan, math.nan)
_CLOCK = re.compile(r"\s*(-?)(?:(\d+):)?(?:(\d{1,2}):)?(\d+(?:[.,]\d+)?(?:[eE][-+]?\d+)?)\s*s?\s*")
_ARROW = re.compile(r"^\s*(-?[\d:.,]+)\s*-->\s*(-?[\d:.,]+)")
_TAG = re.compile(r"</?[\w.:][^<>]*>|\{\\[^{}]*\}")
_OTHER_BLOCK = re.compile(r"(NOTE|STYLE|REGION)(\s|:|$)")  # start of a WebVTT block that is not a cue
MARK_SECONDS, MAX_LINE_SECONDS = 0.02, 10.0  # seconds
ROLLING_SECONDS = 0.1  # up to this gap between cues, or length of a cue, lines of the last cue stay on the screen
TEXTS = ("caption", "text", "sentence", "lines", "line")


def parse_time(value: Any) -> float:
    """Return seconds, or NaN if the value is not a time."""
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:  # an integer with hundreds of digits
            return math.nan
    text = value.isoformat() if isinstance(value, datetime.time) else value
    match = _CLOCK.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        return math.nan
    sign, first, second, seconds = match.groups()
    # 1:02:03 has hours, 1:02 has minutes
    hours, minutes = (first, second) if second is not None else (None, first)
    total = 3600 * float(hours or 0) + 60 * float(minutes or 0) + float(seconds.replace(",", "."))
    return -total if sign else total


def parse_subtitles(text: str) -> list[TimedCaption]:
    """Return the captions of WebVTT or SubRip. A line that rolls on from the last cue is returned once."""
    captions: list[TimedCaption] = []
    last_lines: set[str] = set()
    last_end = -math.inf
    for start, end, lines in parse_cues(text):
        rolls_on = start - last_end <= ROLLING_SECONDS
        new = [line for line in lines if not (rolls_on and line in last_lines)]
        if not new and not end - start <= ROLLING_SECONDS:  # spoken again
            new = lines
        last_lines, last_end = set(lines) or last_lines, end
        if new:
            captions.append((" ".join(new), Span(start, end)))
    return captions


def parse_cues(text: str) -> Iterator[tuple[float, float, list[str]]]:
    """Yield (start, end, lines) of each cue: the lines between its times and a blank line or the next times."""
    times: tuple[float, float] | None = None
    texts: list[str] = []
    is_remark, is_first = False, True  # the block is not a cue; the line is the first of its block
    for line in [*text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), ""]:
        arrow = None if is_remark else _ARROW.match(line)
        # YouTube's automatic captions begin with a line of one space
        if times is not None and (arrow or not line or (texts and not line.strip())):
            numbered = arrow is not None and bool(texts) and texts[-1].strip().isdecimal()  # number of the next cue
            yield (*times, list(filter(None, map(strip_tags, texts[:-1] if numbered else texts))))
            times = None
        if times is not None:
            texts += [line] if line.strip() else []
        elif "-->" in line and not is_remark:
            times = (parse_time(arrow[1]), parse_time(arrow[2])) if arrow else (math.nan, math.nan)
            texts = []
        elif is_first:
            is_remark = bool(_OTHER_BLOCK.match(line))
        is_first = not line.strip()
        is_remark = is_remark and not is_first


def strip_tags(line: str) -> str:
    return " ".join(replace_unsafe(html.unescape(_TAG.sub("", line))).split())


def read_record_spans(record: dict[str, Any], whole: tuple[str, ...]) -> tuple[tuple[str, ...], list[TimedCaption]]:
    """Return the captions of the whole medium and those with a span, from a sample's .json.

    Spans come from `segments: [{start, end, caption}]`, else from the fields of video2dataset: a span for each caption,
    or subtitles if there is no caption.
    """
    if segments := _parse_segments(record.get("segments")):
        return whole, segments
    if clips := pair_captions_with_clips(record, whole):
        return (), clips
    return whole, [] if whole else read_record_subtitles(record)


def pair_captions_with_clips(record: dict[str, Any], captions: Sequence[str]) -> list[TimedCaption]:
    """Pair video2dataset's `clips` of an uncut video with as many captions, or lines of `subtitles`."""
    spans = parse_cell_spans(record.get("clips"), None) if isinstance(record.get("clips"), list) else ()
    texts = captions or parse_captions(record.get("subtitles"))
    if len(spans) < 2 or len(spans) != len(texts):
        return []
    return [(text, span) for text, span in zip(texts, spans, strict=True) if span is not None]


def read_record_subtitles(record: dict[str, Any]) -> list[TimedCaption]:
    """Read video2dataset's `clip_subtitles` or `subtitles`, with times relative to the start of the clip."""
    metadata = record.get("yt_meta_dict")
    whole = metadata.get("subtitles") if isinstance(metadata, dict) else None
    clip = _find_clip_span(record.get("clips"))
    cues = record.get("clip_subtitles") or (whole if clip is None else None) or record.get("subtitles")
    captions = _extend_marks(_parse_segments(cues))
    return [(text, _shift_into_clip(span, clip) if clip else span) for text, span in captions]


def _extend_marks(captions: Iterable[TimedCaption]) -> Iterator[TimedCaption]:
    """Extend marks of 10 ms back to the last one: video2dataset keeps only the end of YouTube's automatic lines."""
    last_end = 0.0
    for text, span in captions:
        if 0 < span.end - span.start <= MARK_SECONDS and last_end < span.start:
            span = Span(max(last_end, span.end - MAX_LINE_SECONDS), span.end)
        yield text, span
        last_end = span.end


def _find_clip_span(clips: Any) -> Span | None:
    """Return the span of the original video that a clip was cut from: `clips: [[start, end]]` or `[start, end]`."""
    spans = parse_cell_spans(clips, None) if isinstance(clips, list) else ()
    return spans[0] if len(spans) == 1 and spans[0] and math.isfinite(spans[0].start) else None


def _shift_into_clip(span: Span, clip: Span) -> Span:
    """Convert a span of the original video to the time of a clip, and cut it at the ends of the clip."""
    start, end, length = span.start - clip.start, span.end - clip.start, clip.end - clip.start
    start = 0.0 if start < 0 < end else start
    return Span(start, length if start < length < end else end)


def read_segment_uids(record: dict[str, Any], whole: int) -> tuple[str | None, ...]:
    """Return the uid of each caption as an export writes it to `segments`, after `whole` captions without one."""
    uids = [parse_uid(segment.get("uid")) for _, segment in _iterate_texts(record.get("segments"))]
    return (*(None for _ in range(whole)), *uids) if any(uids) else ()


def _parse_segments(values: Any) -> list[TimedCaption]:
    segments = _iterate_texts(values)
    return [(text, Span(parse_time(part.get("start")), parse_time(part.get("end")))) for text, part in segments]


def _iterate_texts(values: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    segments = _choose_language(values)
    for segment in segments if isinstance(segments, list) else []:
        if isinstance(segment, dict):
            words = next(filter(None, map(segment.get, TEXTS)), None)
            if text := " ".join(parse_captions(_choose_language(words))):
                yield text, segment


def _choose_language(value: Any) -> Any:
    """Return the value, or the first nonempty one if video2dataset stores it by language."""
    return next(filter(None, value.values()), None) if isinstance(value, dict) else value


def parse_cell_spans(start: Any, end: Any) -> tuple[Span | None, ...]:
    """Return the spans of a row: one, or as many as its cells list. If `end` is None, `start` lists [start, end]."""
    if end is None:
        pairs = parse_list_cell(start)
        if pairs and not isinstance(pairs[0], list | tuple) and len(pairs) == 2:
            pairs = [pairs]  # a single [start, end]
        readable = (isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs)
        return tuple(_parse_span(*pair) if ok else UNREADABLE for pair, ok in zip(pairs, readable, strict=True))
    return tuple(_parse_span(a, b) for a, b in zip_longest(parse_list_cell(start), parse_list_cell(end)))


def _parse_span(start: Any, end: Any) -> Span | None:
    """Return None if both times are absent: the caption describes the whole video."""
    if start in (None, "") and end in (None, ""):
        return None
    return Span(parse_time(start), parse_time(end))


def looks_like_list(value: Any) -> bool:
    return isinstance(value, list | tuple) or (isinstance(value, str) and value.lstrip().startswith("["))


def parse_list_cell(value: Any) -> list[Any]:
    """Return a cell as a list: a list, a list written in JSON or Python syntax (as in Panda-70M), or one value."""
    if isinstance(value, list | tuple):
        return list(value)
    if isinstance(value, str) and looks_like_list(value):
        for read in (json.loads, ast.literal_eval):
            try:
                values = read(value)
            except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
                continue
            if isinstance(values, list):
                return values
    return [value]


def pair_texts_with_spans(texts: Sequence[Any], spans: Sequence[Span | None]) -> list[tuple[int, str, Span | None]]:
    """Return (place, caption, span) of each nonempty text.

    One span serves all texts; a text without a span of its own gets one of NaN.
    """
    text_spans = list(spans) * len(texts) if len(spans) == 1 else list(spans[: len(texts)])
    text_spans += [UNREADABLE] * (len(texts) - len(text_spans))
    captions = ((place, " ".join(parse_captions(text)), text_spans[place]) for place, text in enumerate(texts))
    return [caption for caption in captions if caption[1]]


def combine_captions(
    lines: tuple[str, ...], cues: list[TimedCaption], record: dict[str, Any]
) -> tuple[tuple[str, ...], tuple[Span | None, ...], tuple[str | None, ...]]:
    """Return the captions of a sample with their spans and uids: captions of the whole medium, then timed ones.

    `lines` are the captions of its .txt, `cues` its subtitles, `record` its .json. Spans and uids are empty if no
    caption has one.
    """
    whole = lines or read_record_captions(record)
    uids: tuple[str | None, ...] = ()
    if not cues:
        whole, cues = read_record_spans(record, whole)
        uids = read_segment_uids(record, len(whole))
    spans = (*(None for _ in whole), *(span for _, span in cues)) if cues else ()
    return (*whole, *(text for text, _ in cues)), spans, uids
