"""Timing of a video's captions: columns time_shift, time_shift_gain, p_time_shift, best_start and best_end.

Uses the frames that were encoded for the video's spans and around them.
"""

from typing import Any

import numpy as np

from auditor.audit_folder.embeddings import Embeddings
from auditor.score.pair_sample import EncodedPairs
from auditor.score.statistics.caption_timing import find_best_span, find_shift
from auditor.vectors import Floats, Ints

NEAR = 8.0  # seconds around a span in which its caption may be true
FEWEST_FRAMES = 8  # videos with fewer frames are not scored
TimeScores = tuple[Ints, dict[str, Any]]  # rows, values by column


def score_times(embeddings: Embeddings, pairs: EncodedPairs) -> list[TimeScores]:
    videos: dict[str, list[int]] = {}
    for position, start in enumerate(pairs.facts["start"].to_pylist()):
        if start is not None:
            videos.setdefault(pairs.facts["media_digest"][position].as_py(), []).append(position)
    scores: list[TimeScores] = []
    for digest, positions in videos.items():
        scores += score_video_times(pairs, np.array(positions), *collect_frames(embeddings, pairs, digest, positions))
    return scores


def collect_frames(
    embeddings: Embeddings, pairs: EncodedPairs, digest: str, positions: list[int]
) -> tuple[Floats, tuple[float, ...]]:
    """Every encoded frame of a video once, in order of time, and the times."""
    frames, mask = pairs.media.frames, pairs.media.mask
    assert frames is not None and mask is not None  # it is a video
    frame_at: dict[float, Floats] = {}
    for position in positions:
        frame_at.update(zip(pairs.times[position], frames[position][mask[position]], strict=True))
    vectors, times = embeddings.context.get(digest, (frames[0][:0], ()))
    frame_at.update(zip(times, vectors, strict=True))
    order = sorted(frame_at)
    return np.stack([frame_at[time] for time in order]), tuple(order)


def score_video_times(
    pairs: EncodedPairs, positions: Ints, frames: Floats, times: tuple[float, ...]
) -> list[TimeScores]:
    """The columns of the timed captions of one video; none if it has too few frames."""
    if len(times) < FEWEST_FRAMES:
        return []
    spans = np.stack([pairs.facts[name].to_numpy()[positions] for name in ("start", "end")], axis=1)  # (C, 2)
    similarity = pairs.text[positions] @ frames.T  # (C, T)
    best = [find_sub_span(row, times, span) for row, span in zip(similarity, spans, strict=True)]
    columns: dict[str, Any] = {"best_start": [start for start, _ in best], "best_end": [end for _, end in best]}
    shift = find_shift(similarity, times, [(float(start), float(end)) for start, end in spans])
    if shift is not None:
        columns |= {"time_shift": shift.shift, "time_shift_gain": shift.gain, "p_time_shift": shift.p}
    return [(pairs.rows[positions], columns)]


def find_sub_span(similarity: Floats, times: tuple[float, ...], span: Floats) -> tuple[float, float]:
    """The best span of a caption among the frames near its own span, or at the frame nearest to it."""
    frame_times = np.asarray(times)
    nearby = (frame_times >= span[0] - NEAR) & (frame_times <= span[1] + NEAR)
    if not nearby.any():
        distance = np.abs(frame_times - span.mean())
        nearby = distance == distance.min()
    return find_best_span(similarity[nearby], frame_times[nearby].tolist(), float(np.median(similarity)))
