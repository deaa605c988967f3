"""Similarity of a pair, and how it stands against a reference sample of the corpus.

Some media are near every caption and some captions near every medium (hubs), so a raw cosine says little by itself.
Here each pair is compared with a bounded random sample of the corpus: its cosine less half the log-mean-exp of the
similarities of both its sides, the number of corpus items that fit either side as well, and the mean similarity h.
Everything depends on the pair and the reference alone, so scoring streams. NumPy only; memory is flat in the number
of pairs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from auditor.score.statistics.siblings import Siblings
from auditor.vectors import BLOCK_ELEMENTS, Bools, Floats, Ints, MediaVectors, Rows

RIVAL_WEIGHT = 0.65
FRAME_NULL_QUANTILE = 0.95  # a frame fits when 19 of 20 frames of other videos fit the caption less


@dataclass(frozen=True, slots=True)
class Reference:
    """A bounded random sample of the corpus's OK pairs of one kind; all vectors L2-normalised.

    Pairs with the same `group` share a medium (or an exact duplicate of it) and are never played against each other.
    """

    media: MediaVectors  # R of them
    text: Floats  # (R, D)
    group: Ints  # (R,)
    scale: float  # inverse temperature of the similarities: the backbone's logit_scale
    captions: Sequence[str] = ()  # (R) where words are looked at
    siblings: Siblings | None = None  # other captions of the same media

    def __len__(self) -> int:
        return len(self.group)

    @property
    def visual(self) -> Floats:  # (R, D)
        return self.media.visual

    def take(self, rows: Rows) -> "Reference":
        """The reference made of some of its rows."""
        chosen = np.arange(len(self))[rows]
        return Reference(
            self.media.take(rows),
            self.text[rows],
            self.group[rows],
            self.scale,
            [self.captions[row] for row in chosen] if self.captions else (),
            None if self.siblings is None else self.siblings.take(rows, len(self)),
        )


@dataclass(frozen=True, slots=True)
class Measures:
    """What `measure` finds for N pairs; every array has N entries, the frame columns are None for images."""

    similarity: Floats
    similarity_normalised: Floats
    mean_similarity_visual: Floats
    mean_similarity_text: Floats
    matches_visual: Floats
    matches_text: Floats
    confusion_visual: Floats
    confusion_text: Floats
    rivals_visual: Floats  # what the best captions of others reach with the medium
    rivals_text: Floats
    rival_margin: Floats  # low: a better partner exists
    best_frame: npt.NDArray[np.int32] | None
    frame_spread: Floats | None
    frame_match_share: Floats | None


@dataclass(frozen=True, slots=True)
class Standing:
    """How rows stand against the reference: log-mean-exp and mean of their similarities, perplexity as a share."""

    level: Floats  # log-mean-exp at temperature 1/scale, in units of similarity
    rivals: Floats  # the same at half that temperature: closer to the best alternatives
    mean: Floats
    share: Floats  # effective share of the reference that fits as well, in (0, 1]
    confusion: Floats  # entropy of what fits at 1.5 times the scale, where what fits everything counts for less

    def take(self, rows: Ints) -> "Standing":
        return Standing(*(getattr(self, each.name)[rows] for each in fields(self)))


def runs(group: Ints) -> tuple[Ints, Ints]:
    """First row of every run of equal groups, and the run of each row."""
    starts = np.ones(len(group), dtype=bool)
    starts[1:] = group[1:] != group[:-1]
    return np.flatnonzero(starts), np.cumsum(starts) - 1


def blocks(rows: int, columns: int) -> Iterator[slice]:
    """Slices of the rows so that a block of rows x columns fits the cache."""
    step = max(16, BLOCK_ELEMENTS // max(1, columns))
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


class OwnGroup:
    """Finds the reference rows of a pair's own group, which must not count as alternatives."""

    def __init__(self, groups: Ints) -> None:
        self.order = np.argsort(groups, kind="stable")
        self.sorted = groups[self.order]

    def find(self, groups: Ints) -> tuple[Ints, Ints, Ints]:
        """(row, column) of every hit and the number of hits of each row."""
        first = np.searchsorted(self.sorted, groups, "left")
        count = np.searchsorted(self.sorted, groups, "right") - first
        row = np.repeat(np.arange(len(groups)), count)
        within = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
        return row, self.order[np.repeat(first, count) + within], count


@dataclass(frozen=True, slots=True)
class Hubs:
    """What each medium and each caption of a reference reaches with its best rivals: how much of a hub it is."""

    visual: Floats  # (R,)
    text: Floats  # (R,)


def hubs_of(ref: Reference) -> Hubs:
    even = np.zeros(len(ref), np.float32)
    return Hubs(
        standing_of_visual(ref.media, ref.group, ref, even).rivals,
        standing_of_text(ref.text, ref.group, ref, even).rivals,
    )


def standing(
    similarity: Floats, own: tuple[Ints, Ints, Ints], scale: float, hubs: Floats, whole: bool = True
) -> Standing:
    """Reduce a block of similarities to the reference, (B, R), which is overwritten; `hubs` (R,) of its items.

    The own group is no rival and left out. Where the reference is the `whole` corpus it does count among what fits, so
    that this does not depend on the medium a caption is paired with; where it is a sample it does not count, or rows
    that happen to be in the sample would look clearer than others.
    """
    row, column, hits = own
    others = np.maximum(similarity.shape[1] - hits, 1).astype(np.float32)
    total = similarity.sum(axis=1)
    partner = similarity[row, column]
    np.subtract.at(total, row, partner)
    similarity[row, column] = -1  # never the maximum, or the exponentials of all others could vanish
    top = similarity.max(axis=1, keepdims=True)
    logits = np.multiply(np.subtract(similarity, top, out=similarity), np.float32(scale), out=similarity)
    weights = np.exp(logits)
    weights[row, column] = 0
    mass = np.maximum(weights.sum(axis=1), np.float32(1e-30))
    moment = np.einsum("br,br->b", weights, logits)
    near = np.minimum((partner - top[row, 0]) * np.float32(scale), np.float32(40))
    counted = row, np.float32(whole)
    count = others + np.float32(whole) * hits
    fitting = np.exp(entropy(mass, moment, near, counted))
    level = top[:, 0] + np.log(mass / others) / np.float32(scale)

    squares = np.maximum(np.einsum("br,br->b", weights, weights), np.float32(1e-30))
    rivals = top[:, 0] + np.log(squares / others) / np.float32(2 * scale)

    penalty = np.clip(np.float32(0.75 * scale) * (hubs - hubs.mean()), -30, 30)  # (R,)
    sharp = np.multiply(weights, np.sqrt(weights), out=weights)  # at 1.5 times the scale
    np.multiply(sharp, np.exp(-penalty), out=sharp)
    mass = np.maximum(sharp.sum(axis=1), np.float32(1e-30))
    moment = np.float32(1.5) * np.einsum("br,br->b", sharp, logits) - sharp @ penalty
    vague = entropy(mass, moment, np.float32(1.5) * near - penalty[column], counted)
    return Standing(
        level, rivals, total / others, np.minimum(fitting / count, 1).astype(np.float32), vague.astype(np.float32)
    )


def entropy(mass: Floats, moment: Floats, near: Floats, counted: tuple[Ints, np.float32]) -> npt.NDArray[np.float64]:
    """Of a distribution with this sum and mean logit of its weights, and further logits `near` where they count."""
    row, whole = counted
    weight = np.exp(np.minimum(near, np.float32(80))) * whole
    all_mass = mass + np.bincount(row, weight, len(mass))
    all_moment = moment + np.bincount(row, weight * near, len(mass))
    return np.asarray(np.log(all_mass) - all_moment / all_mass)


def standing_of_visual(media: MediaVectors, group: Ints, ref: Reference, hubs: Floats, whole: bool = True) -> Standing:
    """How media stand against the captions of the reference."""
    own = OwnGroup(ref.group)
    parts = []
    for rows in blocks(len(media), len(ref) if media.frames is None else len(ref) * 4):
        matrix = media.take(rows).similarity(ref.text)
        parts.append(standing(matrix, own.find(group[rows]), ref.scale, hubs, whole))
    return joined(parts)


def standing_of_text(text: Floats, group: Ints, ref: Reference, hubs: Floats, whole: bool = True) -> Standing:
    """How captions stand against the media of the reference."""
    own = OwnGroup(ref.group)
    parts = []
    for rows in blocks(len(text), len(ref)):
        if ref.media.frames is None:
            matrix = text[rows] @ ref.visual.T
        else:
            matrix = np.ascontiguousarray(ref.media.similarity(text[rows]).T)
        parts.append(standing(matrix, own.find(group[rows]), ref.scale, hubs, whole))
    return joined(parts)


def joined(parts: list[Standing]) -> Standing:
    if not parts:
        return Standing(*(np.empty(0, np.float32) for _ in fields(Standing)))
    return Standing(*(np.concatenate([getattr(part, each.name) for part in parts]) for each in fields(Standing)))


def measure(
    vectors: MediaVectors,  # of N media
    text: Floats,  # (N, D)
    group: Ints,  # (N,)
    reference: Reference,
    *,
    media: int | None = None,
    captions: int | None = None,
    frame_threshold: float | None = None,
    hubs: Hubs | None = None,
) -> Measures:
    """Measure N pairs of one kind against the reference.

    `media` and `captions` are the corpus's numbers of OK media and captions, to which `matches_*` are scaled (the
    reference's size where not given). `frame_threshold` is `MismatchModel.frame_threshold` and `hubs` is `hubs_of` the
    reference; both are computed where not given. A medium whose captions stand together is compared once.
    """
    similarity = vectors.own_similarity(text)
    whole = captions is None or captions <= len(reference)
    hubs = hubs_of(reference) if hubs is None else hubs
    first, which = runs(group)
    of_visual = standing_of_visual(vectors.take(first), group[first], reference, hubs.text, whole).take(which)
    of_text = standing_of_text(text, group, reference, hubs.visual, whole)
    normalised = similarity - np.float32(0.5) * (of_visual.level + of_text.level)
    best, spread, share = None, None, None
    if vectors.mask is not None:
        threshold = frame_match_threshold(reference) if frame_threshold is None else frame_threshold
        best, spread, share = frame_measures(vectors.frame_similarity(text), vectors.mask, threshold)
    return Measures(
        similarity=similarity,
        similarity_normalised=normalised,
        mean_similarity_visual=of_visual.mean,
        mean_similarity_text=of_text.mean,
        matches_visual=of_visual.share * np.float32(captions or len(reference)),
        matches_text=of_text.share * np.float32(media or len(reference)),
        confusion_visual=of_visual.confusion,
        confusion_text=of_text.confusion,
        rivals_visual=of_visual.rivals,
        rivals_text=of_text.rivals,
        rival_margin=rival_margin(similarity, of_visual.rivals, of_text.rivals),
        best_frame=best,
        frame_spread=spread,
        frame_match_share=share,
    )


def rival_margin(similarity: Floats, rivals_of_visual: Floats, rivals_of_text: Floats) -> Floats:
    """The pair's similarity less that of the rivals of both its sides: low where a better partner exists.

    It does not say that the caption is wrong: a right but plain caption has many rivals. The weight was chosen on
    captions of similar photos, which it finds best where each medium has one caption.
    """
    return similarity - np.float32(RIVAL_WEIGHT) * (rivals_of_visual + rivals_of_text)


def frame_measures(
    similarity: Floats, mask: Bools, threshold: float | None
) -> tuple[npt.NDArray[np.int32], Floats, Floats]:
    """Best frame, standard deviation of the frames' similarities, and share of the frames that fit the caption."""
    count = np.maximum(mask.sum(axis=1), 1).astype(np.float32)
    known = np.where(mask, similarity, np.float32(0))
    mean = known.sum(axis=1) / count
    spread = np.sqrt((np.where(mask, known - mean[:, None], 0) ** 2).sum(axis=1) / count)
    fits = (mask & (similarity >= (np.inf if threshold is None else threshold))).sum(axis=1) / count
    return similarity.argmax(axis=1).astype(np.int32), spread.astype(np.float32), fits.astype(np.float32)


def frame_match_threshold(reference: Reference, *, seed: int = 0, draws: int = 20_000) -> float | None:
    """The cosine that a frame reaches with another video's caption once in 20 times; None for images."""
    frames, mask = reference.media.frames, reference.media.mask
    if frames is None or mask is None:
        return None
    frame_row, frame_column = np.nonzero(mask)
    generator = np.random.default_rng(seed)
    pick = generator.integers(0, len(frame_row), draws)
    other = generator.integers(0, len(reference), draws)
    apart = reference.group[frame_row[pick]] != reference.group[other]
    if not apart.any():
        return None
    found = frames[frame_row[pick[apart]], frame_column[pick[apart]]]
    cosine = np.einsum("nd,nd->n", found, reference.text[other[apart]])
    return float(np.quantile(cosine, FRAME_NULL_QUANTILE))
