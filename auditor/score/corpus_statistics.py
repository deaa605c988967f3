"""The corpus-wide statistics that scoring needs, computed once from stored embeddings and passed to every scorer.

Prototypes (if no PAU head is given), a reference sample per kind, the mismatch model fitted on it, topics, the map,
caption counts and duplicates. All samples are bounded, so the cost does not grow with the corpus, except
for counting captions, which reads their hashes, and for the search for duplicates (auditor.score.duplicate_search),
which reads every vector; the engine distributes both.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from auditor.audit_folder import embeddings as stored
from auditor.audit_folder.folder import Folder
from auditor.audit_folder.side_files import write_topics
from auditor.corpus.corpus_files import digest
from auditor.schema import FACTS, SCORES
from auditor.score import example_captions
from auditor.score.calibration_groups import (
    REST,
    Calibration,
    CalibrationGroups,
    fit_groups,
    list_group_columns,
    read_candidates,
)
from auditor.score.corpus_map import CorpusMap, fit_map
from auditor.score.duplicate_search import search_duplicates
from auditor.score.pair_sample import (
    KINDS,
    EncodedPairs,
    NothingEncodedError,
    SampleRequest,
    count_encoded,
    draw_pairs,
)
from auditor.score.prototype_uncertainty import PrototypeBanks
from auditor.score.score_config import ScoreConfig
from auditor.score.shard_priors import Priors
from auditor.score.statistics.ambiguity import estimate_clip_distance
from auditor.score.statistics.competence import CompetenceMap, measure_competence
from auditor.score.statistics.mismatch import MismatchModel, fit_mismatch
from auditor.score.statistics.part_mismatch import PartModel, estimate_probabilities, fit_parts
from auditor.score.statistics.rivals import (
    PairMeasures,
    ReferenceSample,
    estimate_frame_threshold,
    measure_pairs,
)
from auditor.score.statistics.topics import assign_topics, fit_topics, select_typical_captions
from auditor.score.statistics.vague_captions import VagueCaptions, fit_vague_captions
from auditor.score.statistics.word_evidence import Vocabulary, WordFrequencies
from auditor.score.vocabulary import EncodeText, draw_captions, load_examples, load_vocabulary
from auditor.vectors import Floats, Ints
from auditor.workers.background_work import open_background
from auditor.workers.process_pool import SERIAL, Engine

if TYPE_CHECKING:
    from model.prototypes import PrototypeHead

COMMON_LANGUAGE = 0.05  # share of the captions from which a language is one of the corpus


@dataclass(frozen=True, slots=True)
class CaptionCounts:
    """Hashes of the captions that occur more than once, increasing, and their numbers of occurrences."""

    hashes: Ints
    counts: Ints

    def look_up(self, hashes: Ints) -> Ints:
        if not len(self.hashes):
            return np.ones(len(hashes), np.int64)
        position = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
        return np.where(self.hashes[position] == hashes, self.counts[position], 1)


def count_captions(folder: Folder, shards: Sequence[str], engine: Engine = SERIAL) -> CaptionCounts:
    """Count captions by their 64-bit hashes, which takes 17 bytes per row while they are sorted."""
    parts = list(engine.each(partial(_read_hashes, folder), shards))
    return count_hashes(np.concatenate([np.zeros(0, np.int64), *parts]))


def count_hashes(hashes: Ints) -> CaptionCounts:
    """Sort in place: for a billion rows, every copy would take eight gigabytes."""
    hashes.sort()
    repeats = hashes[1:][hashes[1:] == hashes[:-1]]
    values, counts = np.unique(repeats, return_counts=True)
    return CaptionCounts(values, counts + 1)


def _read_hashes(folder: Folder, shard: str) -> Ints:
    table = folder.read_table(stored.name_embeddings_file(shard), ["caption_hash", "status"])
    usable = table.filter(pc.and_(pc.equal(table["status"], "ok"), pc.is_valid(table["caption_hash"])))
    return np.asarray(usable["caption_hash"].to_numpy(), np.int64)


@dataclass(frozen=True)
class KindContext:
    """The statistics of one kind of medium."""

    reference: ReferenceSample
    competence: CompetenceMap
    calibration: CalibrationGroups
    media: int
    captions: int
    measure: Callable[..., PairMeasures]  # of pairs of this kind against the reference, or against another one
    parts: dict[str, PartModel]  # by calibration; those with enough captions of several parts
    clip_distance: float | None  # mean distance of frames of different clips

    @property
    def columns(self) -> list[str]:
        """The columns that decide how a pair is judged."""
        names = [*self.competence.list_blind_columns(), self.calibration.column]
        return list(dict.fromkeys(filter(None, names)))

    def to_dict(self) -> dict[str, Any]:
        """The statistics for the manifest."""
        counts: dict[str, float] = {"pairs": self.captions, "media": self.media, "reference": len(self.reference)}
        counts |= {} if self.reference.temperature is None else {"temperature": self.reference.temperature}
        if self.calibration.mismatch is not None:
            model = self.calibration.mismatch.to_dict()
        else:  # frames are measured even if there are too few videos for a model
            model = {"pi0": None, "frame_threshold": estimate_frame_threshold(self.reference)}
        if self.parts:
            model["parts"] = {name: part.to_dict() for name, part in self.parts.items()}
        return {**counts, "clip_distance": self.clip_distance, "competence": self.competence.to_dict(), **model}


@dataclass(frozen=True)
class ScoreContext:
    """Everything that `score_shard` needs besides the shard; picklable, so that a cluster can broadcast it."""

    head: PrototypeBanks
    kinds: dict[str, KindContext]
    frequencies: WordFrequencies
    words: int | None  # size of the vocabulary; None if there was no text encoder for it
    vague: VagueCaptions | None  # None without a text encoder that can tell vague captions from clear ones
    topics: Floats  # (T, D)
    map: CorpusMap
    captions: CaptionCounts
    image_size: int | None  # pixels of the side of the pictures that the encoder sees
    duplicates: dict[str, float | None] = field(default_factory=dict)  # how many media repeat another, and the rule
    priors: Priors = field(default_factory=dict)  # of shards with an unusually high share of mismatches

    @cached_property
    def statistics(self) -> dict[str, Any]:
        """The statistics of each kind for the manifest."""
        return {kind: context.to_dict() for kind, context in self.kinds.items()}

    @property
    def excess(self) -> dict[tuple[str, str | None], float]:
        """The excess of the calibration groups that have one, by kind and group."""
        groups = (
            (kind, group) for kind, context in self.kinds.items() for group in context.calibration.calibrations.items()
        )
        return {(kind, name or None): part.excess for kind, (name, part) in groups if part.excess}

    @cached_property
    def fingerprint(self) -> str:
        """Equal for contexts that give the same scores, apart from priors."""
        arrays = (self.topics, self.captions.hashes, self.captions.counts)
        parts = [self.head.fingerprint, self.map.fingerprint, *(digest(array.data) for array in arrays)]
        parts += [digest(self.vague.weights.data)] if self.vague is not None else []
        counts = sorted(self.frequencies.counts.items())
        return digest(repr((SCORES, parts, sorted(self.statistics.items()), counts)).encode())


def prepare_context(
    folder: Folder,
    shards: Sequence[str],
    head: "PrototypeHead | None",
    model: Mapping[str, Any],
    config: ScoreConfig,
    *,
    encode: EncodeText | None = None,
    keep: bool = True,
    engine: Engine = SERIAL,
) -> ScoreContext:
    """Compute the statistics from embeddings/*.parquet; `keep` writes samples and duplicates into the audit.

    `model` describes the encoder as the manifest does, and `encode` encodes words with its text encoder.
    """
    from auditor.score import fit_audit  # it imports torch, which processes that only score do not need

    scale, fingerprint = model["logit_scale"], model.get("fingerprint", "")
    counts = count_encoded(folder, shards, engine)
    requests = [SampleRequest(kind, config.reference) for kind in KINDS]
    if head is None:
        requests += fit_audit.request_fit_pairs(config.fit_pairs)
    carried = list_group_columns(folder, config.calibrate_by)
    samples = draw_pairs(folder, counts, requests, config.seed, engine, carried)
    by_kind = {kind: pairs for kind, pairs in zip(KINDS, samples, strict=False) if pairs is not None}
    if not by_kind:
        raise NothingEncodedError("no pair of this corpus could be encoded, so there is nothing to score")
    with open_background(engine) as (threads, stoppable):  # what does not depend on each other uses several cores
        fit_head = partial(fit_audit.fit_sampled_prototypes, samples[len(KINDS) :], config, scale)
        fitting = threads.submit(fit_head) if head is None else None
        del samples, fit_head  # the samples for the prototypes are large
        frequencies = WordFrequencies.count(draw_captions(folder, counts, config.seed, engine))
        caption_counts = count_captions(folder, shards, engine)
        searching = threads.submit(search_duplicates, folder, counts, config, engine=stoppable) if keep else None
        informative_words = frequencies.informative_words()
        vocabulary = load_vocabulary(folder, informative_words, fingerprint, encode, keep=keep)
        kinds = {}
        for kind, pairs in by_kind.items():
            captions, media = sum(count.pairs[kind] for count in counts), sum(count.media[kind] for count in counts)
            kinds[kind] = _fit_kind(pairs, captions, media, scale, vocabulary, config)
        vague = _fit_vague_captions(list(by_kind.values()), load_examples(folder, fingerprint, encode, keep=keep))
        topics = fit_topics(np.concatenate([pairs.visual for pairs in by_kind.values()]), config.topics, config.seed)
        corpus_map = fit_map(folder, list(by_kind.values()), config.seed, keep=keep)
        if keep:
            _write_reference(folder, by_kind)
            _write_typical_captions(folder, list(by_kind.values()), topics)
        duplicates = searching.result() if searching else {}
        head = fitting.result() if fitting else head
    words = len(vocabulary.names) if vocabulary else None if informative_words else 0
    size = min(model["pixels"]["size"]) if model.get("pixels") else None
    assert head is not None
    banks = fit_audit.extract_banks(head)
    return ScoreContext(banks, kinds, frequencies, words, vague, topics, corpus_map, caption_counts, size, duplicates)


def _fit_kind(
    pairs: EncodedPairs,
    captions: int,
    media: int,
    scale: float,
    vocabulary: Vocabulary | None,
    config: ScoreConfig,
) -> KindContext:
    reference = ReferenceSample(
        pairs.media,
        pairs.text,
        pairs.group,
        pairs.captions,
        pairs.siblings,
        scale=scale,
        temperature=config.temperature,
    )
    columns = read_candidates(pairs.facts, config.calibrate_by)
    competence = measure_competence(reference, config.seed, columns)
    rows = np.flatnonzero(competence.find_judged(reference, columns))
    judged_pairs = competence.keep_judged(reference, rows)

    def fit(sample: ReferenceSample) -> MismatchModel | None:
        coverage = captions * len(sample) // len(pairs)
        return fit_mismatch(sample, seed=config.seed, captions=coverage, words=vocabulary)

    judged_columns = {name: [values[row] for row in rows] for name, values in columns.items()}
    calibration = fit_groups(judged_pairs, judged_columns, config.calibrate_by, fit, config.seed)
    mismatch = calibration.mismatch
    if competence.corpus is None and mismatch is not None and not mismatch.pairs_stand_out:
        mismatch = None  # all pairs are wrong, or the encoder is blind: too few captions to decide
        calibration = CalibrationGroups({REST: Calibration(None, judged_pairs)}, None)
    threshold = mismatch.frame_threshold if mismatch else None
    return KindContext(
        reference,
        competence,
        calibration,
        media,
        captions,
        partial(measure_pairs, reference=reference, media=media, captions=captions, frame_threshold=threshold),
        _fit_parts(pairs, judged_pairs, rows, calibration, captions, config.seed),
        estimate_clip_distance(reference.media),
    )


def _fit_parts(
    pairs: EncodedPairs,
    judged_pairs: ReferenceSample,
    rows: Ints,
    calibration: CalibrationGroups,
    captions: int,
    seed: int,
) -> dict[str, PartModel]:
    """Fit the statistic of the parts of each calibration, if captions have several; they are judged as they will be."""
    models: dict[str, PartModel] = {}
    if pairs.parts is None:
        return models
    group = calibration.assign(pairs.facts)[rows]
    for name, own in calibration.calibrations.items():
        places = np.flatnonzero(group == name)
        if own.mismatch is None or own.mismatch.statistic is None or not len(places):
            continue
        sample = judged_pairs.take(places) if len(places) < len(rows) else judged_pairs
        p = estimate_probabilities(own.mismatch, own.prepare(sample), own.reference)
        count = captions * len(places) // len(pairs)
        if model := fit_parts(sample, pairs.parts.take(rows[places]), p, seed=seed, captions=count):
            models[name] = model
    return models


def _fit_vague_captions(samples: Sequence[EncodedPairs], examples: Mapping[str, Floats]) -> VagueCaptions | None:
    """Fit the recognition of vague captions; sentences in a language of the corpus are no example of foreign ones."""
    if not examples:
        return None
    languages = [code for pairs in samples for code in pairs.facts["language"].to_pylist()]
    common = {code for code in set(languages) if languages.count(code) >= COMMON_LANGUAGE * len(languages)}
    kinds = example_captions.group_examples(common)
    vectors = {kind: np.stack([examples[caption] for caption in captions]) for kind, captions in kinds.items()}
    return fit_vague_captions(np.concatenate([pairs.text for pairs in samples]), vectors.pop("vague"), vectors)


def _write_reference(folder: Folder, pairs: dict[str, EncodedPairs]) -> None:
    """Write reference.parquet: the pairs that all others are compared with, for explanations."""
    tables = []
    for sample in pairs.values():
        valid = np.ones(len(sample), dtype=bool)
        facts = sample.facts.select(FACTS)
        table = facts.append_column("visual", stored.build_nullable_vectors(sample.visual, valid))
        tables.append(table.append_column("text", stored.build_nullable_vectors(sample.text, valid)))
    folder.write_table("reference.parquet", pa.concat_tables(tables))


def _write_typical_captions(folder: Folder, pairs: Sequence[EncodedPairs], centroids: Floats) -> None:
    """Write the captions that distinguish each topic from the others."""
    topics = np.concatenate([assign_topics(sample.visual, centroids) for sample in pairs])
    text = np.concatenate([sample.text for sample in pairs])
    captions = [caption for sample in pairs for caption in sample.captions]
    write_topics(folder, select_typical_captions(text, topics, captions, len(centroids)))
