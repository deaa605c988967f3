"""Turns stored embeddings into rows: the facts of a shard by column, unit vectors, and a status for unusable rows."""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from auditor.audit_folder.embeddings import build_part_column, build_vector_column
from auditor.corpus.corpus_files import digest, is_url, make_path_absolute
from auditor.corpus.file_names import guess_media_kind
from auditor.corpus.stored.vector_shard import ColumnRoles, StoredVectors, VectorShard, VectorStretch
from auditor.sweep.caption_facts import describe_captions
from auditor.sweep.caption_parts import iterate_sentence_ends
from auditor.vectors import Bools, Halves, Ints, PartVectors, build_media_vectors, measure_lengths

UID = r"^[0-9a-fA-F]{32}$"
HEX = r"^[0-9a-fA-F]{32,}$"
MISSING, OTHER_WIDTH, NOT_FINITE, ZERO = range(1, 5)  # why a vector is unusable
UNIT_ERROR = 2.0**-12  # less than half the distance of two float16 numbers, relative to them
SHORTEST_VECTOR = 1e-6  # length at which a vector still has a direction in float16

Codes = npt.NDArray[np.int8]
Texts = npt.NDArray[Any]  # str or None


@dataclass(frozen=True, slots=True)
class CheckedVectors:
    """Vectors of unit length, and why each is unusable; 0 for a usable vector."""

    vectors: Halves  # (N, D), zeros if unusable
    wrong: Codes  # (N,)
    widths: npt.NDArray[np.int64]

    def take(self, rows: Ints) -> "CheckedVectors":
        return CheckedVectors(self.vectors[rows], self.wrong[rows], self.widths[rows])


def check_vectors(stored: StoredVectors, dim: int) -> CheckedVectors:
    length = measure_lengths(stored.values)
    wrong = np.zeros(len(length), np.int8)
    wrong[length < SHORTEST_VECTOR] = ZERO
    wrong[~np.isfinite(length)] = NOT_FINITE
    wrong[stored.widths != dim] = OTHER_WIDTH
    wrong[stored.widths == 0] = MISSING
    usable = wrong == 0
    # Of half precision, a vector of nearly unit length would be rounded back to its own numbers.
    is_unit = (np.abs(length - 1) < UNIT_ERROR) & (stored.values.dtype == np.float16)
    others = np.flatnonzero(usable & ~is_unit)
    with np.errstate(over="ignore", invalid="ignore"):  # of unusable vectors
        vectors = stored.values.astype(np.float16)
    vectors[others] = stored.values[others].astype(np.float32) / length[others, None]
    vectors[~usable] = 0
    return CheckedVectors(vectors, wrong, stored.widths)


def build_usable_column(vectors: Halves, ok: Bools) -> pa.Array:
    return build_vector_column(vectors if ok.all() else np.where(ok[:, None], vectors, np.float16(0)), ok)


@dataclass(frozen=True, slots=True)
class RowTexts:
    """The keys, captions, uids and paths of R rows: one for each caption, or for a row of the table without any."""

    rows: Ints  # of the table, ascending
    sources: Ints  # number of the column of captions
    indices: Ints  # number of the caption in its row of the table
    keys: Texts
    occurrence: npt.NDArray[np.int64]  # 1, 2, ... for repetitions of a key
    captions: Texts  # None for a missing caption
    uids: Texts  # the corpus's own, or None
    digests: Texts  # of the media, or None
    paths: Texts  # of the media, as in the table


def read_row_texts(table: pa.Table, roles: ColumnRoles, first: int) -> RowTexts:
    """Read the texts of all rows. `first` is the number of the first row in its file: the key of rows without one."""
    keys = read_texts(table, roles.key)
    for row in np.flatnonzero(is_none(keys)):
        keys[row] = f"{first + row:09d}"
    captions = np.stack([read_texts(table, column) for column in roles.captions], axis=1)  # (N, sources)
    present = np.array([[bool(text and text.strip()) for text in texts] for texts in captions], bool)
    present = present.reshape(captions.shape)
    captions[~present] = None
    present[:, 0] |= ~present.any(axis=1)
    rows, sources = np.nonzero(present)
    indices = (np.cumsum(present, axis=1) - 1)[rows, sources]
    uids, digests = read_texts(table, roles.uid, UID)[rows], read_texts(table, roles.digest, HEX)[rows]
    uids[indices > 0] = None
    identity = keys[rows], count_earlier(keys)[rows], captions[rows, sources], uids, digests
    return RowTexts(rows, sources, indices, *identity, read_texts(table, roles.path)[rows])


def read_texts(table: pa.Table, column: str | None, pattern: str | None = None) -> Texts:
    """A text column; with a pattern, the first 32 digits of texts that match it in lower case, None for others."""
    if column is None or column not in table.column_names:
        return np.full(table.num_rows, None, object)
    values = table.column(column).cast(pa.string(), safe=False)
    if pattern is not None:
        values = pc.if_else(pc.match_substring_regex(values, pattern), values, None)
        values = pc.ascii_lower(pc.utf8_slice_codeunits(values, 0, 32))
    return np.array(values.to_pylist(), object)


def is_none(values: Texts) -> Bools:
    return np.fromiter((value is None for value in values), bool, len(values))


def count_earlier(keys: Texts) -> npt.NDArray[np.int64]:
    seen: Counter[str] = Counter()
    counts = np.zeros(len(keys), np.int64)
    for row, key in enumerate(keys):
        counts[row] = seen[key]
        seen[key] += 1
    return counts


def build_stretch_table(
    schema: pa.Schema, shard: VectorShard, table: pa.Table, texts: RowTexts, stretch: VectorStretch
) -> pa.Table:
    """The rows of the embeddings file for a stretch of the shard; `table` and `texts` are of the whole shard."""
    edges = np.searchsorted(texts.rows, [stretch.first, stretch.first + len(stretch.visual.widths)])
    rows, count = slice(*edges.tolist()), int(np.diff(edges)[0])
    table_rows, sources = texts.rows[rows], texts.sources[rows]
    visual = check_vectors(stretch.visual, shard.dim).take(table_rows - stretch.first)
    text, parts = collect_texts(stretch, table_rows - stretch.first, sources, shard.dim)
    status, message = check_rows(texts, rows, visual, text, shard.dim)
    digests = complete_digests(texts.digests[rows], visual)
    ok = status == "ok"
    paths = texts.paths[rows]
    width, height = (read_integers(table, side, table_rows) for side in (shard.roles.width, shard.roles.height))
    sides = (pc.cast(pc.if_else(pc.greater(side, 0), side, None), pa.float32()) for side in (width, height))
    columns: dict[str, Any] = {
        "uid": compute_uids(shard.name, texts, rows, digests),
        "key": texts.keys[rows],
        "caption_index": texts.indices[rows].astype(np.int32),
        "shard": np.full(count, shard.name, object),
        "kind": [(path and guess_media_kind(path.split("?")[0])) or "image" for path in paths],
        "caption": texts.captions[rows],
        "caption_source": name_sources(texts.captions[rows], sources, shard.roles.captions),
        **describe_captions(texts.captions[rows].tolist()),
        "width": width,
        "height": height,
        "aspect": pc.divide(*sides),
        "frames": pa.array(np.ones(count, np.int32), mask=~ok),
        **locate_media(paths, os.path.dirname(shard.path)),
        **({} if parts is None else describe_parts(parts, texts.captions[rows], ok)),
        "media_digest": digests,
        "status": status,
        "error_message": message,
        "visual": build_usable_column(visual.vectors, find_first_rows(table_rows, ok)),
        "text": build_usable_column(text.vectors, ok),
    }
    arrays = [pa.array(columns[f.name], f.type) if f.name in columns else pa.nulls(count, f.type) for f in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def name_sources(captions: Texts, sources: Ints, names: Sequence[str]) -> Texts:
    """The column that each caption comes from; None if the corpus has only one."""
    column: Texts = np.array(names, object)[sources]
    column[is_none(captions) | (len(names) == 1)] = None
    return column


def find_first_rows(table_rows: Ints, ok: Bools) -> Bools:
    """The first usable row of each row of the table: it holds the vector of the medium."""
    first = np.zeros(len(ok), bool)
    usable = np.flatnonzero(ok)
    first[usable[np.unique(table_rows[usable], return_index=True)[1]]] = True
    return first


def collect_texts(
    stretch: VectorStretch, table_rows: Ints, sources: Ints, dim: int
) -> tuple[CheckedVectors, PartVectors | None]:
    """The text vectors of captions, and those of their parts if a source has a list of vectors per row.

    `table_rows` and `sources` place each caption in the stretch.
    """
    if len(stretch.texts) == 1 and stretch.texts[0].parts is None:
        return check_vectors(stretch.texts[0], dim), None
    checked, parts = [], []
    for number, stored in enumerate(stretch.texts):
        rows, vectors = table_rows[sources == number], check_vectors(stored, dim)
        counts = np.zeros(len(stored.widths), np.int64) if stored.parts is None else stored.parts
        checked.append((vectors if stored.parts is None else pool_parts(vectors, counts)).take(rows))
        parts.append(PartVectors(vectors.vectors, counts).take(rows))
    order = np.argsort(np.argsort(sources, kind="stable"))  # from the order of sources to that of rows
    columns = ([getattr(part, name) for part in checked] for name in ("vectors", "wrong", "widths"))
    text = CheckedVectors(*map(np.concatenate, columns)).take(order)
    if all(stored.parts is None for stored in stretch.texts):
        return text, None
    columns = ([getattr(part, name) for part in parts] for name in ("vectors", "counts"))
    return text, PartVectors(*map(np.concatenate, columns)).take(order)


def pool_parts(parts: CheckedVectors, counts: Ints) -> CheckedVectors:
    """Captions with the normalized mean of the vectors of their parts; one unusable vector makes a caption unusable."""
    several = counts > 0
    first = (np.cumsum(counts) - counts)[several]
    vectors = np.zeros((len(counts), parts.vectors.shape[1]), np.float16)
    wrong, widths = np.full(len(counts), MISSING, np.int8), np.zeros(len(counts), np.int64)
    if several.any():
        vectors[several] = build_media_vectors(parts.vectors.astype(np.float32), counts[several], keep=False).visual
        wrong[several] = np.maximum.reduceat(parts.wrong, first)
        owner = np.repeat(np.arange(len(counts)), counts)
        widths[owner[::-1]] = parts.widths[::-1]
        odd = parts.wrong == OTHER_WIDTH
        widths[owner[odd]] = parts.widths[odd]
    return CheckedVectors(vectors, wrong, widths)


def describe_parts(parts: PartVectors, captions: Texts, ok: Bools) -> dict[str, Any]:
    """The columns of captions with several vectors, which belong to their sentences if there are as many."""
    counts = parts.counts
    several = ok & (counts > 1)
    ends = [list(iterate_sentence_ends(text)) if row else [] for text, row in zip(captions, several, strict=True)]
    fits = several & [len(places) == count for places, count in zip(ends, counts, strict=True)]
    return {
        "parts": pa.array(counts, pa.int32(), mask=~ok | (counts == 0)),
        "part_ends": [" ".join(map(str, places)) if fit else None for places, fit in zip(ends, fits, strict=True)],
        "part_embeddings": build_part_column(parts.take(np.flatnonzero(several)), several),
    }


def check_rows(
    texts: RowTexts, rows: slice, visual: CheckedVectors, text: CheckedVectors, dim: int
) -> tuple[Texts, Texts]:
    """The status and the error message of each row; a later check replaces an earlier one."""
    status = np.full(len(visual.wrong), "ok", object)
    message = np.full(len(visual.wrong), None, object)

    def mark(failed: Bools, name: str, reason: str) -> None:
        status[failed], message[failed] = name, reason

    mark(is_none(texts.captions[rows]), "missing_caption", "no caption in its row")
    for side, checked in (("text", text), ("visual", visual)):
        mark(checked.wrong == ZERO, "bad_vector", f"the {side} vector is zero")
        mark(checked.wrong == NOT_FINITE, "bad_vector", f"the {side} vector holds numbers that are not finite")
        for width in np.unique(checked.widths[checked.wrong == OTHER_WIDTH]):
            same_width = (checked.wrong == OTHER_WIDTH) & (checked.widths == width)
            mark(same_width, "bad_vector", f"the {side} vector has {width} numbers, not {dim}")
        mark(checked.wrong == MISSING, "bad_vector", f"the {side} vector is missing")
    mark(texts.occurrence[rows] > 0, "duplicate_key", "this key was seen before in this shard")
    return status, message


def complete_digests(digests: Texts, visual: CheckedVectors) -> Texts:
    """Fill missing digests with the digest of the vector: media with equal vectors count as one medium."""
    completed = digests.copy()
    for row in np.flatnonzero(is_none(digests) & (visual.wrong == 0)):
        completed[row] = digest(visual.vectors[row].tobytes())
    return completed


def compute_uids(shard: str, texts: RowTexts, rows: slice, digests: Texts) -> Texts:
    """The corpus's own uid for the first caption of the first row with a key, else a hash of position and content."""
    uids = texts.uids[rows].copy()
    uids[texts.occurrence[rows] > 0] = None
    keys, occurrence, captions = texts.keys[rows], texts.occurrence[rows], texts.captions[rows]
    indices = texts.indices[rows]
    for row in np.flatnonzero(is_none(uids)):
        number = [str(indices[row])] if indices[row] else []
        parts = [shard, keys[row], str(occurrence[row]), digests[row] or "", captions[row] or "", *number]
        uids[row] = digest("\0".join(parts).encode(errors="replace"))
    return uids


def read_integers(table: pa.Table, column: str | None, rows: Ints) -> pa.Array:
    if column is None or column not in table.column_names:
        return pa.nulls(len(rows), pa.int32())
    return table.column(column).take(rows).cast(pa.int32(), safe=False).combine_chunks()


def locate_media(paths: Texts, folder: str) -> dict[str, Any]:
    """The columns of where media are, if the path is a file; an audit never reads from the web unasked."""
    files = np.array([resolve_path(path, folder) for path in paths], object)
    missing = is_none(files)
    return {
        "media_path": files,
        "media_offset": pa.array(np.zeros(len(files), np.int64), mask=missing),
        "media_size": pa.array(np.full(len(files), -1, np.int64), mask=missing),
    }


def resolve_path(path: str | None, folder: str) -> str | None:
    """The absolute path or URL of a medium; None for an http address."""
    if not path or path.lower().startswith(("http://", "https://")):
        return None
    if path.startswith("file://"):
        return make_path_absolute(path)
    return path if is_url(path) or os.path.isabs(path) else f"{folder.rstrip('/')}/{path}"
