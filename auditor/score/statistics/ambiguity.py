"""Ambiguity: one number per side from 0 to 1; from 0.5 up, an item says or shows nothing in particular.

It is half of PAU's u, or the strongest evidence that the item fits too much, whichever is larger. So it ranks ordinary
items as u does, and an item above 0.5 has evidence that people can check:

- of a caption: it resembles captions that describe nothing (auditor/score/statistics/vague_captions.py), its words are
  in a large share of the captions, or a third of the media fit it;
- of a medium: it is blank, it is blurred beyond recognition, a clip shows several scenes, or a third of the captions
  fit it.

No line depends on how much else in the corpus is ambiguous: a clear corpus has no flags, and one full of vague captions
has many (tests/bench/ambiguity.py).
"""

from collections.abc import Sequence

import numpy as np

from auditor.score.statistics import vague_captions
from auditor.score.statistics.word_evidence import WordFrequencies
from auditor.vectors import Bools, Floats, Ints, MediaVectors

# The lines, at which evidence is worth 0.5.
MATCH_SHARE = 1 / 3  # of the corpus: photos that a small encoder is unsure of fit up to 0.27 (docs/results.md)
WORD_SHARE = 0.01  # caption_share: "a black dog" holds for this share of the photos of Flickr8k
FEWEST = 20.0  # media or captions: in a small corpus, a third is only a few items
CONTRAST = 0.015  # deviation of luma; the least of 1,700 photos and drawings is 0.045
EDGE = 8.0  # sharpness times the encoder's width: the sharpest edge is blurred over a twentieth of the picture
EDGE_HEIGHT = 0.85  # the same times the contrast: in a faint picture, single gray levels look like sharp edges
SCENES = 0.42  # distance of a clip's frames, as a share of that of frames of different clips
FEWEST_CLIPS = 20  # from which the distance of different clips is estimated

VAGUENESS_NATS = 1.6  # weight of vagueness in the target of u: two deviations of the entropies of Flickr8k
VAGUENESS_START = 0.5  # deviations from which a caption is vague


def grade(ratio: Floats) -> Floats:
    """Evidence from 0 to 1 by the ratio of a measure to its line: 0.5 at the line; 0 if the measure is missing."""
    square = np.square(np.clip(np.nan_to_num(ratio, nan=0.0, posinf=1e9), 0, 1e9))
    return np.asarray(square / (1 + square), np.float32)


def combine_evidence(uncertainty: Floats, evidence: Sequence[Floats]) -> Floats:
    """Ambiguity (N,): u alone never reaches 0.5."""
    return np.asarray(np.maximum.reduce([np.minimum(uncertainty / 2, np.float32(0.499)), *evidence]), np.float32)


def grade_captions(
    matches: Floats, media: int, word_share: Floats, captions: int, vagueness: Floats | None, is_readable: Bools
) -> list[Floats]:
    """Evidence that captions say nothing in particular; the encoder's counts only for those that it can read."""
    by_encoder = [grade(matches / max(FEWEST, MATCH_SHARE * media))]
    if vagueness is not None:
        by_encoder.append(grade(vagueness / vague_captions.LINE))
    by_words = grade(word_share / max(WORD_SHARE, FEWEST / max(1, captions)))
    return [by_words, *(np.where(is_readable, part, np.float32(0)) for part in by_encoder)]


def grade_media(
    matches: Floats,
    captions: int,
    contrast: Floats,
    sharpness: Floats,
    image_size: int | None,
    scenes: Floats | None,
    is_readable: Bools,
) -> list[Floats]:
    """Evidence that media show nothing in particular, or too much at once."""
    edge = sharpness * (image_size or np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        evidence = [grade(CONTRAST / contrast), grade(EDGE / edge), grade(EDGE_HEIGHT / (edge * contrast))]
    if scenes is not None:
        evidence.append(grade(scenes / SCENES))
    return [*evidence, np.where(is_readable, grade(matches / max(FEWEST, MATCH_SHARE * captions)), np.float32(0))]


def sum_frames(frames: Floats, mask: Bools) -> tuple[Floats, Floats]:
    """Sum (N, D) and number (N,) of the valid frames of clips (N, J, D)."""
    valid = mask.astype(np.float32)
    return np.einsum("njd,nj->nd", frames, valid), valid.sum(axis=1)


def measure_frame_distance(media: MediaVectors) -> Floats:
    """Mean distance (1 - cosine) of two frames of each clip (N,); NaN for clips of one frame."""
    if media.frames is None or media.mask is None:
        return np.full(len(media), np.nan, np.float32)
    total, count = sum_frames(media.frames, media.mask)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(1 - (np.square(total).sum(axis=1) - count) / (count * (count - 1)), np.float32)


def estimate_clip_distance(media: MediaVectors) -> float | None:
    """Mean distance of frames of different clips; None if there are too few clips or all look alike."""
    if media.frames is None or media.mask is None or len(media) < FEWEST_CLIPS:
        return None
    total, frame_count = sum_frames(media.frames, media.mask)
    means, count = total / np.maximum(frame_count, 1)[:, None], len(total)
    squares = float(np.square(means).sum())
    distance = 1 - (float(np.square(means.sum(axis=0)).sum()) - squares) / (count * (count - 1))
    return distance if distance > 1e-3 else None


def score_vagueness(bits: Floats) -> Floats:
    """How far captions are below the usual information, in deviations of log(1 + bits)."""
    if not len(bits):
        return bits
    logarithm = np.log1p(bits)
    deviation = max(float(logarithm.std()), 1e-6)
    return np.asarray(np.maximum((logarithm.mean() - logarithm) / deviation - VAGUENESS_START, 0), np.float32)


def measure_vagueness(captions: Sequence[str], groups: Ints) -> Floats:
    """What the words of captions add to their entropies, in nats, as part of the target of u.

    That is the logarithm of the number of items of this sample that the words fit: those with the same caption, or
    those that would contain all its words. If that is less, how far it is below the usual information counts.
    """
    bits = WordFrequencies.count(captions).bits(captions)
    media: dict[str, set[int]] = {}
    for caption, group in zip(captions, groups.tolist(), strict=True):
        media.setdefault(caption, set()).add(group)
    repeats = np.log(np.array([len(media[caption]) for caption in captions], np.float32))
    matches = np.log(len(captions)) - np.log(2) * bits
    vagueness = VAGUENESS_NATS * score_vagueness(bits)
    return np.asarray(np.maximum.reduce([repeats, matches, vagueness]), np.float32)
