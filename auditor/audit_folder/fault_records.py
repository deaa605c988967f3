"""faults.parquet: the patterns that `auditor faults` found, one record each."""

from collections.abc import Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any, Literal

import pyarrow as pa

from auditor.audit_folder.folder import Folder

FaultKind = Literal["shift", "block", "shard", "caption"]
FILE = "faults.parquet"


@dataclass(frozen=True, slots=True)
class Fault:
    """A pattern: its first and last key, its size, its probability by chance, and a sentence that describes it.

    The fields after the sentence are set for some kinds only. A shard (or another value of a column): its share with
    its 90% interval, and the usual share. A caption: the text, its share of the rows, how its spellings agree, and the
    spread of its media (1: like any two of the corpus, 0: one picture).
    """

    kind: FaultKind
    pattern: str  # shift; exchanged, reversed, permuted, ...; mismatched, ...; boilerplate, repeated: docs/faults.md
    shard: str | None
    first_key: str | None
    last_key: str | None
    offset: int | None
    rows: int
    p_value: float | None
    sentence: str
    value: str | None = None  # of the compared column, or the caption
    share: float | None = None
    low: float | None = None
    high: float | None = None
    usual: float | None = None
    likeness: str | None = None  # exact, normalised, near
    spread: float | None = None
    where: str | None = None  # condition that selects its rows
    source: str | None = None  # of its captions, if nearly all have the same one

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


FLOATS = ("p_value", "share", "low", "high", "usual", "spread")
TYPES = {"offset": pa.int32(), "rows": pa.int64(), **dict.fromkeys(FLOATS, pa.float64())}  # else a string
SCHEMA = pa.schema([(field.name, TYPES.get(field.name, pa.string())) for field in fields(Fault)])

REQUIRED = pa.schema([SCHEMA.field(field.name) for field in fields(Fault) if field.default is MISSING])


def build_fault_table(faults: Sequence[Fault]) -> pa.Table:
    return pa.Table.from_pylist([fault.to_dict() for fault in faults], schema=SCHEMA)


def write_faults(folder: Folder, faults: Sequence[Fault]) -> None:
    folder.write_table(FILE, build_fault_table(faults))


def read_faults(folder: Folder) -> list[Fault] | None:
    """Return None if `auditor faults` has not run."""
    if not folder.exists(FILE):
        return None
    table = folder.read_table(FILE, schema=REQUIRED)
    rows = table.select([name for name in SCHEMA.names if name in table.column_names]).to_pylist()
    return [Fault(**row) for row in rows]
