"""The corpus-wide numbers that scoring needs, computed once from stored embeddings and handed to every scorer.

Prototypes (where no PAU was given), a reference sample per kind, the mismatch model fitted on it, topics, the map,
duplicates and thresholds. All samples are bounded, so this costs the same for a million pairs and a billion, but for
the search for duplicates (auditor.score.duplicate_search), which reads every vector and is spread as the engine can.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from auditor.audit_folder import embeddings as stored
from auditor.audit_folder.folder import Folder
from auditor.audit_folder.topic_names import write_topics
from auditor.errors import AuditorError
from auditor.score.caption_counts import CaptionCounts, count_captions
from auditor.score.corpus_map import CorpusMap, lay_out
from auditor.score.duplicate_search import BEST, find_duplicates
from auditor.score.pair_sample import (
    KINDS,
    Each,
    NothingEncodedError,
    Pairs,
    Wanted,
    count_pairs,
    draw_pairs,
    in_turn,
    to_fit,
    total,
    vectors_to_fit,
)
from auditor.score.shard_priors import Priors
from auditor.score.statistics.ambiguity import AmbiguityScale, Frequencies, Level, absolute_thresholds, top_thresholds
from auditor.score.statistics.mismatch import MismatchModel, fit_mismatch
from auditor.score.statistics.rivals import Hubs, Measures, Reference, frame_match_threshold, hubs_of, measure
from auditor.score.statistics.topics import assign_topics, fit_topics, typical_captions
from auditor.score.statistics.word_evidence import Vocabulary
from auditor.score.vocabulary import Encode, draw_captions, vocabulary_of
from auditor.vectors import Floats
from model.fit_prototypes import Target, fit_prototypes
from model.prototypes import HeadConfig, PrototypeHead


@dataclass(frozen=True)
class ScoreConfig:
    """Settings of scoring."""

    reference: int = 4096  # pairs of each kind that every pair is compared with
    fit_pairs: int = 50_000  # at most, for prototypes
    prototypes: int = 8
    target: Target = "retrieval"  # what u of fitted prototypes follows
    topics: int = 16
    near_duplicate: float | None = None  # cosine above which two media are one; None: from the corpus's own spread
    ambiguous_top: float | None = None  # share that the flags of ambiguity take; None or 0: whatever fits too much
    keep_duplicate: str = "first"  # which of a group of duplicates the others repeat: one of BEST
    seed: int = 0

    def __post_init__(self) -> None:
        if self.keep_duplicate not in BEST:
            raise AuditorError(f"duplicates are kept by one of {', '.join(BEST)}, not by {self.keep_duplicate!r}")

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> "ScoreConfig":
        """The settings of an audit; those of older ones that no longer mean anything are left out.

        Settings that have come since are as usual, but for `target`: before it u followed h.
        """
        known = {"target": "h", **stored} if stored else {}
        return cls(**{name: value for name, value in known.items() if name in cls.__dataclass_fields__})


@dataclass(frozen=True)
class KindContext:
    """What scoring needs to know of one kind of medium."""

    reference: Reference
    mismatch: MismatchModel | None  # None where there are too few pairs to tell
    media: int
    captions: int
    hubs: Hubs
    ambiguity: AmbiguityScale

    def measure(self, pairs: Pairs) -> Measures:
        """Pairs of this kind against its reference."""
        return measure(
            pairs.media,
            pairs.text,
            pairs.group,
            self.reference,
            media=self.media,
            captions=self.captions,
            frame_threshold=self.mismatch.frame_threshold if self.mismatch else None,
            hubs=self.hubs,
        )


@dataclass(frozen=True)
class Context:
    """All that `score_shard` needs beside the shard itself; picklable, so that a cluster can broadcast it."""

    head: PrototypeHead
    kinds: dict[str, KindContext]
    frequencies: Frequencies
    words: int | None  # that are looked for in media; None where there was no text tower to encode them
    topics: Floats  # (T, D)
    map: CorpusMap
    captions: CaptionCounts
    thresholds: dict[str, Any]
    statistics: dict[str, Any]
    fingerprint: str
    priors: Priors = field(default_factory=dict)  # of shards whose share of mismatches stands out


def prepare(
    folder: Folder,
    shards: Sequence[str],
    head: PrototypeHead | None,
    scale: float,
    config: ScoreConfig,
    *,
    model: str = "",
    encode: Encode | None = None,
    keep: bool = True,
    each: Each = in_turn,
) -> Context:
    """Compute the corpus-wide numbers from embeddings/*.parquet; `keep` puts samples and duplicates into the audit.

    `model` is the fingerprint of the encoder and `encode` its text tower, for the words of the captions.
    """
    counts = count_pairs(folder, shards, each)
    wanted = [Wanted(kind, config.reference) for kind in KINDS]
    fitted = to_fit(config.fit_pairs) if head is None else []
    samples = draw_pairs(folder, counts, [*wanted, *fitted], config.seed, each)
    found = {one.kind: pairs for one, pairs in zip(wanted, samples, strict=False) if pairs is not None}
    if not found:
        raise NothingEncodedError("no pair of this corpus could be encoded, so there is nothing to score")
    if head is None:
        head = _fit_head(*vectors_to_fit(samples[len(wanted) :]), scale, config)
    del samples  # those to fit on are many
    frequencies = Frequencies.of(draw_captions(folder, counts, config.seed, each))
    vocabulary = vocabulary_of(folder, frequencies.telling(), model, encode, keep=keep)
    kinds = {}
    for kind, pairs in found.items():
        kinds[kind] = _kind(pairs, total(counts, kind), pairs.reference(scale), frequencies, vocabulary, config.seed)
    topics = fit_topics(np.concatenate([pairs.visual for pairs in found.values()]), config.topics, config.seed)
    laid_out = lay_out(folder, list(found.values()), config.seed, keep=keep)
    captions = count_captions(folder, shards, each)
    statistics = {kind: _describe(context) for kind, context in kinds.items()}
    thresholds = _thresholds(found, kinds, frequencies, config.ambiguous_top or None)
    if keep:
        _keep_reference(folder, found)
        _name_topics(folder, list(found.values()), topics)
        find_duplicates(folder, counts, config.near_duplicate, config.keep_duplicate, seed=config.seed, each=each)
    counted = captions.hashes.tobytes(), captions.counts.tobytes()
    known = repr(sorted(statistics.items())), repr(sorted(frequencies.counts.items()))
    words = len(vocabulary.names) if vocabulary else None if frequencies.counts else 0
    fingerprint = _fingerprint(head.fingerprint, *known, topics.tobytes(), laid_out.fingerprint, *counted)
    return Context(head, kinds, frequencies, words, topics, laid_out, captions, thresholds, statistics, fingerprint)


def _fit_head(visual: Floats, text: Floats, scale: float, config: ScoreConfig) -> PrototypeHead:
    head = HeadConfig(dim=visual.shape[1], prototypes=config.prototypes)
    both = torch.from_numpy(visual), torch.from_numpy(text)
    return fit_prototypes(*both, head, target=config.target, logit_scale=scale, seed=config.seed)


def _kind(
    pairs: Pairs,
    counts: tuple[int, int],
    reference: Reference,
    frequencies: Frequencies,
    vocabulary: Vocabulary | None,
    seed: int,
) -> KindContext:
    captions, media = counts
    mismatch = fit_mismatch(reference, seed=seed, captions=captions, words=vocabulary)
    hubs = mismatch.judge.hubs if mismatch and mismatch.judge else hubs_of(reference)
    usual = AmbiguityScale(Level(0, 0), Level(0, 0), Level(0, 0))
    context = KindContext(reference, mismatch, media, captions, hubs, usual)
    return replace(context, ambiguity=AmbiguityScale.of(context.measure(pairs), frequencies.bits(reference.captions)))


def _describe(context: KindContext) -> dict[str, Any]:
    described: dict[str, Any] = {"pairs": context.captions, "media": context.media, "reference": len(context.reference)}
    described["ambiguity"] = context.ambiguity.to_dict()
    if context.mismatch is None:  # the frames of a few videos are measured all the same
        return {**described, "pi0": None, "frame_threshold": frame_match_threshold(context.reference)}
    return {**described, **context.mismatch.to_dict()}


def _thresholds(
    pairs: dict[str, Pairs], kinds: dict[str, KindContext], frequencies: Frequencies, top: float | None
) -> dict[str, Any]:
    """Where the flags are cut: by what fits, or where a share `top` is wanted, by rank."""
    if top is None:
        return absolute_thresholds({k: c.media for k, c in kinds.items()}, {k: c.captions for k, c in kinds.items()})
    visual, text = {}, {}
    for kind, one in pairs.items():
        measured, scale = kinds[kind].measure(one), kinds[kind].ambiguity
        visual[kind] = scale.of_visual(measured)
        text[kind] = scale.of_text(measured, frequencies.bits(one.captions))
    return top_thresholds(visual, text, top)


def _keep_reference(folder: Folder, pairs: dict[str, Pairs]) -> None:
    """reference.parquet: the pairs everything was compared with, for explanations."""
    tables = []
    for one in pairs.values():
        everywhere = np.ones(len(one), dtype=bool)
        table = one.facts.append_column("visual", stored.vectors(one.visual, everywhere))
        tables.append(table.append_column("text", stored.vectors(one.text, everywhere)))
    folder.write_table("reference.parquet", pa.concat_tables(tables))


def _name_topics(folder: Folder, pairs: Sequence[Pairs], centres: Floats) -> None:
    """topics.json: the captions that tell each topic from the others."""
    topic = np.concatenate([assign_topics(one.visual, centres) for one in pairs])
    text = np.concatenate([one.text for one in pairs])
    captions = [caption for one in pairs for caption in one.captions]
    write_topics(folder, typical_captions(text, topic, captions, len(centres)))


def _fingerprint(*parts: str | bytes) -> str:
    together = hashlib.blake2b(digest_size=16)
    for part in parts:
        together.update(part.encode() if isinstance(part, str) else part)
    return together.hexdigest()
