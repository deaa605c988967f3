"""Propose new spans for videos whose timed captions are shifted against the frames.

    propose_spans(AuditDatabase("audit/"), confidence=0.9)

The confidence of a shift is one minus its q-value (Storey): the expected share of chance findings among the videos
whose shift is at least as clear.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from auditor.corpus.raw_samples import KeptShard
from auditor.faults.repair import CONFIDENCE, Repair
from auditor.keep.kept_rows import CAPTION_COLUMNS
from auditor.query.database import AuditDatabase
from auditor.query.sandbox import quote_literal

PATTERN = "time_shift"
SMALLEST = 0.5  # seconds: caption times are rounded to about this
INSIDE = 0.5  # share of a shifted span that must lie within the video
Doubles = npt.NDArray[np.float64]
CaptionPlace = tuple[str, int]  # key and number of a caption


def propose_span_repairs(database: AuditDatabase, confidence: float = CONFIDENCE) -> list[Repair]:
    """New spans for the timed captions of shifted videos, including spans that were bad because of the shift."""
    videos = database.rows(
        "SELECT shard, media_digest, any_value(time_shift) AS shift, any_value(p_time_shift) AS p FROM measured "
        "WHERE time_shift IS NOT NULL GROUP BY shard, media_digest"
    )
    certainties = compute_confidences(np.array([video["p"] for video in videos], np.float64))
    shifts = {
        (video["shard"], video["media_digest"]): (video["shift"], float(certainty))
        for video, certainty in zip(videos, certainties, strict=True)
        if certainty >= confidence and abs(video["shift"]) >= SMALLEST
    }
    if not shifts:
        return []
    digests = quote_literal([digest for _, digest in shifts])
    rows = database.rows(
        'SELECT uid, shard, key, caption_index, "start", "end", duration, media_digest FROM measured '
        "WHERE \"start\" IS NOT NULL AND \"end\" IS NOT NULL AND status IN ('ok', 'bad_span') "
        f"AND media_digest IN (SELECT unnest({digests})) ORDER BY shard, key, caption_index"
    )
    repairs = (
        _shift_caption(row, *shifts[place]) for row in rows if (place := (row["shard"], row["media_digest"])) in shifts
    )
    return [repair for repair in repairs if repair]


def compute_confidences(p: Doubles) -> Doubles:
    """One minus the q-value of each p-value."""
    from scipy.stats import false_discovery_control

    if not len(p):
        return p
    chance = min(1.0, 2 * float((p > 0.5).mean()) + 1 / len(p))  # upper bound of the share of videos without a shift
    return np.asarray(1 - chance * false_discovery_control(p))


def _shift_caption(row: Mapping[str, Any], shift: float, confidence: float) -> Repair | None:
    """The repair of a caption's span, or None if the shifted span falls outside the video."""
    start, end = row["start"] + shift, row["end"] + shift
    new_start, new_end = max(start, 0.0), min(end, row["duration"])
    if not new_end - new_start > INSIDE * (end - start) > 0:
        return None
    uid, shard, key = row["uid"], row["shard"], row["key"]
    place = uid, shard, key, row["caption_index"], shard, key, uid, PATTERN, confidence
    return Repair(*place, row["start"], row["end"], round(new_start, 3), round(new_end, 3))


def build_repair_condition(repairs: Sequence[Repair]) -> str:
    """SQL condition of the rows in repaired shards: usable ones and those whose span is repaired."""
    shifted = quote_literal([repair.uid for repair in repairs if repair.pattern == PATTERN])
    return f"status = 'ok' OR (status = 'bad_span' AND uid IN (SELECT unnest({shifted}::VARCHAR[])))"


def apply_spans(shard_rows: KeptShard, repairs: Sequence[Repair]) -> KeptShard:
    """Apply repaired spans to a shard; timed captions of such videos without a new span are dropped."""
    spans = {
        (repair.key, repair.caption_index): (repair.new_start, repair.new_end)
        for repair in repairs
        if repair.pattern == PATTERN and repair.shard == shard_rows.name
    }
    videos = {key for key, _ in spans}
    if not videos:
        return shard_rows
    rows = [_shift_row(row, spans) if row["key"] in videos else row for row in shard_rows.table.to_pylist()]
    return replace(shard_rows, table=pa.Table.from_pylist(rows, schema=shard_rows.table.schema))


def _shift_row(row: dict[str, Any], spans: Mapping[CaptionPlace, tuple[float | None, float | None]]) -> dict[str, Any]:
    columns = zip(*(row[name] for name in CAPTION_COLUMNS), strict=True)
    captions = [
        (text, change, source, number, uid, *spans.get((row["key"], number), (start, end)))
        for text, change, source, number, uid, start, end in columns
        if start is None or (row["key"], number) in spans
    ]
    return row | dict(zip(CAPTION_COLUMNS, map(list, zip(*captions, strict=True)), strict=True))
