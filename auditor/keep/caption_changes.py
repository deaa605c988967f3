"""What exports change in captions, as one SQL expression over the rows of an audit.

A caption that a person has edited is written as edited. Any other loses its weak parts (`drop_weak_parts`) and then its
preamble (`strip_preamble`). A caption whose parts are all weak is not kept, and no caption is ever written empty.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from auditor.audit_folder.edit_records import ROW_COLUMNS, CaptionEdit
from auditor.query.database import AuditDatabase
from auditor.query.rules import Rules
from auditor.query.sandbox import Sandbox, quote_literal
from auditor.schema import ORIGINAL_CAPTION

EDITS = pa.schema(
    [("shard", pa.string()), ("uid", pa.string()), ("caption_index", pa.int32()), ("edited", pa.string())]
)
BLANKS = r"\s\p{Z}"

EditedRow = tuple[dict[str, Any], list[CaptionEdit]]  # the applied edit is first


@dataclass(frozen=True)
class CaptionChanges:
    """The changes that the rules of an export ask for; `edits` are the edited rows with their texts."""

    drop_weak_parts: float | None = None
    strip_preamble: bool = False
    edits: pa.Table | None = None

    def __bool__(self) -> bool:
        return self.drop_weak_parts is not None or self.strip_preamble or self.edits is not None

    @cached_property
    def table(self) -> str:
        """The table of edits in a sandbox, named by its content: other exports may have other edits."""
        content = repr(self.edits.to_pylist() if self.edits is not None else None).encode(errors="replace")
        return f"caption_edits_{hashlib.blake2b(content, digest_size=8).hexdigest()}"

    @property
    def identity(self) -> tuple[float | None, bool, str]:
        return self.drop_weak_parts, self.strip_preamble, self.table

    def define(self, sandbox: Sandbox) -> None:
        """Make the table of edits in a sandbox in which `caption` is used."""
        if self.edits is not None:
            sandbox.load_table(self.table, self.edits)

    @property
    def caption(self) -> str:
        """SQL expression of the caption that is written, over rows named `samples`; NULL if all its parts are weak."""
        return f"coalesce({self.edit}, {build_stripped_sql(self.whole) if self.strip_preamble else self.whole})"

    @property
    def edit(self) -> str:
        """SQL expression of the caption as a person has edited it, or NULL."""
        if self.edits is None:
            return "CAST(NULL AS VARCHAR)"
        return (
            f"(SELECT edited FROM {self.table} AS edit "
            "WHERE edit.uid = samples.uid AND edit.caption_index = samples.caption_index)"
        )

    @property
    def whole(self) -> str:
        """SQL expression of the caption without its weak parts."""
        return "samples.caption" if self.drop_weak_parts is None else build_parts_sql(self.drop_weak_parts)

    @property
    def condition(self) -> str:
        """SQL condition of the rows whose caption does not lose all its parts."""
        edited = (
            f"(uid, caption_index) IN (SELECT (uid, caption_index) FROM {self.table}) OR "
            if self.edits is not None
            else ""
        )
        return f"{edited}{self.whole} IS NOT NULL"

    def columns(self, names: Iterable[str]) -> list[str]:
        """The columns of an export: with the original caption, where it differs, if captions change."""
        return [column for name in names for column in (name, *[ORIGINAL_CAPTION] * (name == "caption" and bool(self)))]

    def select(self, name: str) -> str | None:
        """SQL of a column of an export that is not a column of the audit, or None."""
        columns = {"caption": self.caption, ORIGINAL_CAPTION: f"nullif(samples.caption, {self.caption})"}
        return f"{columns[name]} AS {name}" if self and name in columns else None

    def count(self, database: AuditDatabase, from_clause: str) -> dict[str, int]:
        """Count the captions that change, by what changes them; empty if nothing can change."""
        if not self:
            return {}
        captions = f"caption, {self.edit} AS edited, {self.whole} AS whole, {self.caption} AS exported"
        counts = {
            "changed": "exported IS DISTINCT FROM caption",
            "edited": "edited IS DISTINCT FROM caption AND edited IS NOT NULL",
            "without_weak_parts": "edited IS NULL AND whole IS DISTINCT FROM caption",
            "without_preamble": "edited IS NULL AND exported IS DISTINCT FROM whole",
        }
        listed = ", ".join(f"count(*) FILTER ({condition}) AS {name}" for name, condition in counts.items())
        return database.rows(f"SELECT {listed} FROM (SELECT {captions} FROM {from_clause})")[0]


def build_parts_sql(limit: float) -> str:
    """SQL expression of a caption without the parts that are mismatched with more than a probability.

    NULL if nothing is left. A caption whose parts are not consistent with it is not changed.
    """
    ends, probabilities = "string_split(part_ends, ' ')", "string_split(part_probabilities, ' ')"
    is_sound = (
        f"len({ends}) > 1 AND len({ends}) = len({probabilities}) AND "
        f"TRY_CAST({ends}[-1] AS INTEGER) = length(samples.caption)"
    )
    is_strong = f"coalesce(TRY_CAST({probabilities}[part] AS FLOAT) <= CAST('{float(limit)}' AS FLOAT), TRUE)"
    strong = f"list_filter(range(1, len({ends}) + 1), lambda part: {is_strong})"
    start, end = (f"coalesce(TRY_CAST({ends}[part{shift}] AS INTEGER), 0)" for shift in (" - 1", ""))
    texts = f"list_transform({strong}, lambda part: samples.caption[{start} + 1 : {end}])"
    joined = rf"regexp_replace(array_to_string({texts}, ''), '^[{BLANKS}]+|[{BLANKS},;:]+$', '', 'g')"
    return (
        f"CASE WHEN coalesce({is_sound} AND len({strong}) < len({ends}), FALSE) "
        f"THEN nullif({joined}, '') ELSE samples.caption END"
    )


def build_stripped_sql(caption: str) -> str:
    """SQL expression of a caption without its preamble, with a capital letter; unchanged if nothing else is left."""
    rest = rf"regexp_replace(substring(text, length(preamble) + 1), '^[{BLANKS},:]+', '')"
    stripped = (
        f"CASE WHEN preamble <> '' AND starts_with(text, preamble) AND {rest} <> '' "
        f"THEN upper({rest}[1]) || {rest}[2:] ELSE text END"
    )
    return f"list_transform([{caption}], lambda text: {stripped})[1]"


def read_caption_changes(database: AuditDatabase, rules: Rules) -> CaptionChanges:
    """The changes that rules ask for, with the edits as they are now, ready to be used in the audit's sandbox."""
    rows = [] if rules.no_edits else list_applied_edits(database)
    changes = CaptionChanges(rules.drop_weak_parts, rules.strip_preamble, build_edit_table(rows) if rows else None)
    changes.define(database.sandbox)
    return changes


def list_applied_edits(database: AuditDatabase) -> list[EditedRow]:
    """The rows that are edited, with their edits."""
    edits = database.read_row_edits()
    rows = fetch_candidate_rows(database, {key for key, _ in edits.by_caption})
    return [(row, row_edits) for row in rows if (row_edits := edits.find(row))]


def fetch_candidate_rows(database: AuditDatabase, keys: Iterable[str]) -> list[dict[str, Any]]:
    """The rows of some keys that have a caption."""
    if not (listed := sorted(keys)):
        return []
    columns = ", ".join(ROW_COLUMNS)
    return database.rows(
        f"SELECT {columns}, caption FROM measured WHERE caption <> '' AND "
        f"key IN (SELECT unnest({quote_literal(listed)})) ORDER BY shard, key, caption_index"
    )


def build_edit_table(rows: Iterable[EditedRow]) -> pa.Table:
    return pa.Table.from_pylist([{**row, "edited": edits[0].new_caption} for row, edits in rows], EDITS)
