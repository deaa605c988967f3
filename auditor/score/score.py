"""Scoring a shard: samples/<shard>.parquet from embeddings/<shard>.parquet and the corpus-wide statistics.

A function of the shard's embeddings and the context alone: it reads no medium, runs anywhere, and gives the same rows
on every machine, to about the seventh digit: BLAS sums in a different order with a different number of threads.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from auditor.audit_folder import arrow_schema
from auditor.audit_folder.embeddings import find_medium_starts, name_embeddings_file, read_embeddings
from auditor.audit_folder.folder import Folder
from auditor.schema import FACTS, NO_CAPTIONS
from auditor.schema.caption_spans import format_numbers
from auditor.score.calibration_groups import REST, read_columns
from auditor.score.caption_times import score_times
from auditor.score.corpus_statistics import KindContext, ScoreContext
from auditor.score.duplicate_search import duplicates_file, read_duplicates
from auditor.score.pair_sample import KINDS, EncodedPairs, append_carried_columns, select_pairs
from auditor.score.shard_priors import shift_log_odds
from auditor.score.statistics.ambiguity import (
    combine_evidence,
    grade_captions,
    grade_media,
    measure_frame_distance,
)
from auditor.score.statistics.mismatch import MismatchModel
from auditor.score.statistics.mismatch_statistic import (
    RIVAL_EVIDENCE,
    WORD_EVIDENCE,
    MismatchStatistic,
    gather_evidence,
)
from auditor.score.statistics.part_mismatch import PartModel, judge_captions
from auditor.score.statistics.rivals import PairMeasures
from auditor.score.statistics.topics import assign_topics
from auditor.vectors import Bools, Floats, Ints, PartVectors

Columns = dict[str, Any]
MEASURE_COLUMNS = {field.name for field in fields(PairMeasures)} & set(arrow_schema.SCORES.names)


def samples_file(shard: str) -> str:
    return f"samples/{shard}.parquet"


def is_scored(folder: Folder, shard: str, context: ScoreContext) -> bool:
    """Whether the shard's samples were computed from these embeddings and this context."""
    name = samples_file(shard)
    if folder.table_metadata(name).get("score") != _fingerprint_scores(folder, shard, context):
        return False
    return not folder.local or folder.is_sound(name) is not False


def _fingerprint_scores(folder: Folder, shard: str, context: ScoreContext) -> str:
    swept = folder.table_metadata(name_embeddings_file(shard))
    repeats = folder.table_metadata(duplicates_file(shard)).get("mark", "")
    prior = f"-{context.priors[shard]}" if shard in context.priors else ""
    return f"{swept.get('fingerprint')}-{swept.get('settings')}-{context.fingerprint}-{repeats}{prior}"


def score_if_needed(folder: Folder, context: ScoreContext, shard: str) -> tuple[str, int, str]:
    """Score a shard if it is not scored yet; return its name, its new rows and an empty failure."""
    return shard, 0 if is_scored(folder, shard, context) else score_shard(folder, shard, context), ""


def score_shard(folder: Folder, shard: str, context: ScoreContext) -> int:
    """Score one shard, write its samples and return the number of rows."""
    embeddings = read_embeddings(folder, shard)
    repeats = read_duplicates(folder, shard)
    parts: list[tuple[Ints, Columns]] = []
    for kind in KINDS:
        pairs = select_pairs(embeddings, kind)
        if len(pairs):
            carried = [name for name in context.kinds[kind].columns if name not in FACTS]
            pairs = append_carried_columns(folder, shard, pairs, carried)
            columns = score_pairs(pairs, context.kinds[kind], context, context.priors.get(shard, 0.0))
            parts.append((pairs.rows, {**columns, "duplicate_of": _duplicate_of(pairs, repeats)}))
            parts += score_times(embeddings, pairs) if kind == "video" else []
    rows: int = embeddings.facts.num_rows
    arrays = [
        build_column(f, [(places, columns[f.name]) for places, columns in parts if f.name in columns], rows)
        for f in arrow_schema.SCORES
    ]
    table = pa.Table.from_arrays([*embeddings.facts.columns, *arrays], schema=arrow_schema.SAMPLES)
    folder.write_table(
        samples_file(shard), table, {"score": _fingerprint_scores(folder, shard, context)}, arrow_schema.STORAGE
    )
    return rows


def build_column(field: pa.Field, parts: Sequence[tuple[Ints, Any]], rows: int) -> pa.Array:
    """A column of `rows` rows with the values of the parts in their rows and null elsewhere, also for NaN."""
    values = np.full(rows, None, object) if pa.types.is_string(field.type) else np.full(rows, np.nan)
    for places, part in parts:
        values[places] = part
    return pa.array(values, from_pandas=True).cast(field.type)


def score_pairs(pairs: EncodedPairs, kind: KindContext, context: ScoreContext, shift: float = 0.0) -> Columns:
    """The scores of encoded pairs of one kind, by column; `shift` is the shard's shift of the log odds of p."""
    measures = kind.measure(pairs)
    is_judged = kind.competence.find_judged(pairs, read_columns(pairs.facts, kind.competence.list_blind_columns()))
    is_readable = is_judged | kind.competence.is_readable_language(pairs.facts["language"].to_pylist())
    bits = context.frequencies.bits(pairs.captions)
    share = context.frequencies.share(pairs.captions, bits)
    uncertainty_visual = context.head.measure_media(pairs.media)
    uncertainty_text = context.head.measure_captions(pairs.text)
    columns: Columns = {
        **{name: values for name in MEASURE_COLUMNS if (values := getattr(measures, name)) is not None},
        "uncertainty_visual": uncertainty_visual,
        "uncertainty_text": uncertainty_text,
        "ambiguity_visual": combine_evidence(
            uncertainty_visual, _grade_media(pairs, kind, context, measures, is_judged)
        ),
        "ambiguity_text": combine_evidence(
            uncertainty_text, _grade_captions(pairs, kind, context, measures, share, is_readable)
        ),
        "caption_bits": bits,
        "caption_share": share,
        "caption_count": context.captions.look_up(pairs.facts["caption_hash"].to_numpy()),
        "topic": assign_topics(pairs.visual, context.topics),
        **context.map.place(pairs),
    }
    if measures.best_frame is not None:
        columns["best_frame_time"] = [t[i] for t, i in zip(pairs.times, measures.best_frame, strict=True)]
    columns |= _judge_pairs(pairs, kind, measures, is_judged, shift)
    return columns if pairs.parts is None else columns | _part_columns(pairs, kind, columns)


def _grade_media(
    pairs: EncodedPairs, kind: KindContext, context: ScoreContext, measures: PairMeasures, is_judged: Bools
) -> list[Floats]:
    contrast, sharpness = (
        pairs.facts[name].to_numpy(zero_copy_only=False).astype(np.float32) for name in ("contrast", "sharpness")
    )
    scenes = measure_frame_distance(pairs.media) / np.float32(kind.clip_distance) if kind.clip_distance else None
    matches = measures.matches_visual
    return grade_media(matches, kind.captions, contrast, sharpness, context.image_size, scenes, is_judged)


def _grade_captions(
    pairs: EncodedPairs,
    kind: KindContext,
    context: ScoreContext,
    measures: PairMeasures,
    word_share: Floats,
    is_readable: Bools,
) -> list[Floats]:
    """A file name or a URL says nothing either, but that is another defect (`looks_like`)."""
    is_caption = ~pc.is_in(pairs.facts["looks_like"], pa.array(NO_CAPTIONS)).to_numpy()
    words = pairs.facts["words"].to_numpy(zero_copy_only=False).astype(np.float32)
    vagueness = context.vague.measure(pairs.text, words) if context.vague is not None else None
    captions = sum(other.captions for other in context.kinds.values())
    return grade_captions(measures.matches_text, kind.media, word_share, captions, vagueness, is_readable & is_caption)


def _judge_pairs(
    pairs: EncodedPairs, kind: KindContext, measures: PairMeasures, is_judged: Bools, shift: float
) -> Columns:
    """The columns about mismatches, empty for pairs that the encoder cannot judge, and why they are empty."""
    group = kind.calibration.assign(pairs.facts)
    reason = np.full(len(pairs), None, object)
    reason[~is_judged] = "blind_encoder"
    parts: list[tuple[Ints, Columns]] = []
    for name, calibration in kind.calibration.calibrations.items():
        rows, model = np.flatnonzero(is_judged & (group == name)), calibration.mismatch
        if model is None or model.statistic is None:
            reason[rows] = "too_few_pairs"
        elif len(rows):
            chosen = calibration.prepare(kind.competence.keep_judged(pairs, rows))
            is_whole = len(calibration.reference) == len(kind.reference) and len(rows) == len(pairs)
            compared = measures if is_whole else kind.measure(chosen, reference=calibration.reference)
            excess_shift = max(0.0, shift - calibration.excess)
            parts.append((rows, _mismatch_columns(chosen, model, model.statistic, compared, excess_shift)))
    group[~is_judged | (group == REST)] = None
    return {"no_estimate": reason, "calibration_group": group, **_spread(parts, len(pairs))}


def _spread(parts: Sequence[tuple[Ints, Columns]], count: int) -> Columns:
    """Values of parts of the rows as columns of `count` rows, empty elsewhere."""
    if len(parts) == 1 and len(parts[0][0]) == count:
        return parts[0][1]
    columns: Columns = {}
    for rows, part in parts:
        for name, values in part.items():
            if name not in columns:
                columns[name] = np.full(count, None, object) if isinstance(values, list) else np.full(count, np.nan)
            columns[name][rows] = values
    return columns


def _mismatch_columns(
    pairs: EncodedPairs, model: MismatchModel, statistic: MismatchStatistic, measures: PairMeasures, shift: float
) -> Columns:
    """p_mismatch and its evidence, in standard deviations above random re-pairings; NaN if evidence is missing."""
    parts, weakest = gather_evidence(statistic, pairs, measures)
    score, z = statistic.score(parts), statistic.standardize(parts)
    if shift:  # the score moves, so that p remains a function of it
        p = model.p(score)
        shifted = shift_log_odds(p, shift)
        score = np.where(shifted == p, score, model.score_of(shifted)).astype(np.float32)
    columns: Columns = {"mismatch_score": score, "p_mismatch": model.p(score)}
    columns["rival_evidence"] = statistic.weigh(parts, RIVAL_EVIDENCE)
    if "neighbours" in z:
        columns["neighbour_agreement"] = z["neighbours"]
    if "siblings" in z and pairs.siblings is not None:
        has_siblings = np.isin(np.arange(len(pairs)), pairs.siblings.owner)
        columns["sibling_agreement"] = np.where(has_siblings, z["siblings"], np.nan)
    if statistic.words is not None and weakest is not None:
        columns["word_support"], columns["word_evidence"] = weakest.support, statistic.weigh(parts, WORD_EVIDENCE)
        columns["weakest_word"] = [statistic.words.names[row] if row >= 0 else None for row in weakest.word.tolist()]
    return columns


def _part_columns(pairs: EncodedPairs, kind: KindContext, columns: Columns) -> Columns:
    """The columns about the parts of captions that have several, by the calibration of each pair."""
    p = np.asarray(columns.get("p_mismatch", np.full(len(pairs), np.nan)), np.float32)
    group = kind.calibration.assign(pairs.facts)
    judged_parts: list[tuple[Ints, Columns]] = []
    for name in kind.calibration.calibrations:
        rows = np.flatnonzero(group == name)
        chosen = pairs if len(rows) == len(pairs) else pairs.take(rows)
        if chosen.parts is not None and len(rows):
            judged_parts.append((rows, _judge_parts(chosen, chosen.parts, p[rows], kind.parts.get(name))))
    return _spread(judged_parts, len(pairs))


def _judge_parts(pairs: EncodedPairs, parts: PartVectors, p: Floats, model: PartModel | None) -> Columns:
    scores = judge_captions(pairs, parts, p, model)
    by_caption = np.split(scores.p_of_parts, np.cumsum(parts.counts)[:-1])
    texts = [None if np.isnan(p) else format_numbers(values) for p, values in zip(scores.p, by_caption, strict=True)]
    return {
        "weakest_part": scores.weakest,
        "part_similarity": scores.similarity,
        "part_probabilities": texts,
        "p_part_mismatch": scores.p,
    }


def _duplicate_of(pairs: EncodedPairs, repeats: Mapping[str, str]) -> list[str | None]:
    """The row that each row repeats: its medium copies that row's medium, or its caption equals that caption.

    Media are looked up by the uid of their first row.
    """
    columns = [pairs.facts.column(name).to_pylist() for name in ("uid", "caption")]
    repeated_medium: str | None = None
    captions: dict[str, str] = {}  # caption of the medium -> uid of the first row with it
    duplicates = []
    for uid, caption, is_first in zip(*columns, find_medium_starts(pairs.facts), strict=True):
        if is_first:
            repeated_medium, captions = repeats.get(uid), {}
        first_uid = captions.setdefault(caption, uid)
        duplicates.append(repeated_medium or (first_uid if first_uid != uid else None))
    return duplicates
