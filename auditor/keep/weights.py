"""Weights instead of a cut: how much each kept row counts, as a table, or as a list that repeats uids.

The weight of a row is the product over the columns it is weighed by: 1 - x where a large x is suspicious (p_mismatch),
x where it is good (your own score). A `temperature` T makes it w^(1/T): below 1 the best count for more, above 1
all count alike. `size` scales all weights to that sum. A soft `cap` C bends w to C (1 - exp(-w / C)), which leaves
small weights as they are and lets none reach C. Rows without a value weigh the mean of the others.

| target            | what is written                                                                                |
|-------------------|------------------------------------------------------------------------------------------------|
| `weights.parquet` | uid, shard, key, caption_index, weight of every usable row, 0 where it is not kept               |
| `weights.npy`     | uids as DataComp's resharder wants them, each as often as its weight says on average            |

The resharder looks uids up by bisection, so the list is sorted, and it writes copies one after the other unless it is
told to shuffle. `spread` orders the list for readers that take it as it comes: copies of a uid stand far apart.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from auditor.audit_folder.arrow_schema import SAMPLES
from auditor.audit_folder.folder import Folder, split_target
from auditor.errors import AuditorError
from auditor.keep.export import BYTES, Uids, as_records, first_of_each, uid_numbers, uid_order
from auditor.keep.export_target import ExportError, patient_sandbox, refuse_in_corpus
from auditor.keep.kept_rows import KeptRows
from auditor.schema import HIGH_IS_SUSPICIOUS

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
ROW = ("uid", "shard", "key", "caption_index")
SCHEMA = pa.schema([*(SAMPLES.field(column) for column in ROW), pa.field("weight", pa.float32())])


class WeightError(AuditorError):
    """Weights that cannot be."""


@dataclass(frozen=True, slots=True)
class Weighing:
    """How rows are weighed."""

    by: tuple[str, ...] = ("p_mismatch",)
    temperature: float = 1.0
    cap: float | None = None
    size: int | None = None  # what all weights add up to
    seed: int = 0  # of which uids get the copy that a fraction leaves open, and of the order of `spread`

    def __post_init__(self) -> None:
        if not self.by:
            raise WeightError("weigh by at least one column: --by p_mismatch")
        for what in ("temperature", "cap", "size"):
            value = getattr(self, what)
            if value is not None and not 0 < value < float("inf"):
                raise WeightError(f"{what} must be above 0, not {value:g}")


@dataclass(frozen=True, slots=True)
class Weighed:
    """What was written."""

    target: str
    form: str  # parquet or npy
    rows: int  # rows of the table, or uids of the list, repeats included
    different: int  # rows with a weight above 0, or different uids
    total: float  # sum of the weights
    effective: float  # equal weights that would vary as little: (sum w)^2 / sum w^2
    most: float  # largest weight, or most copies of a uid


def weigh(kept: KeptRows, target: str, how: Weighing, *, spread: bool = False, force: bool = False) -> Weighed:
    """Write the weights of the kept rows to a .parquet or .npy file."""
    folder, name = split_target(target)
    form = name.rpartition(".")[2].lower()
    if form not in ("parquet", "npy"):
        raise WeightError(f"weights are written as .parquet or .npy, not to {target}")
    if spread and form != "npy":
        raise WeightError("--spread is the order of a .npy")
    refuse_in_corpus(kept, target)
    if folder.exists(name) and not force:
        raise ExportError(f"{target} exists; --force replaces it")
    raw = raw_sql(kept, how)
    if form == "npy":
        return write_copies(kept, raw, folder, name, how, spread, target)
    return write_weights(kept, raw, folder, name, how, target)


def raw_sql(kept: KeptRows, how: Weighing) -> str:
    """The weight of a row before temperature, size and cap, as SQL; WeightError where a value allows none."""
    parts = [part_sql(kept, column) for column in how.by]
    for column, part in zip(how.by, parts, strict=True):
        refuse_values(kept, column, part)
    return " * ".join(f"({part})" for part in parts)


def part_sql(kept: KeptRows, column: str) -> str:
    quoted = kept.database.column(column)
    kind = kept.database.run(f"SELECT {quoted} FROM samples LIMIT 0").schema.field(0).type
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
        raise WeightError(f"{column} is not a number in every row but {kind}: weigh by a column of numbers")
    return f"{'1 - ' if column in HIGH_IS_SUSPICIOUS else ''}CAST({quoted} AS DOUBLE)"


def refuse_values(kept: KeptRows, column: str, part: str) -> None:
    """Weights below zero or not finite."""
    source = kept.database.stored_table(kept.condition, part)
    wrong = kept.database.rows(
        f"SELECT count(*) AS n, any_value({kept.database.column(column)}) AS x FROM {source} "
        f"WHERE {kept.condition} AND (({part}) < 0 OR NOT isfinite({part}))"
    )[0]
    if wrong["n"]:
        bound, formula = ("--max", "1 - x") if part.startswith("1 - ") else ("--min", "x")
        raise WeightError(
            f"no weight can be below zero or not finite, as {formula} of {column} is in {wrong['n']:,} rows, "
            f"one of them with {wrong['x']:g}; leave them out with {bound} {column}=…"
        )


class Curve:
    """From raw weights to weights: temperature, size and cap, fitted to all rows."""

    def __init__(self, raw: Floats, how: Weighing) -> None:
        known = raw[~np.isnan(raw)]
        self.how = how
        self.missing = float(known.mean()) if len(known) else 1.0
        self.scale = 1.0
        if how.size is not None:
            self.scale = find_scale(self._warm(raw), how.size, how.cap)

    def __call__(self, raw: Floats) -> Floats:
        return soft_cap(self.scale * self._warm(raw), self.how.cap)

    def _warm(self, raw: Floats) -> Floats:
        filled: Floats = np.where(np.isnan(raw), self.missing, raw) ** (1.0 / self.how.temperature)
        return filled


def soft_cap(weights: Floats, cap: float | None) -> Floats:
    return weights if cap is None else -cap * np.expm1(-weights / cap)


def find_scale(weights: Floats, size: int, cap: float | None) -> float:
    """The factor by which capped weights add up to `size`: they grow with it, so it is found by halving."""
    total = float(weights.sum())
    if total <= 0:
        raise WeightError("all weights are zero: there is nothing to scale")
    if cap is None:
        return size / total
    room = cap * float((weights > 0).sum())
    if size >= room:
        raise WeightError(f"a size of {size:,} is more than a cap of {cap:g} leaves room for ({room:,.0f})")
    low, high = 0.0, size / total
    while float(soft_cap(high * weights, cap).sum()) < size:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if float(soft_cap(middle * weights, cap).sum()) < size else (low, middle)
    return (low + high) / 2


def stream(kept: KeptRows, raw: str, columns: str, condition: str) -> Iterator[pa.RecordBatch]:
    """Some columns of the rows that meet a condition, the raw weight last."""
    source = kept.database.stored_table(kept.condition, raw)
    with patient_sandbox(kept) as sandbox:
        yield from sandbox.stream(f"SELECT {columns}, {raw} AS raw FROM {source} WHERE {condition}")


def numbers(batch: pa.RecordBatch) -> Floats:
    return np.asarray(batch.column("raw").to_numpy(zero_copy_only=False), np.float64)


def write_weights(kept: KeptRows, raw: str, folder: Folder, name: str, how: Weighing, target: str) -> Weighed:
    """Two passes: the first for the scale, the second writes."""
    found = joined([numbers(batch) for batch in stream(kept, raw, "NULL", kept.condition)])
    if not len(found):
        raise WeightError("no row meets the rules: there is nothing to weigh")
    curve, weights = Curve(found, how), []
    columns = f"{', '.join(ROW)}, coalesce({kept.condition}, FALSE) AS is_kept"
    with folder.writing(name) as path, pq.ParquetWriter(path, SCHEMA, compression="zstd") as writer:
        for batch in stream(kept, raw, columns, "status = 'ok'"):
            is_kept = batch.column("is_kept").to_numpy(zero_copy_only=False)
            weights.append(np.where(is_kept, curve(numbers(batch)), 0.0))
            given = [batch.column(column) for column in ROW]
            writer.write_table(pa.table([*given, pa.array(weights[-1], pa.float32())], schema=SCHEMA))
    every = joined(weights)
    return told(target, "parquet", every, len(every), int((every > 0).sum()), float(every.max()))


def write_copies(
    kept: KeptRows, raw: str, folder: Folder, name: str, how: Weighing, spread: bool, target: str
) -> Weighed:
    """A uid with several rows weighs their mean: each copy of a sample has all of its captions."""
    parts = [
        (uid_numbers(b.column(0)), numbers(b))
        for b in stream(kept, raw, BYTES, f"{kept.condition} AND uid IS NOT NULL")
    ]
    if not parts:
        raise WeightError("no row meets the rules: there is nothing to weigh")
    uids, found = np.concatenate([part for part, _ in parts]), joined([values for _, values in parts])
    order = uid_order(uids)
    uids, found = uids[order], found[order]
    first = first_of_each(uids)
    weights = mean_of_each(Curve(found, Weighing(how.by, how.temperature))(found), first)
    weights = Curve(weights, Weighing(how.by, 1.0, how.cap, how.size))(weights)
    copies = whole_copies(weights, how.seed)
    with folder.writing(name) as path, path.open("wb") as file:
        np.save(file, as_records(repeated(uids[first], copies, how.seed if spread else None)), allow_pickle=False)
    return told(target, "npy", weights, int(copies.sum()), int((copies > 0).sum()), int(copies.max()))


def joined(parts: list[Floats]) -> Floats:
    return np.concatenate(parts) if parts else np.empty(0)


def mean_of_each(values: Floats, first: npt.NDArray[np.bool_]) -> Floats:
    """Of stretches of values, each beginning where `first` is true."""
    starts = np.flatnonzero(first)
    mean: Floats = np.add.reduceat(values, starts) / np.diff(np.append(starts, len(values)))
    return mean


def whole_copies(weights: Floats, seed: int) -> Ints:
    """Whole numbers whose mean over seeds is the weight, and whose sum is that of the weights to within one.

    Systematic: the sum of the weights so far is rounded at the same random offset everywhere.
    """
    reached = np.floor(np.cumsum(weights) + np.random.default_rng(seed).random())
    copies: Ints = np.diff(reached, prepend=0.0).astype(np.int64)
    return copies


def repeated(uids: Uids, copies: Ints, seed: int | None) -> Uids:
    """Each uid as often as said: sorted, or with a seed spread out.

    Spread, copy j of c stands at (j + r) / c of the way with one random r for each uid. Between two copies of a uid
    then stands one of every uid with as many copies or more.
    """
    listed = np.repeat(uids, copies, axis=0)
    if seed is None:
        return listed
    random = np.random.default_rng([seed, 1]).random(len(copies))
    number = np.arange(len(listed)) - np.repeat(np.cumsum(copies) - copies, copies)
    place = (number + np.repeat(random, copies)) / np.repeat(copies, copies)
    return listed[np.argsort(place, kind="stable")]


def told(target: str, form: str, weights: Floats, rows: int, different: int, most: float) -> Weighed:
    total, squares = float(weights.sum()), float((weights * weights).sum())
    return Weighed(target, form, rows, different, total, total * total / squares if squares else 0.0, most)
