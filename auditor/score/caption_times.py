"""Where in time the captions of a video fit: columns time_shift, time_shift_gain, p_time_shift, best_start, best_end.

From the frames that were encoded anyway: those of the video's spans, and those around them.
"""

from typing import Any

import numpy as np

from auditor.audit_folder.embeddings import Embeddings
from auditor.score.pair_sample import Pairs
from auditor.score.statistics.caption_timing import best_span, find_shift
from auditor.vectors import Floats, Ints

NEAR = 8.0  # seconds around a span in which its caption may be true
FEWEST = 8  # frames of a video below which nothing stands out
Scores = tuple[Ints, dict[str, Any]]  # rows, values by column


def time_scores(embeddings: Embeddings, pairs: Pairs) -> list[Scores]:
    """For every video with timed captions, the rows of these and their columns."""
    starts, digests = pairs.facts["start"].to_pylist(), pairs.facts["media_digest"].to_pylist()
    videos: dict[str, list[int]] = {}
    for place, (start, digest) in enumerate(zip(starts, digests, strict=True)):
        if start is not None:
            videos.setdefault(digest, []).append(place)
    found: list[Scores] = []
    for digest, places in videos.items():
        found += video_scores(pairs, np.array(places), *timeline(embeddings, pairs, digest, places))
    return found


def timeline(embeddings: Embeddings, pairs: Pairs, digest: str, places: list[int]) -> tuple[Floats, tuple[float, ...]]:
    """Every encoded frame of a video once, in order of time."""
    frames, mask = pairs.media.frames, pairs.media.mask
    assert frames is not None and mask is not None  # it is a video
    known: dict[float, Floats] = {}
    for place in places:
        known.update(zip(pairs.times[place], frames[place][mask[place]], strict=True))
    vectors, times = embeddings.around.get(digest, (frames[0][:0], ()))
    known.update(zip(times, vectors, strict=True))
    order = sorted(known)
    return np.stack([known[time] for time in order]), tuple(order)


def video_scores(pairs: Pairs, places: Ints, frames: Floats, times: tuple[float, ...]) -> list[Scores]:
    """The columns of the timed captions of one video; none where it has too few frames."""
    if len(times) < FEWEST:
        return []
    spans = np.stack([pairs.facts[name].to_numpy()[places] for name in ("start", "end")], axis=1)  # (C, 2)
    similarity = pairs.text[places] @ frames.T  # (C, T)
    best = [sub_span(row, times, span) for row, span in zip(similarity, spans, strict=True)]
    columns: dict[str, Any] = {"best_start": [one[0] for one in best], "best_end": [one[1] for one in best]}
    shift = find_shift(similarity, times, [(float(start), float(end)) for start, end in spans])
    if shift is not None:
        columns |= {"time_shift": shift.shift, "time_shift_gain": shift.gain, "p_time_shift": shift.p}
    return [(pairs.rows[places], columns)]


def sub_span(similarity: Floats, times: tuple[float, ...], span: Floats) -> tuple[float, float]:
    when = np.asarray(times)
    near = (when >= span[0] - NEAR) & (when <= span[1] + NEAR)
    if not near.any():
        near = np.abs(when - span.mean()) == np.abs(when - span.mean()).min()
    return best_span(similarity[near], when[near].tolist(), float(np.median(similarity)))
