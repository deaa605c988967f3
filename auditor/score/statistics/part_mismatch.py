"""The probability that some part of a caption does not describe the medium, for captions of several parts.

Each part is judged like a caption whose siblings are the other parts, and the other captions of its medium: the
statistic, the null density from random re-pairings and the curve are those of p_mismatch, fitted to the parts of
captions that are not mismatched as a whole. With q_i the probability of part i under that condition and p that of the
whole caption, part i is mismatched with the probability p + (1 - p) q_i, and some part with 1 - (1 - p) prod(1 - q_i).
The right parts beside a wrong one disagree with it: of two, they are as many as the wrong ones, and no density of one
peak has room for them. So sibling evidence does not count for the share, only for the single part.

Some sentences say nothing about a medium ("The background is blurred."): their true pairs look like re-pairings. The
share of mismatches among the most similar parts of other captions shows it. If nearly all of them look mismatched, the
encoder cannot judge such a sentence, and q_i is zero: p_part_mismatch counts at least what can be seen. NumPy only.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from auditor.score.statistics.mismatch import MismatchModel, fit_mismatch
from auditor.score.statistics.mismatch_statistic import compute_statistic
from auditor.score.statistics.rivals import PairEmbeddings, ReferenceSample, find_runs, iterate_blocks, measure_pairs
from auditor.score.statistics.siblings import collect_siblings, merge_siblings
from auditor.vectors import Bools, Floats, Ints, PartVectors

REFERENCE_PARTS = 4096  # drawn at random, with which all parts are compared
READ_PARTS = 4 * REFERENCE_PARTS  # of captions in the reference from which these are drawn
BLOCK_PARTS = 8192  # judged at once
MISMATCHED = 0.5  # p of a caption from which its parts are no examples of matched ones
NEIGHBORS = 30  # most similar parts of other media
UNJUDGED = 0.8  # mean probability of similar parts from which the encoder cannot judge such parts


@dataclass(frozen=True, slots=True)
class PartDoubts:
    """Parts of the corpus, with the probability that each is mismatched."""

    text: Floats  # (R, D)
    group: Ints  # (R,)
    p: Floats  # (R,)
    deviation: float  # of the cosines of two parts

    def find_judged(self, parts: PairEmbeddings) -> Bools:
        """Whether the encoder can judge each part: not nearly all similar parts of other media look mismatched."""
        means, count = [], min(NEIGHBORS, len(self.p))
        for rows in iterate_blocks(len(parts), len(self.p)):
            cosine = np.where(parts.group[rows, None] == self.group, np.float32(-2), parts.text[rows] @ self.text.T)
            nearest = np.argpartition(cosine, len(self.p) - count, axis=1)[:, -count:]
            cosine = np.take_along_axis(cosine, nearest, 1)
            weight = np.exp((cosine - cosine.max(axis=1, keepdims=True)) / np.float32(self.deviation))
            means.append((weight * self.p[nearest]).sum(axis=1) / weight.sum(axis=1))
        return np.concatenate(means) < UNJUDGED


@dataclass(frozen=True, slots=True)
class PartModel:
    """The fitted statistic of the parts of one kind of medium."""

    reference: ReferenceSample  # of parts that can be judged
    mismatch: MismatchModel
    doubts: PartDoubts

    def judge(self, parts: PairEmbeddings) -> Floats:
        """The probability that each part is mismatched if its caption is not mismatched as a whole."""
        p = estimate_probabilities(self.mismatch, parts, self.reference)
        return np.where(self.doubts.find_judged(parts), p, np.float32(0))

    def to_dict(self) -> dict[str, Any]:
        saved = self.mismatch.to_dict()
        return {name: saved[name] for name in ("reference_pairs", "pi0", "curve", "evidence")}


class PartScores(NamedTuple):
    """Scores of N captions, NaN for those with one part, and of their parts, concatenated."""

    weakest: Floats  # (N,) number of the part
    similarity: Floats  # (N,) the lowest of a part
    p: Floats  # (N,) probability that some part is mismatched
    p_of_parts: Floats  # (T,)


def fit_parts(
    reference: ReferenceSample, parts: PartVectors, p: Floats, *, seed: int = 0, captions: int | None = None
) -> PartModel | None:
    """Fit to the parts of a reference of captions with the probabilities p; None if there are too few parts.

    `captions` is the corpus's number of usable pairs, of which the reference is a sample.
    """
    rows = np.flatnonzero((parts.counts > 0) & (p < MISMATCHED))
    step = -(-int(parts.counts[rows].sum()) // READ_PARTS) or 1
    expanded = expand_parts(reference, parts, rows[::step])
    generator = np.random.default_rng([seed, 3])
    drawn = expanded.take(np.sort(generator.permutation(len(expanded))[:REFERENCE_PARTS]))
    total = None if captions is None else int(captions * parts.counts.sum() / max(1, len(reference)))
    sample = ReferenceSample(drawn.media, drawn.text, drawn.group, (), drawn.siblings, scale=reference.scale)
    model = fit_mismatch(sample, seed=seed, captions=total, bootstraps=0, use_siblings=False)
    if model is None or model.statistic is None:
        return None
    p, deviation = estimate_probabilities(model, sample, sample), model.statistic.null_cosines.text_deviation
    doubts = PartDoubts(sample.text, sample.group, p, deviation)
    usable = np.flatnonzero(doubts.find_judged(sample))
    if len(usable) < len(sample):
        sample = sample.take(usable)
        model = fit_mismatch(sample, seed=seed, captions=total, bootstraps=0, use_siblings=False)
    return PartModel(sample, model, doubts) if model is not None else None


def estimate_probabilities(model: MismatchModel, pairs: PairEmbeddings, reference: ReferenceSample) -> Floats:
    """p of pairs, compared with the reference that the model was fitted to."""
    assert model.statistic is not None  # a fitted model has one
    return model.p(compute_statistic(model.statistic, pairs, measure_pairs(pairs, reference)))


def expand_parts(pairs: PairEmbeddings, parts: PartVectors, rows: Ints) -> PairEmbeddings:
    """The parts of these captions as pairs; siblings are the other parts, and the other captions of the medium."""
    chosen = parts.take(rows)
    owner = rows[chosen.find_owners()]
    media, text = pairs.media.take(owner), chosen.vectors.astype(np.float32)
    siblings = collect_siblings(owner, media, text) if len(owner) else None
    if pairs.siblings is not None and len(owner):
        siblings = merge_siblings(siblings, pairs.siblings.take(owner))
    return PairEmbeddings(media, text, pairs.group[owner], siblings=siblings)


def judge_captions(pairs: PairEmbeddings, parts: PartVectors, p: Floats, model: PartModel | None) -> PartScores:
    """Judge the parts of captions (N) with the probabilities p (N,); without a model, or p, there is no probability."""
    weakest, lowest, p_of_captions = (np.full(len(pairs), np.nan, np.float32) for _ in range(3))
    p_of_parts = [np.zeros(0, np.float32)]
    for rows in iterate_captions(pairs.group, parts.counts):
        counts = parts.counts[rows]
        owner, first = np.repeat(np.arange(len(rows)), counts), np.cumsum(counts) - counts
        expanded = expand_parts(pairs, parts, rows)
        similarity = expanded.media.own_similarity(expanded.text)
        lowest[rows] = np.minimum.reduceat(similarity, first)
        q = np.full(len(owner), np.nan, np.float32) if model is None else model.judge(expanded)
        p_of_captions[rows] = 1 - (1 - p[rows]) * np.multiply.reduceat(1 - q, first)
        p_of_parts.append(p[rows][owner] + (1 - p[rows][owner]) * q)
        order = np.lexsort((similarity, -np.nan_to_num(q), owner))  # of each caption, the most doubtful part first
        weakest[rows] = order[first] - first
    return PartScores(weakest, lowest, p_of_captions, np.concatenate(p_of_parts))


def iterate_captions(group: Ints, counts: Ints) -> Iterator[Ints]:
    """The captions with several parts in blocks of about BLOCK_PARTS parts; those of a medium stay together."""
    first, run = find_runs(group)
    parts = np.add.reduceat(counts, first)
    block = ((np.cumsum(parts) - parts) // BLOCK_PARTS)[run]
    several = np.flatnonzero(counts)
    yield from np.split(several, np.flatnonzero(np.diff(block[several])) + 1) if len(several) else ()
