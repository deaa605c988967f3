"""All columns in their order on disk, and the lists that follow from their declarations."""

from collections.abc import Iterable

from auditor.schema.ambiguity_columns import AMBIGUITY
from auditor.schema.caption_columns import CAPTIONS
from auditor.schema.column import Column, Group, Use
from auditor.schema.duplicate_columns import COPIES
from auditor.schema.flags import FLAGS
from auditor.schema.medium_columns import MEDIA
from auditor.schema.mismatch_columns import MISMATCH
from auditor.schema.moment_columns import MOMENTS
from auditor.schema.row_columns import IDENTITY, ORIGIN

COLUMNS: dict[str, Column] = {
    column.name: column
    for column in (
        # What the sweep finds out; the same in embeddings/ and samples/.
        *IDENTITY,
        *CAPTIONS,
        *MEDIA,
        *ORIGIN,
        # What scoring adds; empty where status is not ok.
        *AMBIGUITY,
        *MISMATCH,
        *MOMENTS,
        *COPIES,
        *(
            Column(flag.name, "bool", flag.label.capitalize(), flag.meaning, "flag", suspicious="high")
            for flag in FLAGS.values()
        ),
        Column("review", "string", "Review", "what most reviewers say of the row", "review"),
    )
}


def named(*, use: Iterable[Use] = (), group: Iterable[Group] = ()) -> tuple[str, ...]:
    """Names of the columns of some uses or groups: headlines first, the others in their order on disk."""
    found = [c for c in COLUMNS.values() if c.use in tuple(use) or c.group in tuple(group)]
    return tuple(c.name for c in (sorted(found, key=lambda c: c.place) if use else found))


FACTS = named(group=["fact"])
SCORES = named(group=["score"])
STORED = (*FACTS, *SCORES)  # the columns of samples/; flags and reviews are joined by the view
HEADLINES = named(use=["headline"])
HIGH_IS_SUSPICIOUS = frozenset(name for name, column in COLUMNS.items() if column.suspicious == "high")
MEASUREMENTS = named(use=["headline", "measurement"])


def order_sql(column: str, *, suspicious_first: bool, quoted: str | None = None) -> str:
    """ORDER BY a column; rows with equal values by the one behind it, most suspicious at the same end."""
    known = COLUMNS.get(column)
    high = (known is not None and known.suspicious == "high") == suspicious_first
    order = f"{quoted or column} {'DESC' if high else 'ASC'} NULLS LAST"
    if known is None or not known.ties_by:
        return order
    return f"{order}, {order_sql(known.ties_by, suspicious_first=suspicious_first)}"


RULES: dict[str, Column] = {
    column.rule_name: column for column in sorted(COLUMNS.values(), key=lambda column: column.place) if column.rule
}
