"""Similarity of a pair relative to its rivals: a bounded random reference sample of the corpus.

Some media are near every caption and some captions near every medium (hubs), so a raw cosine says little by itself.
Each pair is compared with the reference: its cosine minus half the log-mean-exp of the similarities of both sides, the
number of corpus items that fit either side equally well. That is negCLIPLoss (Wang et al., NeurIPS 2024), up to a
constant. All measures depend only on the pair and the reference, so scoring streams. NumPy only; memory does not grow
with the number of pairs.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from auditor.score.statistics.siblings import Siblings
from auditor.vectors import BLOCK_ELEMENTS, Bools, Floats, Ints, MediaVectors, concatenate_ranges

# w in the margin s - w (r_visual + r_text), chosen on captions of similar photos, which the margin detects best if each
# medium has one caption. A low margin does not mean that the caption is wrong: a right but plain one has many rivals.
RIVAL_WEIGHT = 0.65
TIE = np.float32(1e-5)  # items whose similarities differ by less fit equally well: copies and equal captions
FRAME_NULL_QUANTILE = 0.95  # a frame fits if 95% of the frames of other videos fit the caption less well


@dataclass(frozen=True, slots=True)
class PairEmbeddings:
    """Pairs of one kind of medium; all vectors are L2-normalized.

    Pairs with the same `group` share a medium (or an exact duplicate of it) and never count as rivals of each other.
    """

    media: MediaVectors  # (P)
    text: Floats  # (P, D)
    group: Ints  # (P,)
    captions: Sequence[str] = ()  # (P) only needed for word evidence
    siblings: Siblings | None = None  # other captions of the same media

    def __len__(self) -> int:
        return len(self.group)

    @property
    def visual(self) -> Floats:  # (P, D)
        return self.media.visual

    def take(self, rows: Ints) -> Self:
        return replace(
            self,
            media=self.media.take(rows),
            text=self.text[rows],
            group=self.group[rows],
            captions=[self.captions[row] for row in rows] if self.captions else (),
            siblings=None if self.siblings is None else self.siblings.take(rows),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceSample(PairEmbeddings):
    """A bounded random sample of the corpus's usable pairs, with which all pairs are compared."""

    scale: float  # inverse temperature of the similarities: the encoder's logit_scale
    temperature: float | None = None  # of similarity_normalised, if it is not 1 / scale


@dataclass(frozen=True, slots=True)
class PairMeasures:
    """Measures of N pairs; the frame measures are None for images. Columns of an audit have the same names."""

    similarity: Floats
    similarity_normalised: Floats
    matches_visual: Floats
    matches_text: Floats
    rivals_visual: Floats  # similarity of the medium to its best rival captions
    rivals_text: Floats
    rival_margin: Floats  # low: a better partner exists
    better_captions: Floats  # share of the rival captions that fit the medium better than its own
    better_media: Floats
    best_frame: npt.NDArray[np.int32] | None
    frame_spread: Floats | None
    frame_match_share: Floats | None


class RivalSimilarity(NamedTuple):
    """Similarities of rows to the reference, reduced to three numbers per row, and a share for each partner."""

    log_mean_exp: Floats  # at the temperature of the reference, in units of similarity
    rivals: Floats  # the same at half that temperature: closer to the best rivals
    match_share: Floats  # perplexity as a share of the reference, in (0, 1]: how much of it fits equally well
    better: Floats  # for each partner, the share of the rivals that fit its row better


class Partners(NamedTuple):
    """The partners of rows that are compared with a reference; a medium may have several captions."""

    row: Ints  # (P,) increasing
    similarity: Floats  # (P,) of the row and the partner

    def of_rows(self, rows: slice) -> Self:
        first, last = np.searchsorted(self.row, (rows.start, rows.stop))
        return type(self)(self.row[first:last] - rows.start, self.similarity[first:last])


NO_PARTNERS = Partners(np.zeros(0, np.int64), np.zeros(0, np.float32))


def count_better(similarity: Floats, partners: Partners) -> Floats:
    """The number of items that fit a row of similarities (B, R) better than each of its partners."""
    limit = (partners.similarity + TIE)[:, None]
    if len(limit) == len(similarity) and np.array_equal(partners.row, np.arange(len(limit))):  # one partner each
        return np.asarray(np.count_nonzero(similarity > limit, axis=1), np.float32)
    blocks = iterate_blocks(len(limit), similarity.shape[1])
    counts = [np.count_nonzero(similarity[partners.row[b]] > limit[b], axis=1) for b in blocks]
    return np.asarray(np.concatenate(counts), np.float32)


def find_runs(group: Ints) -> tuple[Ints, Ints]:
    """First row of every run of equal groups, and the number of the run that each row is in."""
    starts = np.ones(len(group), dtype=bool)
    starts[1:] = group[1:] != group[:-1]
    return np.flatnonzero(starts), np.cumsum(starts) - 1


def iterate_blocks(rows: int, columns: int) -> Iterator[slice]:
    """Slices of the rows, at least one, such that a block of rows x columns fits into the cache."""
    step = max(16, BLOCK_ELEMENTS // max(1, columns))
    return (slice(start, min(start + step, rows)) for start in range(0, max(rows, 1), step))


def multiply_blocks(vectors: Floats, others: Floats) -> Iterator[tuple[slice, Floats]]:
    """Yield the products of `vectors` with all `others` in blocks of rows, each in the memory of the one before it.

    With memory of its own, a block takes a third more time, because the system has to clear its pages.
    """
    memory: Floats | None = None
    for rows in iterate_blocks(len(vectors), len(others)):
        block = vectors[rows]
        if memory is None:
            memory = np.empty((len(block), len(others)), np.float32)
        yield rows, np.matmul(block, others.T, out=memory[: len(block)])


class OwnGroup:
    """Index of the reference rows by group: rows of a pair's own group must not count as rivals."""

    def __init__(self, groups: Ints) -> None:
        self.order = np.argsort(groups, kind="stable")
        self.sorted = groups[self.order]

    def find(self, groups: Ints) -> tuple[Ints, Ints, Ints]:
        """(row, column) of every hit, and the number of hits of each row."""
        first = np.searchsorted(self.sorted, groups, "left")
        count = np.searchsorted(self.sorted, groups, "right") - first
        return np.repeat(np.arange(len(groups)), count), self.order[concatenate_ranges(first, count)], count


@dataclass(frozen=True, slots=True)
class Hubs:
    """Similarity of each medium and each caption of a reference to its best rivals: its degree of hubness."""

    visual: Floats  # (R,)
    text: Floats  # (R,)


def measure_hubs(ref: ReferenceSample) -> Hubs:
    return Hubs(
        compare_media(ref.media, ref.group, ref).rivals,
        compare_captions(ref.text, ref.group, ref).rivals,
    )


def reduce_similarities(
    similarity: Floats,
    own_hits: tuple[Ints, Ints, Ints],
    scale: float,
    whole: bool = True,
    partners: Partners = NO_PARTNERS,
    temperature: float | None = None,
    memory: Floats | None = None,
) -> RivalSimilarity:
    """Reduce a block of similarities to the reference, (B, R), which is overwritten, as is `memory` of its shape.

    Rows of the own group are not rivals. If the reference is the `whole` corpus, they still count among the matches, so
    that the matches do not depend on the medium a caption is paired with. If the reference is a sample, they do not
    count: otherwise rows that happen to be in the sample would look less ambiguous than others.
    """
    row, column, hits = own_hits
    rival_count = np.maximum(similarity.shape[1] - hits, 1).astype(np.float32)
    partner = similarity[row, column]
    similarity[row, column] = -2  # less than any cosine; as the maximum, it could make all exponentials underflow
    better = count_better(similarity, partners) / rival_count[partners.row]
    top = similarity.max(axis=1, keepdims=True)
    logits = np.multiply(np.subtract(similarity, top, out=similarity), np.float32(scale), out=similarity)
    weights = np.exp(logits, out=memory)
    weights[row, column] = 0
    mass = np.maximum(weights.sum(axis=1), np.float32(1e-30))
    moment = np.einsum("br,br->b", weights, logits)
    own_logits = np.minimum((partner - top[row, 0]) * np.float32(scale), np.float32(40))
    perplexity = np.exp(compute_entropy(mass, moment, own_logits, row, np.float32(whole)))
    match_share = np.minimum(perplexity / (rival_count + np.float32(whole) * hits), 1).astype(np.float32)
    log_mean_exp = top[:, 0] + np.log(mass / rival_count) / np.float32(scale)
    if temperature is not None:
        sharpened = np.exp(logits * np.float32(1 / (temperature * scale)))
        sharpened[row, column] = 0
        other_mass = np.maximum(sharpened.sum(axis=1), np.float32(1e-30))
        log_mean_exp = top[:, 0] + np.log(other_mass / rival_count) * np.float32(temperature)

    squares = np.maximum(np.einsum("br,br->b", weights, weights), np.float32(1e-30))
    rivals = top[:, 0] + np.log(squares / rival_count) / np.float32(2 * scale)
    return RivalSimilarity(log_mean_exp, rivals, match_share, better)


def compute_entropy(
    mass: Floats, moment: Floats, own_logits: Floats, row: Ints, own_weight: np.float32
) -> npt.NDArray[np.float64]:
    """Entropy log Z - E[logit] of weights exp(logit) with sum `mass` and sum of weight times logit `moment`.

    `own_logits` belong to the rows `row` and are added with the weight 0 or 1.
    """
    weight = np.exp(np.minimum(own_logits, np.float32(80))) * own_weight
    all_mass = mass + np.bincount(row, weight, len(mass))
    all_moment = moment + np.bincount(row, weight * own_logits, len(mass))
    return np.asarray(np.log(all_mass) - all_moment / all_mass)


def compare_media(
    media: MediaVectors,
    group: Ints,
    ref: ReferenceSample,
    whole: bool = True,
    partners: Partners = NO_PARTNERS,
) -> RivalSimilarity:
    """Compare media with the captions of the reference."""
    if media.frames is None:
        return reduce_blocks(multiply_blocks(media.visual, ref.text), group, ref, whole, partners)
    blocks = iterate_blocks(len(media), len(ref) * 4)
    similarities = ((rows, media.take(rows).similarity(ref.text)) for rows in blocks)
    return reduce_blocks(similarities, group, ref, whole, partners)


def compare_captions(
    text: Floats,
    group: Ints,
    ref: ReferenceSample,
    whole: bool = True,
    partners: Partners = NO_PARTNERS,
) -> RivalSimilarity:
    """Compare captions with the media of the reference."""
    if ref.media.frames is None:
        return reduce_blocks(multiply_blocks(text, ref.visual), group, ref, whole, partners)
    blocks = iterate_blocks(len(text), len(ref))
    similarities = ((rows, np.ascontiguousarray(ref.media.similarity(text[rows]).T)) for rows in blocks)
    return reduce_blocks(similarities, group, ref, whole, partners)


def reduce_blocks(
    blocks: Iterable[tuple[slice, Floats]],
    group: Ints,
    ref: ReferenceSample,
    whole: bool,
    partners: Partners,
) -> RivalSimilarity:
    own_group, parts = OwnGroup(ref.group), []
    memory = np.empty((0, len(ref)), np.float32)
    for rows, block in blocks:
        memory = memory[: len(block)] if len(block) <= len(memory) else np.empty_like(block)
        hits, own = own_group.find(group[rows]), partners.of_rows(rows)
        parts.append(reduce_similarities(block, hits, ref.scale, whole, own, ref.temperature, memory))
    return RivalSimilarity(*map(np.concatenate, zip(*parts, strict=True)))


def measure_pairs(
    pairs: PairEmbeddings,
    reference: ReferenceSample,
    *,
    media: int | None = None,
    captions: int | None = None,
    frame_threshold: float | None = None,
) -> PairMeasures:
    """Measure pairs against the reference.

    `media` and `captions` are the corpus's numbers of usable media and captions, to which `matches_*` are scaled
    (default: the size of the reference). `frame_threshold` is `MismatchModel.frame_threshold`, computed if
    omitted. A medium whose captions are adjacent is compared once.
    """
    vectors, text, group = pairs.media, pairs.text, pairs.group
    similarity = vectors.own_similarity(text)
    whole = captions is None or captions <= len(reference)
    first, run = find_runs(group)
    captions_of, medium_of = Partners(run, similarity), Partners(np.arange(len(text)), similarity)
    of_media = compare_media(vectors.take(first), group[first], reference, whole, captions_of)
    of_visual = RivalSimilarity(*(column[run] for column in of_media))._replace(better=of_media.better)
    of_text = compare_captions(text, group, reference, whole, medium_of)
    best, spread, share = None, None, None
    if vectors.mask is not None:
        threshold = estimate_frame_threshold(reference) if frame_threshold is None else frame_threshold
        best, spread, share = measure_frames(vectors.frame_similarity(text), vectors.mask, threshold)
    return PairMeasures(
        similarity=similarity,
        similarity_normalised=similarity - np.float32(0.5) * (of_visual.log_mean_exp + of_text.log_mean_exp),
        matches_visual=of_visual.match_share * np.float32(captions or len(reference)),
        matches_text=of_text.match_share * np.float32(media or len(reference)),
        rivals_visual=of_visual.rivals,
        rivals_text=of_text.rivals,
        rival_margin=similarity - np.float32(RIVAL_WEIGHT) * (of_visual.rivals + of_text.rivals),
        better_captions=of_visual.better,
        better_media=of_text.better,
        best_frame=best,
        frame_spread=spread,
        frame_match_share=share,
    )


def measure_frames(
    similarity: Floats, mask: Bools, threshold: float | None
) -> tuple[npt.NDArray[np.int32], Floats, Floats]:
    """Best frame, standard deviation of the frames' similarities, and share of the frames that fit the caption."""
    count = np.maximum(mask.sum(axis=1), 1).astype(np.float32)
    valid = np.where(mask, similarity, np.float32(0))
    mean = valid.sum(axis=1) / count
    spread = np.sqrt((np.where(mask, valid - mean[:, None], 0) ** 2).sum(axis=1) / count)
    fits = (mask & (similarity >= (np.inf if threshold is None else threshold))).sum(axis=1) / count
    return similarity.argmax(axis=1).astype(np.int32), spread.astype(np.float32), fits.astype(np.float32)


def estimate_frame_threshold(reference: ReferenceSample, *, seed: int = 0, draws: int = 20_000) -> float | None:
    """The cosine that 5% of the frames reach with another video's caption; None for images."""
    frames, mask = reference.media.frames, reference.media.mask
    if frames is None or mask is None:
        return None
    frame_row, frame_column = np.nonzero(mask)
    generator = np.random.default_rng(seed)
    pick = generator.integers(0, len(frame_row), draws)
    caption_row = generator.integers(0, len(reference), draws)
    apart = reference.group[frame_row[pick]] != reference.group[caption_row]
    if not apart.any():
        return None
    drawn_frames = frames[frame_row[pick[apart]], frame_column[pick[apart]]]
    cosine = np.einsum("nd,nd->n", drawn_frames, reference.text[caption_row[apart]])
    return float(np.quantile(cosine, FRAME_NULL_QUANTILE))
