"""Scores of the moments of a video: which frames fit, and whether timed captions are out of step."""

from functools import partial

from auditor.schema.column import Column

_score = partial(Column, group="score")

MOMENTS = (
    _score("best_frame", "int32", "Best frame", "video: which encoded frame fits the caption best, from 0"),
    _score(
        "best_frame_time",
        "float32",
        "Time of the best frame",
        "video: when the frame that fits best is shown",
        unit="seconds",
        use="detail",
    ),
    _score(
        "frame_spread",
        "float32",
        "Spread of the frames",
        "video: how unevenly its frames fit the caption",
        suspicious="high",
        definition="standard deviation of the frames' similarities",
    ),
    _score(
        "frame_match_share",
        "float32",
        "Frames that fit",
        "video: share of the frames that fit the caption",
        suspicious="low",
        unit="share",
        use="detail",
    ),
    _score(
        "time_shift",
        "float32",
        "Shift in time",
        "video with timed captions: seconds to add to their spans so that they fit best",
        unit="seconds",
        use="detail",
        definition="within 30 s, from the similarities of all its captions and frames",
    ),
    _score(
        "time_shift_gain",
        "float32",
        "Gain of the shift",
        "how much better captions and frames agree once the spans are shifted",
        suspicious="high",
        use="detail",
        definition="in mean similarity, without what a caption or a frame has in common with all others",
    ),
    _score(
        "p_time_shift",
        "float32",
        "Chance of the shift",
        "how often such a gain comes by chance; small: the captions are out of step",
        suspicious="low",
        unit="probability",
        use="detail",
        definition="against captions permuted among the spans of the video",
    ),
    _score("best_start", "float32", "True from", "timed caption: where it begins to be true", unit="seconds"),
    _score("best_end", "float32", "True until", "timed caption: where it ceases to be true", unit="seconds"),
)
