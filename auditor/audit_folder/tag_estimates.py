"""What is known of prompt columns: the prompts, the model, and the share of media that each fits, by kind of medium.

The records stand in columns/<source>/about.json beside the columns, and are checked when they are read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from auditor.audit_folder.extra_columns import ColumnSource, name_about_file
from auditor.audit_folder.json_validation import NUMBER, CompleteShape, find_shape_error
from auditor.errors import AuditError

TAGS = "tags"  # the field of about.json
MARGIN = "_margin"  # end of the name of the column that holds the margins
OPTIONAL = (*NUMBER, type(None))
SHARE_SHAPE = CompleteShape(media=int, share=OPTIONAL, low=OPTIONAL, high=OPTIONAL, reason=str)
TAG_SHAPE = CompleteShape(
    column=str, texts=[str], against=[str], model=str, examples=int, auroc=[NUMBER], shares={"": SHARE_SHAPE}
)


@dataclass(frozen=True, slots=True)
class TagShare:
    """The share of the media of a kind that a prompt fits, with its 90% interval; or why there is no estimate."""

    media: int
    share: float | None = None
    low: float | None = None
    high: float | None = None
    reason: str = ""

    def words(self) -> str:
        """For example: 3.1% (2.6 to 3.7)."""
        if self.share is None or self.low is None or self.high is None:
            return f"no estimate: {self.reason}"
        return f"{100 * self.share:.3g}% ({100 * self.low:.3g} to {100 * self.high:.3g})"


@dataclass(frozen=True, slots=True)
class Tag:
    """A prompt column: the probability that a medium shows what the prompt, or the examples, say."""

    column: str
    texts: Sequence[str]
    against: Sequence[str]
    model: str
    shares: Mapping[str, TagShare]  # by kind of medium
    examples: int = 0  # marked rows that it was learned from, instead of texts
    auroc: Sequence[float] = ()  # of the examples, cross-fitted, and its 90% interval

    @property
    def margin(self) -> str:
        """The column of the margins, which has values even if there is no estimate."""
        return f"{self.column}{MARGIN}"

    @property
    def origin(self) -> str:
        if self.examples:
            area, low, high = self.auroc
            return f"learned from {self.examples:,} examples, AUROC {area:.3f}, {low:.2f} to {high:.2f}"
        quoted = (" / ".join(texts) for texts in (self.texts, self.against))
        return " against ".join(f'"{text}"' for text in quoted)

    def words(self) -> str:
        """The shares, with the kind if there are several."""
        shares = self.shares.items()
        return "; ".join(f"{kind}s: {share.words()}" if len(shares) > 1 else share.words() for kind, share in shares)

    def describe_row(self, row: Mapping[str, Any]) -> str:
        """The value of a row, for example: watermark ("a watermark" against "a photo"): probability 0.932."""
        p, margin = row.get(self.column), row.get(self.margin)
        value = f"probability {p:.3g}" if p is not None else "no estimate"
        return f"{self.column} ({self.origin}): {value}, margin {'none' if margin is None else f'{margin:.3g}'}"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def list_tags(sources: Sequence[ColumnSource]) -> list[Tag]:
    return [parse_tag(source, record) for source in sources for record in list_tag_records(source)]


def list_tag_records(source: ColumnSource) -> list[Any]:
    records = source.about.get(TAGS, [])
    if error := find_shape_error(records, [TAG_SHAPE], TAGS):
        raise AuditError(f"{name_about_file(source.name)} is damaged: {error}; run `auditor tag --force` again")
    return list(records)


def parse_tag(source: ColumnSource, record: Mapping[str, Any]) -> Tag:
    if record["column"] not in source.columns or (record["examples"] and len(record["auroc"]) != 3):
        raise AuditError(f"{name_about_file(source.name)} is damaged: no column {record['column']!r}, or no AUROC")
    shares = {kind: TagShare(**share) for kind, share in record["shares"].items()}
    tuples = {name: tuple(record[name]) for name in ("texts", "against", "auroc")}
    return Tag(**{**record, **tuples, "shares": shares})
