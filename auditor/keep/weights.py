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

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from auditor.audit_folder.arrow_schema import SAMPLES
from auditor.audit_folder.folder import Folder
from auditor.errors import AuditorError
from auditor.keep.export import BYTES, Uids, argsort_uids, mark_first_uids, pack_uids, parse_uids
from auditor.keep.export_target import open_target_file, open_unlimited_sandbox
from auditor.keep.kept_rows import KeptRows
from auditor.schema import HIGH_IS_SUSPICIOUS

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
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
    """Write the weights of the kept rows to a .parquet or .npy file."""
    form = target.rpartition(".")[2].lower()
    if form not in ("parquet", "npy"):
        raise WeightError(f"weights are written as .parquet or .npy, not to {target}")
    if spread and form != "npy":
        raise WeightError("--spread applies to .npy only")
    folder, name = open_target_file(subset, target, force)
    raw = build_weight_sql(subset, weighing)
    if form == "npy":
        return write_uid_copies(subset, raw, folder, name, weighing, spread, target)
    return write_weight_table(subset, raw, folder, name, weighing, target)


def build_weight_sql(subset: KeptRows, weighing: Weighing) -> str:
    """SQL of a row's weight before temperature, size and cap; WeightError if a value is invalid."""
    parts = [build_column_sql(subset, column) for column in weighing.by]
    for column, part in zip(weighing.by, parts, strict=True):
        check_weight_values(subset, column, part)
    return " * ".join(f"({part})" for part in parts)


def build_column_sql(subset: KeptRows, column: str) -> str:
    quoted = subset.database.column(column)
    kind = subset.database.run(f"SELECT {quoted} FROM samples LIMIT 0").schema.field(0).type
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
        raise WeightError(f"{column} has type {kind}: weigh by a column of numbers")
    return f"{'1 - ' if column in HIGH_IS_SUSPICIOUS else ''}CAST({quoted} AS DOUBLE)"


def check_weight_values(subset: KeptRows, column: str, part: str) -> None:
    """Refuse weights that are negative or not finite."""
    source = subset.database.stored_table(subset.condition, part)
    wrong = subset.database.rows(
        f"SELECT count(*) AS n, any_value({subset.database.column(column)}) AS x FROM {source} "
        f"WHERE {subset.condition} AND (({part}) < 0 OR NOT isfinite({part}))"
    )[0]
    if wrong["n"]:
        bound, formula = ("--max", "1 - x") if part.startswith("1 - ") else ("--min", "x")
        raise WeightError(
            f"weights must be finite and not negative; {formula} of {column} violates this in {wrong['n']:,} rows, "
            f"one of them with {wrong['x']:g}; leave them out with {bound} {column}=…"
        )


class WeightCurve:
    """Turns raw weights into weights by temperature, size and cap, fitted to all rows."""

    def __init__(self, raw: Floats, weighing: Weighing) -> None:
        values = raw[~np.isnan(raw)]
        self.weighing = weighing
        self.missing = float(values.mean()) if len(values) else 1.0
        self.scale = 1.0
        if weighing.size is not None:
            self.scale = find_scale(self._apply_temperature(raw), weighing.size, weighing.cap)

    def __call__(self, raw: Floats) -> Floats:
        return apply_soft_cap(self.scale * self._apply_temperature(raw), self.weighing.cap)

    def _apply_temperature(self, raw: Floats) -> Floats:
        filled: Floats = np.where(np.isnan(raw), self.missing, raw) ** (1.0 / self.weighing.temperature)
        return filled


def apply_soft_cap(weights: Floats, cap: float | None) -> Floats:
    return weights if cap is None else -cap * np.expm1(-weights / cap)


def find_scale(weights: Floats, size: int, cap: float | None) -> float:
    """The factor for which the capped weights sum to `size`, found by bisection."""
    total = float(weights.sum())
    if total <= 0:
        raise WeightError("all weights are zero and cannot be scaled")
    if cap is None:
        return size / total
    room = cap * float((weights > 0).sum())
    if size >= room:
        raise WeightError(f"a size of {size:,} is more than a cap of {cap:g} allows ({room:,.0f})")
    low, high = 0.0, size / total
    while float(apply_soft_cap(high * weights, cap).sum()) < size:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if float(apply_soft_cap(middle * weights, cap).sum()) < size else (low, middle)
    return (low + high) / 2


def stream_weights(subset: KeptRows, raw: str, columns: str, condition: str) -> Iterator[pa.RecordBatch]:
    """Stream some columns of the rows that meet a condition, with the raw weight last."""
    source = subset.database.stored_table(subset.condition, raw)
    with open_unlimited_sandbox(subset) as sandbox:
        yield from sandbox.stream(f"SELECT {columns}, {raw} AS raw FROM {source} WHERE {condition}")


def read_raw_weights(batch: pa.RecordBatch) -> Floats:
    return np.asarray(batch.column("raw").to_numpy(zero_copy_only=False), np.float64)


def write_weight_table(
    subset: KeptRows, raw: str, folder: Folder, name: str, weighing: Weighing, target: str
) -> Weighed:
    """Write the table in two passes: the first fits the scale, the second writes."""
    raw_weights = concatenate_weights(
        [read_raw_weights(batch) for batch in stream_weights(subset, raw, "NULL", subset.condition)]
    )
    if not len(raw_weights):
        raise WeightError("no row meets the rules: there is nothing to weigh")
    curve, weights = WeightCurve(raw_weights, weighing), []
    columns = f"{', '.join(ROW)}, coalesce({subset.condition}, FALSE) AS is_kept"
    with folder.writing(name) as path, pq.ParquetWriter(path, SCHEMA, compression="zstd") as writer:
        for batch in stream_weights(subset, raw, columns, "status = 'ok'"):
            is_kept = batch.column("is_kept").to_numpy(zero_copy_only=False)
            weights.append(np.where(is_kept, curve(read_raw_weights(batch)), 0.0))
            columns_of_row = [batch.column(column) for column in ROW]
            writer.write_table(pa.table([*columns_of_row, pa.array(weights[-1], pa.float32())], schema=SCHEMA))
    all_weights = concatenate_weights(weights)
    return summarize_weights(
        target, "parquet", all_weights, len(all_weights), int((all_weights > 0).sum()), float(all_weights.max())
    )


def write_uid_copies(
    subset: KeptRows, raw: str, folder: Folder, name: str, weighing: Weighing, spread: bool, target: str
) -> Weighed:
    """Write repeated uids. A uid with several rows gets their mean weight: each copy has all captions of a sample."""
    parts = [
        (parse_uids(b.column(0)), read_raw_weights(b))
        for b in stream_weights(subset, raw, BYTES, f"{subset.condition} AND uid IS NOT NULL")
    ]
    if not parts:
        raise WeightError("no row meets the rules: there is nothing to weigh")
    uids, raw_weights = (
        np.concatenate([part for part, _ in parts]),
        concatenate_weights([values for _, values in parts]),
    )
    order = argsort_uids(uids)
    uids, raw_weights = uids[order], raw_weights[order]
    first = mark_first_uids(uids)
    weights = average_by_uid(WeightCurve(raw_weights, Weighing(weighing.by, weighing.temperature))(raw_weights), first)
    weights = WeightCurve(weights, Weighing(weighing.by, 1.0, weighing.cap, weighing.size))(weights)
    copies = round_to_copies(weights, weighing.seed)
    with folder.writing(name) as path, path.open("wb") as file:
        np.save(
            file, pack_uids(repeat_uids(uids[first], copies, weighing.seed if spread else None)), allow_pickle=False
        )
    return summarize_weights(target, "npy", weights, int(copies.sum()), int((copies > 0).sum()), int(copies.max()))


def concatenate_weights(parts: list[Floats]) -> Floats:
    return np.concatenate(parts) if parts else np.empty(0)


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


def summarize_weights(target: str, form: str, weights: Floats, rows: int, distinct: int, largest: float) -> Weighed:
    total, squares = float(weights.sum()), float((weights * weights).sum())
    return Weighed(target, form, rows, distinct, total, total * total / squares if squares else 0.0, largest)
