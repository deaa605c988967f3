"""Groups of pairs that are calibrated by themselves: languages, caption sources, or values of another column.

Such a group is treated like a kind of medium of its own: its re-pairings, rivals, neighbors, curve and share are those
of its own pairs. A group is one if its similarities differ from those of all pairs (`measure_differences`), so small
groups and groups that are alike stay together and share one curve. `--calibrate-by` chooses the column; by default, it
is the one whose groups differ most.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from auditor.audit_folder.extra_columns import CARRIED, find_column_sources
from auditor.audit_folder.folder import Folder
from auditor.corpus.caption_text import parse_record
from auditor.errors import AuditorError
from auditor.schema import COLUMNS, FACTS
from auditor.score.group_geometry import Pairs, TextGeometry, fit_geometries
from auditor.score.score_config import AUTO, BY_KIND
from auditor.score.statistics.competence import LANGUAGE, ColumnValues
from auditor.score.statistics.group_difference import measure_differences
from auditor.score.statistics.mismatch import MismatchModel, combine_models, compute_log_odds
from auditor.score.statistics.rivals import ReferenceSample
from auditor.vectors import Ints

SOURCE = "caption_source"  # the column
REST = ""  # the name of the pairs without a group of their own
NAMES = ("string", "bool")  # types of columns of stored embeddings whose values may name groups ...
GROUP_TYPES = (*NAMES, "int64")  # ... and of those that may be chosen: bins of a score would be numbers
MOST_GROUPS = 64  # values of a column
SMALLEST_GROUP = 30  # different captions and media
LARGE_GROUP = 250  # pairs from which a group of a chosen column is calibrated by itself even if it does not differ
DIFFERENT = 30.0  # likelihood ratio; random groups stay below 15 (tests/score/statistics/test_group_difference.py)
EFFECT = 0.05  # least likelihood ratio per medium: in a large sample, topics differ a little too
MOST_EXCESS = 3.0  # of the log odds of a group; certain mismatches stay certain


def list_carried_columns(folder: Folder, types: Sequence[str] = GROUP_TYPES) -> list[str]:
    """The columns of stored embeddings with these types that can name groups."""
    sources = [source for source in find_column_sources(folder) if source.name == CARRIED]
    columns = [column for source in sources for column in source.columns.items()]
    return [name for name, kind in columns if kind in types and name not in FACTS]


def list_group_columns(folder: Folder, calibrate_by: str) -> list[str]:
    """The columns of stored embeddings that are needed to calibrate by this column; numbers only if it names them."""
    if calibrate_by == AUTO:
        return list_carried_columns(folder, NAMES)
    return [name for name in list_carried_columns(folder) if name == calibrate_by]


def check_column(folder: Folder, carry: Sequence[str], column: str) -> None:
    """Refuse a column that the audit does not have or that has a value for each row; `carry` are those of --carry."""
    carried = [*carry, *list_carried_columns(folder)]
    if column in (AUTO, BY_KIND) or column in carried:
        return
    if column not in [name for name in FACTS if COLUMNS[name].type == "string" and not COLUMNS[name].unique]:
        problem = "is no column with few values" if column in FACTS else "is no column of this corpus"
        names = ", ".join([AUTO, BY_KIND, LANGUAGE, SOURCE, "shard", *carried])
        raise AuditorError(f"--calibrate-by: {column!r} {problem}; choose from {names}, or --carry the column")


def read_columns(facts: pa.Table, names: Iterable[str]) -> dict[str, list[str | None]]:
    """The values of columns of the facts, or of columns that were carried into the audit, as texts."""
    stored, names = facts.column_names, list(names)
    records = [] if set(names) <= set(stored) else read_carried_records(facts)
    columns = {
        name: facts[name].to_pylist() if name in stored else [record.get(name) for record in records] for name in names
    }
    return {name: [format_value(value) for value in values] for name, values in columns.items()}


def read_carried_records(facts: pa.Table) -> list[dict[str, Any]]:
    return [(text and parse_record(text)) or {} for text in facts["carried"].to_pylist()]


def format_value(value: Any) -> str | None:
    """A value as the views of an audit show it."""
    return value if value is None or isinstance(value, str) else json.dumps(value)


def read_candidates(facts: pa.Table, calibrate_by: str) -> dict[str, list[str | None]]:
    """The values of the columns by which pairs may be grouped; always of the language, to measure competence."""
    if calibrate_by == BY_KIND:
        return read_columns(facts, [LANGUAGE])
    if calibrate_by != AUTO:
        columns = read_columns(facts, dict.fromkeys((LANGUAGE, calibrate_by)))
        if (count := len(set(columns[calibrate_by]) - {None, ""})) > MOST_GROUPS:
            raise AuditorError(
                f"--calibrate-by: {calibrate_by!r} has {count:,} values in a sample of {facts.num_rows:,} pairs, and "
                f"at most {MOST_GROUPS} can be groups; choose a column with fewer"
            )
        return columns
    names = [LANGUAGE, SOURCE, *(name for name in facts.column_names if name not in FACTS)]
    items = [item for record in read_carried_records(facts) for item in record.items()]
    names += [name for name, value in items if name not in FACTS and isinstance(value, str | bool)]
    columns = read_columns(facts, dict.fromkeys(names))
    return {name: values for name, values in columns.items() if name == LANGUAGE or has_groups(values)}


def has_groups(values: Sequence[str | None]) -> bool:
    """Whether a column divides the pairs into few groups, two or more of which are large enough."""
    counts = Counter(value for value in values if value)
    return len(counts) <= MOST_GROUPS and sum(count >= SMALLEST_GROUP for count in counts.values()) > 1


@dataclass(frozen=True, slots=True)
class Calibration:
    """How the pairs that are calibrated together get p_mismatch."""

    mismatch: MismatchModel | None  # None if there are too few different pairs that the encoder can judge
    reference: ReferenceSample  # the pairs that they are compared with
    excess: float = 0.0  # of the log odds of a mismatch over those of the kind; 0 if they are below
    geometry: TextGeometry | None = None  # into which captions of other groups are moved

    def prepare(self, pairs: Pairs) -> Pairs:
        """The pairs as they are compared with the reference."""
        return self.geometry.move(pairs) if self.geometry else pairs


@dataclass(frozen=True)
class CalibrationGroups:
    """The calibrations of a kind of medium: of groups by their value of a column, and of all other pairs."""

    calibrations: Mapping[str, Calibration]
    mismatch: MismatchModel | None  # of the other pairs; it holds the models of the groups
    column: str = ""

    def assign(self, facts: pa.Table) -> npt.NDArray[np.object_]:
        """The name of the calibration of each row."""
        values = read_columns(facts, [self.column])[self.column] if self.column else [REST] * facts.num_rows
        return np.array([value if value in self.calibrations else REST for value in values], object)


def choose_groups(
    reference: ReferenceSample, columns: ColumnValues, calibrate_by: str, seed: int = 0
) -> tuple[str, dict[str, Ints]]:
    """The column whose groups differ most, and the rows of those that are calibrated by themselves; or none."""
    choice: tuple[str, dict[str, Ints]] = "", {}
    largest = -np.inf
    for column in columns if calibrate_by == AUTO else {calibrate_by} & set(columns):
        groups = find_large_groups(reference, columns[column])
        if not groups or (calibrate_by == AUTO and len(groups) == 1):
            continue
        ratios = measure_differences(reference, list(groups.values()), seed)
        apart = {
            name: rows
            for (name, rows), ratio in zip(groups.items(), ratios.tolist(), strict=True)
            if ratio >= max(DIFFERENT, EFFECT * len(rows)) or (calibrate_by != AUTO and len(rows) >= LARGE_GROUP)
        }
        if apart and ratios.sum() > largest:
            largest, choice = ratios.sum(), (column, apart)
    return choice


def find_large_groups(reference: ReferenceSample, values: Sequence[str | None]) -> dict[str, Ints]:
    """The rows of the values that have enough different captions and media, but not all pairs."""
    names, number = np.unique([value or "" for value in values], return_inverse=True)
    groups = {str(name): np.flatnonzero(number == i) for i, name in enumerate(names) if name}
    return {
        name: rows
        for name, rows in groups.items()
        if len(rows) < len(reference)
        and len(np.unique(reference.group[rows])) >= SMALLEST_GROUP
        and (not reference.captions or len({reference.captions[row] for row in rows.tolist()}) >= SMALLEST_GROUP)
    }


def fit_groups(
    reference: ReferenceSample,
    columns: ColumnValues,
    calibrate_by: str,
    fit: Callable[[ReferenceSample], MismatchModel | None],
    seed: int = 0,
) -> CalibrationGroups:
    """Calibrate each group by itself and the other pairs together; if these are few, like all pairs."""
    column, rows_by_group = choose_groups(reference, columns, calibrate_by, seed)
    parts = {name: reference.take(rows) for name, rows in rows_by_group.items()}
    others = np.setdiff1d(np.arange(len(reference)), np.concatenate([np.zeros(0, int), *rows_by_group.values()]))
    parts[REST] = reference.take(others) if rows_by_group and len(others) >= SMALLEST_GROUP else reference
    geometries = fit_geometries({name: part for name, part in parts.items() if part is not reference})
    parts |= {name: geometry.move(parts[name]) for name, geometry in geometries.items()}
    calibrations = {name: Calibration(fit(part), part, geometry=geometries.get(name)) for name, part in parts.items()}
    models = {name: part.mismatch for name, part in calibrations.items() if part.mismatch is not None}
    if parts[REST] is not reference and (REST not in models or len(models) < 2):  # some are too few by themselves
        model = fit(reference)
        calibrations[REST] = Calibration(model, reference)
        models |= {REST: model} if model is not None else {}
    if len(models) < 2 or REST not in models:
        return CalibrationGroups({REST: calibrations[REST]}, models.get(REST))
    sizes = [len(rows_by_group.get(name, others)) for name in models]
    whole = combine_models(models, sizes, column)
    calibrations = {name: replace(calibrations[name], excess=measure_excess(models[name], whole)) for name in models}
    return CalibrationGroups(calibrations, whole, column)


def measure_excess(group: MismatchModel, whole: MismatchModel) -> float:
    """How far the log odds of a mismatch in a group are above those of all pairs; 0 if they are below."""
    odds = compute_log_odds(np.array([group.pi0, whole.pi0]))
    return float(np.clip(odds[0] - odds[1], 0, MOST_EXCESS))
