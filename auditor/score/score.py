"""The cheap pass: samples/<shard>.parquet from embeddings/<shard>.parquet and the corpus-wide numbers.

A function of the shard's embeddings and the context alone: it touches no medium, runs anywhere, and gives the same
rows wherever it runs, to about the seventh digit: BLAS sums in another order with another number of threads.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

from auditor.audit_folder import arrow_schema
from auditor.audit_folder.embeddings import begins_medium, file_name, read_embeddings
from auditor.audit_folder.folder import Folder
from auditor.score.caption_times import time_scores
from auditor.score.corpus_statistics import Context, KindContext
from auditor.score.duplicate_search import duplicates_name, read_duplicates
from auditor.score.pair_sample import KINDS, Pairs, pairs_of_kind
from auditor.score.shard_priors import sharpened
from auditor.score.statistics.mismatch import MismatchModel
from auditor.score.statistics.mismatch_statistic import Judge, gather
from auditor.score.statistics.rivals import Measures
from auditor.score.statistics.topics import assign_topics

Columns = dict[str, Any]


def samples_name(shard: str) -> str:
    return f"samples/{shard}.parquet"


def is_scored(folder: Folder, shard: str, context: Context) -> bool:
    """Whether the shard's samples were made from these embeddings and this context."""
    name = samples_name(shard)
    if folder.table_metadata(name).get("score") != _mark(folder, shard, context):
        return False
    return not folder.local or folder.is_sound(name) is not False


def _mark(folder: Folder, shard: str, context: Context) -> str:
    swept = folder.table_metadata(file_name(shard))
    repeats = folder.table_metadata(duplicates_name(shard)).get("mark", "")
    prior = f"-{context.priors[shard]}" if shard in context.priors else ""
    return f"{swept.get('fingerprint')}-{swept.get('settings')}-{context.fingerprint}-{repeats}{prior}"


def score_shard(folder: Folder, shard: str, context: Context) -> int:
    """Score one shard and write its samples; returns the number of rows."""
    embeddings = read_embeddings(folder, shard)
    repeats = read_duplicates(folder, shard)
    parts: list[tuple[npt.NDArray[np.int64], Columns]] = []
    for kind in KINDS:
        pairs = pairs_of_kind(embeddings, kind)
        if len(pairs):
            columns = score_pairs(pairs, context.kinds[kind], context, context.priors.get(shard, 0.0))
            parts.append((pairs.rows, {**columns, "duplicate_of": _duplicate_of(pairs, repeats)}))
            parts += time_scores(embeddings, pairs) if kind == "video" else []
    rows: int = embeddings.facts.num_rows
    arrays = [
        scatter(field, [(at, found[field.name]) for at, found in parts if field.name in found], rows)
        for field in arrow_schema.SCORES
    ]
    table = pa.Table.from_arrays([*embeddings.facts.columns, *arrays], schema=arrow_schema.SAMPLES)
    folder.write_table(samples_name(shard), table, {"score": _mark(folder, shard, context)}, arrow_schema.STORAGE)
    return rows


def scatter(field: pa.Field, parts: Sequence[tuple[npt.NDArray[np.int64], Any]], rows: int) -> pa.Array:
    """A column of `rows` rows with the values of the parts at their places and null everywhere else."""
    text = pa.types.is_string(field.type)
    values = np.full(rows, None, object) if text else np.zeros(rows, field.type.to_pandas_dtype())
    absent = np.ones(rows, dtype=bool)
    for at, found in parts:
        values[at] = found
        absent[at] = False if text else _missing(found)
    return pa.array(values, field.type) if text else pa.array(values, field.type, mask=absent)


def _missing(found: Any) -> npt.NDArray[np.bool_]:
    """Which numbers are no numbers: there is nothing to say of these rows."""
    values = np.asarray(found)
    return np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), dtype=bool)


def score_pairs(pairs: Pairs, kind: KindContext, context: Context, shift: float = 0.0) -> Columns:
    """The scores of encoded pairs of one kind, by column; `shift` is what their shard adds to the log-odds of p."""
    measured = kind.measure(pairs)
    captions = pairs.captions
    bits = context.frequencies.bits(captions)
    with torch.inference_mode():
        uncertainty_visual = context.head.uncertainty_visual(torch.from_numpy(pairs.visual)).numpy()
        uncertainty_text = context.head.uncertainty_text(torch.from_numpy(pairs.text)).numpy()
    columns: Columns = {
        "similarity": measured.similarity,
        "similarity_normalised": measured.similarity_normalised,
        "uncertainty_visual": uncertainty_visual,
        "uncertainty_text": uncertainty_text,
        "mean_similarity_visual": measured.mean_similarity_visual,
        "mean_similarity_text": measured.mean_similarity_text,
        "matches_visual": measured.matches_visual,
        "matches_text": measured.matches_text,
        "ambiguity_visual": kind.ambiguity.of_visual(measured),
        "ambiguity_text": kind.ambiguity.of_text(measured, bits),
        "caption_bits": bits,
        "caption_share": context.frequencies.share(captions, bits),
        "rival_margin": measured.rival_margin,
        "topic": assign_topics(pairs.visual, context.topics),
        **context.map.place(pairs),
    }
    if not (hashes := pairs.facts.column("caption_hash")).null_count:  # else the audit is older than it
        columns["caption_count"] = context.captions.of(hashes.to_numpy())
    if kind.mismatch is not None and kind.mismatch.judge is not None:
        columns |= _judged(pairs, kind.mismatch, kind.mismatch.judge, measured, shift)
    if measured.best_frame is not None:
        columns["best_frame"] = measured.best_frame
        columns["best_frame_time"] = [t[i] for t, i in zip(pairs.times, measured.best_frame, strict=True)]
        columns["frame_spread"] = measured.frame_spread
        columns["frame_match_share"] = measured.frame_match_share
    return columns


def _judged(pairs: Pairs, model: MismatchModel, judge: Judge, measured: Measures, shift: float) -> Columns:
    """p_mismatch and what it rests on, in deviations above random re-pairings; NaN where there is no evidence."""
    evidence = gather(judge, pairs.reference(0.0), measured)
    score = judge.score(evidence.parts)
    z = judge.standardised(evidence.parts)
    if shift:  # the score moves, so that p stays a function of it
        p = model.p(score)
        new = sharpened(p, shift)
        score = np.where(new == p, score, model.score_of(new)).astype(np.float32)
    columns: Columns = {"mismatch_score": score, "p_mismatch": model.p(score)}
    if "neighbours" in z:
        columns["neighbour_agreement"] = z["neighbours"]
    if "siblings" in z:
        columns["sibling_agreement"] = np.where(_has_siblings(pairs), z["siblings"], np.float32(np.nan))
    if judge.words is not None and evidence.weakest is not None:
        names = judge.words.names
        columns["word_support"] = evidence.weakest.support
        columns["weakest_word"] = [names[row] if row >= 0 else None for row in evidence.weakest.word.tolist()]
    return columns


def _has_siblings(pairs: Pairs) -> npt.NDArray[np.bool_]:
    there = np.zeros(len(pairs), dtype=bool)
    if pairs.siblings is not None:
        there[pairs.siblings.owner] = True
    return there


def _duplicate_of(pairs: Pairs, repeats: Mapping[str, str]) -> list[str | None]:
    """What a row repeats: the medium of which its medium is a copy, or an equal caption of its own medium.

    Media are looked up by the uid of their first row.
    """
    columns = [pairs.facts.column(name).to_pylist() for name in ("uid", "caption")]
    of_medium: str | None = None
    captions: dict[str, str] = {}  # of the medium -> uid of the first row
    found = []
    for uid, caption, is_first in zip(*columns, begins_medium(pairs.facts), strict=True):
        if is_first:
            of_medium, captions = repeats.get(uid), {}
        earlier = captions.setdefault(caption, uid)
        found.append(of_medium or (earlier if earlier != uid else None))
    return found
