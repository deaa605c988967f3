"""Rows of stored embeddings: the facts of a shard by columns, unit vectors, and a status where one is unusable."""

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from auditor.audit_folder import arrow_schema
from auditor.audit_folder.embeddings import vector_column
from auditor.corpus import remote_files
from auditor.corpus.file_names import kind_of
from auditor.corpus.stored.vector_shard import Roles, Vectors, VectorShard
from auditor.sweep.caption_facts import facts_by_column
from auditor.sweep.sample_rows import digest
from auditor.vectors import Bools

UID = r"^[0-9a-fA-F]{32}$"
HEX = r"^[0-9a-fA-F]{32,}$"
MISSING, OTHER_WIDTH, NOT_FINITE, ZERO = range(1, 5)  # what can be wrong with a vector
SMALLEST = 1e-6  # length of a vector that still has a direction in float16

Codes = npt.NDArray[np.int8]
Halves = npt.NDArray[np.float16]
Texts = npt.NDArray[Any]  # of str or None


@dataclass(frozen=True, slots=True)
class Checked:
    """Vectors of unit length, and what is wrong with each: 0 where it can be used."""

    vectors: Halves  # (N, D), anything where it cannot
    wrong: Codes  # (N,)
    widths: npt.NDArray[np.int64]


def check_vectors(given: Vectors, dim: int) -> Checked:
    values = given.values.astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        length = np.sqrt(np.einsum("nd,nd->n", values, values))
    wrong = np.zeros(len(values), np.int8)
    wrong[length < SMALLEST] = ZERO
    wrong[~np.isfinite(length)] = NOT_FINITE
    wrong[given.widths != dim] = OTHER_WIDTH
    wrong[given.widths == 0] = MISSING
    usable = wrong == 0
    values /= np.where(usable, length, 1)[:, None]
    values[~usable] = 0
    return Checked(values.astype(np.float16), wrong, given.widths)


def usable_vectors(vectors: Halves, ok: Bools) -> pa.Array:
    """As a column, null in the rows that cannot be used."""
    return vector_column(vectors if ok.all() else np.where(ok[:, None], vectors, np.float16(0)), ok)


@dataclass(frozen=True, slots=True)
class Named:
    """What the table alone says of the rows of a shard."""

    keys: Texts
    occurrence: npt.NDArray[np.int64]  # 1, 2, ... for repetitions of a key
    captions: Texts  # None where there is none
    uids: Texts  # the corpus's own, None where it has none
    digests: Texts  # of the media, None where unknown
    paths: Texts  # of the media, as they are given


def name_rows(table: pa.Table, roles: Roles, first: int) -> Named:
    """`first` is the number of the first row in its file: the key of rows that have no other."""
    keys = texts(table, roles.key)
    for row in np.flatnonzero(absent(keys)):
        keys[row] = f"{first + row:09d}"
    captions = texts(table, roles.caption)
    empty = np.array([caption is None or not caption.strip() for caption in captions], bool)
    captions[empty] = None
    uids, digests = hexadecimal(table, roles.uid, UID), hexadecimal(table, roles.digest, HEX)
    return Named(keys, occurrences(keys), captions, uids, digests, texts(table, roles.path))


def texts(table: pa.Table, column: str | None) -> Texts:
    return as_objects(text_column(table, column))


def text_column(table: pa.Table, column: str | None) -> pa.ChunkedArray | pa.Array:
    if column is None or column not in table.column_names:
        return pa.nulls(table.num_rows, pa.string())
    return table.column(column).cast(pa.string(), safe=False)


def as_objects(values: pa.ChunkedArray | pa.Array) -> Texts:
    return np.array(values.to_pylist(), object).reshape(-1)


def absent(values: Texts) -> Bools:
    return np.fromiter((value is None for value in values), bool, len(values))


def hexadecimal(table: pa.Table, column: str | None, pattern: str) -> Texts:
    """The first 32 digits in lower case; None in place of what does not have the form."""
    found = text_column(table, column)
    digits = pc.if_else(pc.match_substring_regex(found, pattern), found, None)
    return as_objects(pc.ascii_lower(pc.utf8_slice_codeunits(digits, 0, 32)))


def occurrences(keys: Texts) -> npt.NDArray[np.int64]:
    """How often each key came before."""
    found = np.zeros(len(keys), np.int64)
    if len(set(keys)) == len(keys):
        return found
    seen: dict[str, int] = {}
    for place, key in enumerate(keys):
        found[place] = seen.get(key, 0)
        seen[key] = int(found[place]) + 1
    return found


def piece_table(
    shard: VectorShard, table: pa.Table, named: Named, rows: slice, visual: Checked, text: Checked
) -> tuple[pa.Table, Bools]:
    """The facts of some rows of a shard, and which of them can be used."""
    count = len(visual.wrong)
    status, message = statuses(named, rows, visual, text, shard.dim)
    digests = media_digests(named.digests[rows], visual)
    ok = status == "ok"
    width, height = (whole_numbers(table, side, rows) for side in (shard.roles.width, shard.roles.height))
    columns: dict[str, Any] = {
        "uid": row_uids(shard.name, named, rows, digests),
        "key": named.keys[rows],
        "caption_index": np.zeros(count, np.int32),
        "shard": np.full(count, shard.name, object),
        "kind": kinds(named.paths[rows]),
        "caption": named.captions[rows],
        **facts_by_column(named.captions[rows].tolist()),
        "width": width,
        "height": height,
        "aspect": aspects(width, height),
        "frames": pa.array(np.ones(count, np.int32), mask=~ok),
        **media_places(named.paths[rows], os.path.dirname(shard.path)),
        "media_digest": digests,
        "status": status,
        "error_message": message,
    }
    schema = arrow_schema.FACTS
    filled = [pa.array(columns[f.name], f.type) if f.name in columns else pa.nulls(count, f.type) for f in schema]
    return pa.Table.from_arrays(filled, schema=schema), ok


def statuses(named: Named, rows: slice, visual: Checked, text: Checked, dim: int) -> tuple[Texts, Texts]:
    """What is wrong with a row, the worst last."""
    status = np.full(len(visual.wrong), "ok", object)
    message = np.full(len(visual.wrong), None, object)

    def tell(where: Bools, what: str, why: str) -> None:
        status[where], message[where] = what, why

    tell(absent(named.captions[rows]), "missing_caption", "no caption in its row")
    for side, checked in (("text", text), ("visual", visual)):
        tell(checked.wrong == ZERO, "bad_vector", f"the {side} vector is zero")
        tell(checked.wrong == NOT_FINITE, "bad_vector", f"the {side} vector holds numbers that are not finite")
        for width in np.unique(checked.widths[checked.wrong == OTHER_WIDTH]):
            here = (checked.wrong == OTHER_WIDTH) & (checked.widths == width)
            tell(here, "bad_vector", f"the {side} vector has {width} numbers, not {dim}")
        tell(checked.wrong == MISSING, "bad_vector", f"the {side} vector is missing")
    repeated = named.occurrence[rows] > 0
    tell(repeated, "duplicate_key", "this key was seen before in this shard")
    return status, message


def media_digests(known: Texts, visual: Checked) -> Texts:
    """The corpus's own, else of the vector: media with equal vectors are taken for one."""
    found = known.copy()
    for row in np.flatnonzero(absent(known) & (visual.wrong == 0)):
        found[row] = digest(visual.vectors[row].tobytes())
    return found


def row_uids(shard: str, named: Named, rows: slice, digests: Texts) -> Texts:
    """The corpus's own for the first row with a key, else from where and what the row is."""
    found = named.uids[rows].copy()
    found[named.occurrence[rows] > 0] = None
    keys, again, captions = named.keys[rows], named.occurrence[rows], named.captions[rows]
    for row in np.flatnonzero(absent(found)):
        parts = (shard, keys[row], str(again[row]), digests[row] or "", captions[row] or "")
        found[row] = digest("\0".join(parts).encode(errors="replace"))
    return found


def whole_numbers(table: pa.Table, column: str | None, rows: slice) -> pa.Array:
    if column is None or column not in table.column_names:
        return pa.nulls(len(range(*rows.indices(table.num_rows))), pa.int32())
    found = table.column(column).slice(rows.start, rows.stop - rows.start)
    return pa.concat_arrays(found.cast(pa.int32(), safe=False).chunks)


def aspects(width: pa.Array, height: pa.Array) -> pa.Array:
    """Empty where a side is unknown or none."""
    sides = (pc.if_else(pc.greater(side, 0), side, None) for side in (width, height))
    return pc.divide(*(pc.cast(side, pa.float32()) for side in sides))


def kinds(paths: Texts) -> Texts:
    return np.array([(path and kind_of(path.split("?")[0])) or "image" for path in paths], object)


def media_places(paths: Texts, folder: str) -> dict[str, Any]:
    """Where media are, as far as a path says so; nothing on the web, which nobody has asked to be read."""
    found = np.array([place_of(path, folder) for path in paths], object).reshape(-1)
    known = ~absent(found)
    return {
        "media_path": found,
        "media_offset": pa.array(np.zeros(len(found), np.int64), mask=~known),
        "media_size": pa.array(np.full(len(found), -1, np.int64), mask=~known),
    }


def place_of(path: str | None, folder: str) -> str | None:
    if not path or path.lower().startswith(("http://", "https://")):
        return None
    if path.startswith("file://"):
        return remote_files.absolute(path)
    return path if remote_files.is_url(path) or os.path.isabs(path) else f"{folder.rstrip('/')}/{path}"
