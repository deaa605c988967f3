"""Weights instead of a cut: how much each kept row counts, as a table or as a list that repeats uids.

The weight of a row is a product over the chosen columns: 1 - x if a large x is suspicious (p_mismatch), x if it is good
(your own score). A `temperature` T makes it w^(1/T): below 1 the best rows gain weight, above 1 weights become more
equal. `size` scales all weights to that sum. A soft `cap` C maps w to C (1 - exp(-w / C)), which leaves small weights
nearly unchanged and keeps all below C. Rows without a value get the mean weight of the others.

| target            | what is written                                                                                |
|-------------------|------------------------------------------------------------------------------------------------|
| `weights.parquet` | uid, shard, key, caption_index and weight of every usable row; 0 if it is not kept             |
| `weights.npy`     | uids for DataComp's resharder, each repeated by its weight on average                          |

The resharder finds uids by bisection, so the list is sorted; it writes copies one after the other unless it shuffles.
`spread` orders the list for sequential readers: the copies of a uid are far apart.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from auditor.audit_folder.arrow_schema import SAMPLES
from auditor.audit_folder.folder import Folder
from auditor.errors import AuditorError
from auditor.keep.export import BYTES, Ints, Uids, argsort_uids, mark_first_uids, parse_uids, save_uids
from auditor.keep.export_target import open_target_file
from auditor.keep.kept_rows import KeptRows
from auditor.schema import HIGH_IS_SUSPICIOUS

Floats = npt.NDArray[np.float64]
NOTHING = "no row meets the rules: there is nothing to weigh"
ROW = ("uid", "shard", "key", "caption_index")
SCHEMA = pa.schema([*(SAMPLES.field(column) for column in ROW), pa.field("weight", pa.float32())])


class WeightError(AuditorError):
    """Weights that cannot be computed."""


@dataclass(frozen=True, slots=True)
class Weighing:
    """How to weigh rows."""

    by: tuple[str, ...] = ("p_mismatch",)
    temperature: float = 1.0
    cap: float | None = None
    size: int | None = None  # sum of all weights
    seed: int = 0  # random seed of the rounding to whole copies and of the order of `spread`

    def __post_init__(self) -> None:
        if not self.by:
            raise WeightError("weigh by at least one column: --by p_mismatch")
        for name in ("temperature", "cap", "size"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise WeightError(f"{name} must be above 0, not {value:g}")


@dataclass(frozen=True, slots=True)
class Weighed:
    """The weights that were written."""

    target: str
    form: str  # parquet or npy
    rows: int  # rows of the table, or uids of the list, repeats included
    different: int  # rows with a weight above 0, or distinct uids
    total: float  # sum of the weights
    effective: float  # effective sample size: (sum w)^2 / sum w^2
    most: float  # largest weight, or most copies of a uid


def write_row_weights(
    subset: KeptRows, target: str, weighing: Weighing, *, spread: bool = False, force: bool = False
) -> Weighed:
    form = target.rpartition(".")[2].lower()
    if form not in ("parquet", "npy"):
        raise WeightError(f"weights are written as .parquet or .npy, not to {target}")
    if spread and form != "npy":
        raise WeightError("--spread applies to .npy only")
    folder, name = open_target_file(subset, target, force)
    raw = build_weight_sql(subset, weighing)
    copies: Floats | Ints
    if form == "parquet":
        weights = copies = write_weight_table(subset, raw, folder, name, weighing)
    else:
        weights, copies = write_uid_copies(subset, raw, folder, name, weighing, spread)
    total, squares = float(weights.sum()), float((weights * weights).sum())
    effective = total * total / squares if squares else 0.0
    rows = len(weights) if form == "parquet" else int(copies.sum())
    return Weighed(target, form, rows, int((copies > 0).sum()), total, effective, copies.max().item())


def build_weight_sql(subset: KeptRows, weighing: Weighing) -> str:
    """SQL of a row's weight before temperature, size and cap; WeightError if a value is invalid."""
    return " * ".join(f"({build_column_sql(subset, column)})" for column in weighing.by)


def build_column_sql(subset: KeptRows, column: str) -> str:
    """SQL of a column's factor of the weight; refuses factors that are negative or not finite."""
    quoted = subset.database.column(column)
    kind = subset.database.run(f"SELECT {quoted} FROM samples LIMIT 0").schema.field(0).type
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
        raise WeightError(f"{column} has type {kind}: weigh by a column of numbers")
    is_suspicious = column in HIGH_IS_SUSPICIOUS
    factor = f"{'1 - ' if is_suspicious else ''}CAST({quoted} AS DOUBLE)"
    source = subset.database.stored_table(subset.condition, factor)
    wrong = subset.database.rows(
        f"SELECT count(*) AS n, any_value({quoted}) AS x FROM {source} "
        f"WHERE {subset.condition} AND (({factor}) < 0 OR NOT isfinite({factor}))"
    )[0]
    if wrong["n"]:
        bound, formula = ("--max", "1 - x") if is_suspicious else ("--min", "x")
        raise WeightError(
            f"weights must be finite and not negative; {formula} of {column} violates this in {wrong['n']:,} rows, "
            f"one of them with {wrong['x']:g}; leave them out with {bound} {column}=…"
        )
    return factor


def fit_curve(raw: Floats, weighing: Weighing) -> Callable[[Floats], Floats]:
    """The function that turns raw weights into weights by temperature, size and cap, fitted to all rows."""
    mean = 1.0 if np.isnan(raw).all() else float(np.nanmean(raw))

    def apply_temperature(values: Floats) -> Floats:
        return np.asarray(np.where(np.isnan(values), mean, values) ** (1 / weighing.temperature))

    scale = 1.0 if weighing.size is None else find_scale(apply_temperature(raw), weighing.size, weighing.cap)
    return lambda values: apply_soft_cap(scale * apply_temperature(values), weighing.cap)


def apply_soft_cap(weights: Floats, cap: float | None) -> Floats:
    return weights if cap is None else -cap * np.expm1(-weights / cap)


def find_scale(weights: Floats, size: int, cap: float | None) -> float:
    """The factor for which the capped weights sum to `size`."""
    from scipy.optimize import brentq

    total = float(weights.sum())
    if total <= 0:
        raise WeightError("all weights are zero and cannot be scaled")
    if cap is None:
        return size / total
    room = cap * float((weights > 0).sum())
    if size >= room:
        raise WeightError(f"a size of {size:,} is more than a cap of {cap:g} allows ({room:,.0f})")
    high = size / total  # enough without the cap
    while float(apply_soft_cap(high * weights, cap).sum()) < size:
        high *= 2
    return float(brentq(lambda scale: apply_soft_cap(scale * weights, cap).sum() - size, 0, high))


def stream_weights(subset: KeptRows, raw: str, columns: str, condition: str) -> Iterator[tuple[pa.RecordBatch, Floats]]:
    """Stream some columns of the rows that meet a condition, each batch with its raw weights."""
    source = subset.database.stored_table(subset.condition, raw)
    for batch in subset.stream(f"SELECT {columns}, {raw} AS raw FROM {source} WHERE {condition}"):
        yield batch, np.asarray(batch.column("raw").to_numpy(zero_copy_only=False), np.float64)


def write_weight_table(subset: KeptRows, raw: str, folder: Folder, name: str, weighing: Weighing) -> Floats:
    """Write the table in two passes: the first fits the scale, the second writes."""
    raw_weights = [weights for _, weights in stream_weights(subset, raw, "NULL", subset.condition)]
    if not raw_weights:
        raise WeightError(NOTHING)
    curve, weights = fit_curve(np.concatenate(raw_weights), weighing), []
    columns = f"{', '.join(ROW)}, coalesce({subset.condition}, FALSE) AS is_kept"
    with folder.writing(name) as path, pq.ParquetWriter(path, SCHEMA, compression="zstd") as writer:
        for batch, values in stream_weights(subset, raw, columns, "status = 'ok'"):
            is_kept = batch.column("is_kept").to_numpy(zero_copy_only=False)
            weights.append(np.where(is_kept, curve(values), 0.0))
            row_columns = [batch.column(column) for column in ROW]
            writer.write_table(pa.table([*row_columns, pa.array(weights[-1], pa.float32())], schema=SCHEMA))
    return np.concatenate(weights)


def write_uid_copies(
    subset: KeptRows, raw: str, folder: Folder, name: str, weighing: Weighing, spread: bool
) -> tuple[Floats, Ints]:
    """Write repeated uids; return the weight and the copies of each.

    A uid with several rows gets their mean weight: each copy has all captions of a sample.
    """
    batches = stream_weights(subset, raw, BYTES, f"{subset.condition} AND uid IS NOT NULL")
    parts = [(parse_uids(batch.column(0)), values) for batch, values in batches]
    if not parts:
        raise WeightError(NOTHING)
    uids, values = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = argsort_uids(uids)
    uids, values = uids[order], values[order]
    first = mark_first_uids(uids)
    weights = average_by_uid(fit_curve(values, replace(weighing, size=None, cap=None))(values), first)
    weights = fit_curve(weights, replace(weighing, temperature=1.0))(weights)
    copies = round_to_copies(weights, weighing.seed)
    save_uids(repeat_uids(uids[first], copies, weighing.seed if spread else None), folder, name)
    return weights, copies


def average_by_uid(values: Floats, first: npt.NDArray[np.bool_]) -> Floats:
    """The mean of each run of values; a run begins where `first` is true."""
    starts = np.flatnonzero(first)
    mean: Floats = np.add.reduceat(values, starts) / np.diff(np.append(starts, len(values)))
    return mean


def round_to_copies(weights: Floats, seed: int) -> Ints:
    """Round weights to whole numbers by systematic sampling: cumulative weights are rounded at one random offset.

    Their mean over seeds is the weight, and their sum is that of the weights to within one.
    """
    reached = np.floor(np.cumsum(weights) + np.random.default_rng(seed).random())
    copies: Ints = np.diff(reached, prepend=0.0).astype(np.int64)
    return copies


def repeat_uids(uids: Uids, copies: Ints, seed: int | None) -> Uids:
    """Repeat each uid by its number of copies: sorted, or spread out with a seed.

    Spread out, copy j of c is at (j + r) / c of the list, with one random r per uid. Between two copies of a uid there
    is then a copy of every uid with as many copies or more.
    """
    uid_list = np.repeat(uids, copies, axis=0)
    if seed is None:
        return uid_list
    random = np.random.default_rng([seed, 1]).random(len(copies))
    number = np.arange(len(uid_list)) - np.repeat(np.cumsum(copies) - copies, copies)
    place = (number + np.repeat(random, copies)) / np.repeat(copies, copies)
    return uid_list[np.argsort(place, kind="stable")]
