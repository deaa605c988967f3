"""What a browser of an audit asks beyond auditor.query: a selection of rows as SQL, records to draw, downloads.

chosen = Selection(kind="video", flags=("mismatch",), ranges={"similarity": (0.1, 0.2)}, text="dog")
audit.page(chosen.condition(audit), "p_mismatch", descending=True)
"""

import io
import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq

from auditor.errors import AuditorError
from auditor.query.distributions import Density, Histogram, value_range
from auditor.query.sandbox import literal
from auditor.schema import FLAGS, MARKS

if TYPE_CHECKING:
    from auditor.keep.subset import Subset
    from auditor.query.audit import Audit
    from auditor.query.rules import Rules

EXPORT_ROWS = 1_000_000


@dataclass(frozen=True)
class Selection:
    """Which rows are looked at. Everything that is set must hold; `review` may also be 'none' or 'any'."""

    kind: str | None = None
    status: str | None = None  # None: any; 'not ok' means every other
    flags: tuple[str, ...] = ()
    review: str | None = None
    text: str = ""
    where: str = ""
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def condition(self, audit: "Audit") -> str | None:
        """As SQL; a condition of the user's own has passed the sandbox before it stands beside ours."""
        parts = [*self._facts(), *self._ranges(audit)]
        parts += [flag for flag in self.flags if flag in FLAGS]
        if self.where.strip():
            parts.append(audit.where(self.where))
        return " AND ".join(f"({part})" for part in parts) or None

    def _facts(self) -> list[str]:
        parts = []
        if self.kind:
            parts.append(f"kind = {literal(self.kind)}")
        if self.status:
            parts.append("status <> 'ok'" if self.status == "not ok" else f"status = {literal(self.status)}")
        if self.review in MARKS:
            parts.append(f"review = {literal(self.review)}")
        elif self.review:
            parts.append("review IS NULL" if self.review == "none" else "review IS NOT NULL")
        if self.text.strip():
            parts.append(f"contains(lower(caption), lower({literal(self.text.strip())}))")
        return parts

    def _ranges(self, audit: "Audit") -> list[str]:
        # Measurements are 32-bit; the ends of a range were written with a few digits more than people read.
        return [
            f"{audit.column(column)} BETWEEN {literal(float(low))} AND {literal(float(high))}"
            for column, (low, high) in self.ranges.items()
        ]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Round numbers that enclose every value of a column, and a sensible step between them."""

    low: float
    high: float
    step: float


def bounds(audit: "Audit", column: str) -> Bounds:
    low, high = value_range(audit, column)
    width = high - low
    step = 10.0 ** math.floor(math.log10(width / 200)) if width > 0 else 0.001
    digits = max(0, -math.floor(math.log10(step)))
    first, last = math.floor(low / step) * step, math.ceil(high / step) * step
    return Bounds(round(first, digits), round(last, digits), round(step, digits) or 1.0)


def round_steps(audit: "Audit", column: str) -> list[int]:
    """1, 2, 3, 5, 7, 10, 15, ... up to the first that is above every value of the column."""
    _, high = value_range(audit, column)
    steps: list[int] = []
    for power in range(8):
        for lead in (1, 1.5, 2, 3, 5, 7):
            step = round(lead * 10**power)
            if lead * 10**power == step:
                steps.append(step)
            if step > high:
                return steps
    return steps


def bars(found: Histogram) -> list[dict[str, float]]:
    """A histogram as records; `share` is of all rows with a value."""
    total = max(found.total, 1)
    return [
        {"low": float(low), "high": float(high), "rows": int(count), "share": float(count / total)}
        for low, high, count in zip(found.edges[:-1], found.edges[1:], found.counts, strict=True)
    ]


def cells(found: Density) -> list[dict[str, float]]:
    """The occupied cells of a density as records."""
    rows, columns = np.nonzero(found.counts)
    return [
        {
            "x_low": float(found.x_edges[column]),
            "x_high": float(found.x_edges[column + 1]),
            "y_low": float(found.y_edges[row]),
            "y_high": float(found.y_edges[row + 1]),
            "rows": int(found.counts[row, column]),
        }
        for row, column in zip(rows.tolist(), columns.tolist(), strict=True)
    ]


def null_curves(audit: "Audit", kind: str) -> list[dict[str, Any]]:
    """Shares of the pairs of a kind by score: as observed, and of them those that re-pairings explain."""
    known = (audit.manifest.get("statistics") or {}).get(kind) or {}
    histogram, share = known.get("histogram"), known.get("pi0")
    if not histogram or share is None:
        return []
    observed, null = (np.asarray(histogram[name], float) for name in ("observed", "null"))
    observed, null = observed / (observed.sum() or 1), null / (null.sum() or 1) * share
    edges = histogram["edges"]
    return [
        {
            "low": float(edges[i]),
            "high": float(edges[i + 1]),
            "all pairs": float(observed[i]),
            "mismatched": float(null[i]),
        }
        for i in range(len(observed))
    ]


def statistics_kinds(audit: "Audit") -> list[str]:
    """The kinds whose mismatches were estimated."""
    return [kind for kind in (audit.manifest.get("statistics") or {}) if null_curves(audit, kind)]


def corpus_problem(audit: "Audit") -> str | None:
    """Why no medium can be shown; None where the first usable one can be read."""
    rows = audit.page("status = 'ok'", limit=1).to_pylist()
    try:
        if rows:
            audit.media(rows[0])
    except (AuditorError, OSError) as error:
        return str(error)
    return None


def neighbour(
    audit: "Audit", condition: str | None, order_by: str | None, descending: bool, at: int
) -> dict[str, Any] | None:
    """The row at a place of a selection, for going from one to the next."""
    rows = audit.page(condition, order_by, descending, limit=1, offset=at).to_pylist() if at >= 0 else []
    return rows[0] if rows else None


def marks_of(audit: "Audit", uid: str, caption_index: int) -> list[dict[str, Any]]:
    """What each reviewer last said of a row."""
    return audit.database.rows(
        "SELECT reviewer, mark, note, time FROM reviews "
        f"WHERE uid = {literal(uid)} AND caption_index = {int(caption_index)} ORDER BY time DESC"
    )


def rows_file(audit: "Audit", condition: str | None, most: int = EXPORT_ROWS) -> bytes:
    """The rows of a selection, whatever their status, as Parquet; no more than `most`."""
    table = audit.database.run(f"SELECT * FROM samples WHERE {audit.where(condition)} LIMIT {int(most)}")
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()


def subset_file(audit: "Audit", rules: "Rules | Subset", form: str = "npy") -> bytes:
    """What `auditor filter --out kept.FORM` would write."""
    subset = audit.keep(**rules.to_dict()) if not hasattr(rules, "write") else rules
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / f"kept.{form}"
        subset.write(target)
        return target.read_bytes()


def beside(drawn: Sequence[Sequence[Mapping[str, Any]]], names: Sequence[str]) -> list[dict[str, Any]]:
    """Lists of records as one that says whose each is."""
    return [{**row, "audit": name} for rows, name in zip(drawn, names, strict=True) for row in rows]
