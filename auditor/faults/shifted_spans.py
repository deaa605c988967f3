"""Spans that are out of step with the pictures, shifted to where captions and frames of their video agree.

    propose_spans(AuditDatabase("audit/"), confidence=0.9)

How sure a shift is comes from the p-values of all videos together: one less the expected share of chance among the
videos whose shift is at least as clear (Storey's q-value).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from auditor.corpus.raw_samples import KeptShard
from auditor.faults.repair import CONFIDENCE, Repair
from auditor.query.database import AuditDatabase
from auditor.query.sandbox import literal

PATTERN = "time_shift"
SMALLEST = 0.5  # seconds: captions are rounded to as much
INSIDE = 0.5  # share of a shifted span that has to lie in the video
Doubles = npt.NDArray[np.float64]
Place = tuple[str, int]  # key and number of a caption
CAPTION_COLUMNS = ("captions", "numbers", "uids", "starts", "ends")


def propose_spans(database: AuditDatabase, confidence: float = CONFIDENCE) -> list[Repair]:
    """New spans for the timed captions of videos that are out of step, also for those that were bad only for that."""
    videos = database.rows(
        "SELECT shard, media_digest, any_value(time_shift) AS shift, any_value(p_time_shift) AS p FROM measured "
        "WHERE time_shift IS NOT NULL GROUP BY shard, media_digest"
    )
    sure = confidences(np.array([video["p"] for video in videos], np.float64))
    known = {
        (video["shard"], video["media_digest"]): (video["shift"], float(one))
        for video, one in zip(videos, sure, strict=True)
        if one >= confidence and abs(video["shift"]) >= SMALLEST
    }
    if not known:
        return []
    digests = literal([digest for _, digest in known])
    rows = database.rows(
        'SELECT uid, shard, key, caption_index, "start", "end", duration, media_digest FROM measured '
        "WHERE \"start\" IS NOT NULL AND \"end\" IS NOT NULL AND status IN ('ok', 'bad_span') "
        f"AND media_digest IN (SELECT unnest({digests})) ORDER BY shard, key, caption_index"
    )
    found = (_repair(row, *known[place]) for row in rows if (place := (row["shard"], row["media_digest"])) in known)
    return [repair for repair in found if repair]


def confidences(p: Doubles) -> Doubles:
    """One less the q-value of each p-value."""
    if not len(p):
        return p
    chance = min(1.0, 2 * float((p > 0.5).mean()) + 1 / len(p))  # share of the videos that are in step, at most
    order = np.argsort(p)
    rate = chance * p[order] * len(p) / np.arange(1, len(p) + 1)
    q = np.empty(len(p))
    q[order] = np.minimum.accumulate(rate[::-1])[::-1]
    return np.asarray(1 - np.minimum(q, 1.0))


def _repair(row: Mapping[str, Any], shift: float, confidence: float) -> Repair | None:
    """None where the caption has no place in the video any more."""
    start, end = row["start"] + shift, row["end"] + shift
    new_start, new_end = max(start, 0.0), min(end, row["duration"])
    if not new_end - new_start > INSIDE * (end - start) > 0:
        return None
    uid, shard, key = row["uid"], row["shard"], row["key"]
    place = uid, shard, key, row["caption_index"], shard, key, uid, PATTERN, confidence
    return Repair(*place, row["start"], row["end"], round(new_start, 3), round(new_end, 3))


def condition(repairs: Sequence[Repair]) -> str:
    """Of the rows that go into repaired shards: the usable ones, and those whose span is repaired."""
    shifted = literal([repair.uid for repair in repairs if repair.pattern == PATTERN])
    return f"status = 'ok' OR (status = 'bad_span' AND uid IN (SELECT unnest({shifted}::VARCHAR[])))"


def with_spans(kept: KeptShard, repairs: Sequence[Repair]) -> KeptShard:
    """A shard with the spans of repairs; timed captions of such a video that got none have no place in it."""
    spans = {
        (repair.key, repair.caption_index): (repair.new_start, repair.new_end)
        for repair in repairs
        if repair.pattern == PATTERN and repair.shard == kept.name
    }
    videos = {key for key, _ in spans}
    if not videos:
        return kept
    rows = [_shifted(row, spans) if row["key"] in videos else row for row in kept.table.to_pylist()]
    return replace(kept, table=pa.Table.from_pylist(rows, schema=kept.table.schema))


def _shifted(row: dict[str, Any], spans: Mapping[Place, tuple[float | None, float | None]]) -> dict[str, Any]:
    given = zip(*(row[name] for name in CAPTION_COLUMNS), strict=True)
    captions = [
        (text, number, uid, *spans.get((row["key"], number), (start, end)))
        for text, number, uid, start, end in given
        if start is None or (row["key"], number) in spans
    ]
    return row | dict(zip(CAPTION_COLUMNS, map(list, zip(*captions, strict=True)), strict=True))
