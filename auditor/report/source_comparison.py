"""The sources of captions of an audit side by side: one table for the summary, compare, the report and the dashboard.

Each source has the shares of its defects, as the page Shards shows them, and its usual length and language. Two sources
are compared on the media that have both: one is better if its best caption is less probably bad (`badness` in
auditor/keep/caption_choice.py), by more than a MARGIN; an exact sign test says whether the counts may be chance.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from auditor.keep.caption_choice import DESCRIBED, build_badness, build_repeat_condition, list_sources
from auditor.query.database import AuditDatabase
from auditor.query.sandbox import quote_literal
from auditor.schema import NO_CAPTIONS

if TYPE_CHECKING:
    from auditor.query.corpus_groups import Group
    from auditor.score.group_shares import GroupShare

MOST_ROWS = 5_000_000  # of the media that are compared; of more, a random part is
MARGIN = 0.1  # of the probability that a caption is bad: smaller differences do not count
FEWEST_DETECTED = 10  # captions with a language: short titles and keywords seldom have one
SIGNIFICANT = 0.05  # p-value of the sign test
MOST_DUELS = 6  # of four sources; of more, only significant ones are listed


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """The captions of one source; shares are of its usable rows."""

    group: "Group"
    no_caption: float  # URLs, file names, refusals, ...
    repeated: float  # captions that the corpus repeats
    words: float  # mean
    language: str | None  # the most frequent one; None if it was detected in fewer than FEWEST_DETECTED captions
    language_share: float  # of the captions whose language was detected

    def tabulate(self) -> dict[str, str]:
        return {
            "source": self.group.name,
            "captions": f"{self.group.rows:,}",
            "mismatched": format_group_share(self.group.mismatched),
            "ambiguous": format_group_share(self.group.ambiguous),
            "boilerplate": f"{self.repeated:.1%}",
            "no caption": f"{self.no_caption:.1%}",
            "words": f"{self.words:.1f}",
            "language": f"{self.language} {self.language_share:.0%}" if self.language else "",
        }


@dataclass(frozen=True, slots=True)
class SourceDuel:
    """Two sources on the media that have captions of both."""

    first: str
    second: str
    media: int
    first_better: int
    second_better: int
    p_value: float  # two-sided sign test

    def __str__(self) -> str:
        counts = f"{self.first} is better for {self.first_better:,} media, {self.second} for {self.second_better:,}"
        note = "" if self.p_value <= SIGNIFICANT else ", not significant"
        alike = self.media - self.first_better - self.second_better
        return f"{counts}, alike for {alike:,} (sign test: p = {self.p_value:.2g}{note})"


@dataclass(frozen=True, slots=True)
class SourceComparison:
    """The sources of an audit; empty if its captions have one source."""

    sources: list[SourceFacts]
    duels: list[SourceDuel]
    sampled: bool = False  # the duels count a random part of the media

    def tabulate(self) -> list[dict[str, str]]:
        return [source.tabulate() for source in self.sources]

    def lines(self) -> list[str]:
        """The duels; of many, those that are significant. Without estimates, only texts have been compared."""
        shown = [duel for duel in self.duels if len(self.duels) <= MOST_DUELS or duel.p_value <= SIGNIFICANT]
        lines = [str(duel) for duel in shown]
        if hidden := len(self.duels) - len(shown):
            lines.append(f"no significant difference between the other {hidden:,} pairs of sources")
        if self.duels and not any(source.group.mismatched for source in self.sources):
            lines.append("no caption has an estimate of p_mismatch: only defects of the texts are compared")
        return lines + ["counted on a random part of the media"] * self.sampled

    def to_dict(self) -> dict[str, Any]:
        duels = [{name: getattr(duel, name) for name in SourceDuel.__slots__} for duel in self.duels]
        return {"sources": [describe_source(source) for source in self.sources], "duels": duels}


def describe_source(source: SourceFacts) -> dict[str, Any]:
    shares: Mapping[str, GroupShare | None] = {
        "mismatched": source.group.mismatched,
        "ambiguous": source.group.ambiguous,
    }
    values = {name: getattr(source, name) for name in SourceFacts.__slots__ if name != "group"}
    intervals = {name: {"share": x.share, "low": x.low, "high": x.high} for name, x in shares.items() if x}
    return {"source": source.group.name, "rows": source.group.rows, **intervals, **values}


def format_group_share(share: "GroupShare | None") -> str:
    return f"{share.share:.1%} ({100 * share.low:.1f} to {100 * share.high:.1f})" if share else ""


def compare_sources(database: AuditDatabase) -> SourceComparison:
    names = list_sources(database)
    if not names:
        return SourceComparison([], [])
    from auditor.query.corpus_groups import group_rows  # few audits have several sources

    listed = f"status = 'ok' AND caption_source IN ({', '.join(map(quote_literal, names))})"
    facts = {row["source"]: row for row in measure_source_texts(database, listed)}
    groups = [group for group in group_rows(database, "caption_source").groups if group.name in facts]
    sources = [build_source_facts(group, facts[group.name]) for group in groups]
    step = -(-int(database.counts["rows"]) // MOST_ROWS)
    return SourceComparison(sources, compare_by_medium(database, listed, step), step > 1)


def measure_source_texts(database: AuditDatabase, where: str) -> list[dict[str, Any]]:
    listed = ", ".join(f"'{name}'" for name in NO_CAPTIONS)
    table = database.table("caption_source status words language looks_like caption_count")
    return database.rows(
        "WITH parts AS (SELECT caption_source AS source, language, count(*) AS n, sum(words) AS words, "
        f"count(*) FILTER (looks_like IN ({listed})) AS no_caption, "
        f"count(*) FILTER ({build_repeat_condition(database)}) AS repeated "
        f"FROM {table} WHERE {where} GROUP BY ALL) "
        "SELECT source, sum(n) AS rows, sum(words) / sum(n) AS words, sum(no_caption) AS no_caption, "
        "sum(n) FILTER (language IS NOT NULL) AS detected, "
        "sum(repeated) AS repeated, arg_max(language, n) FILTER (language IS NOT NULL) AS language, "
        "max(n) FILTER (language IS NOT NULL) AS speakers FROM parts GROUP BY source"
    )


def build_source_facts(group: "Group", row: Mapping[str, Any]) -> SourceFacts:
    no_caption, repeated = (float(row[name] / row["rows"]) for name in ("no_caption", "repeated"))
    speakers = float((row["speakers"] or 0) / (row["detected"] or 1))
    language = row["language"] if (row["detected"] or 0) >= FEWEST_DETECTED else None
    return SourceFacts(group, no_caption, repeated, float(row["words"] or 0), language, speakers)


def compare_by_medium(database: AuditDatabase, where: str, step: int = 1) -> list[SourceDuel]:
    """Count the media for which one of two sources is better, on one key of `step`, drawn by its hash."""
    from scipy.stats import binomtest

    duels = database.rows(
        f"WITH best AS (SELECT {DESCRIBED} AS described, caption_source AS source, "
        f"min({build_badness(database)}) AS bad FROM {database.stored_table()} "
        f"WHERE {where} AND hash(key) % {step} = 0 GROUP BY ALL) "
        "SELECT a.source AS first, b.source AS second, count(*) AS media, "
        f"count(*) FILTER (a.bad < b.bad - {MARGIN}) AS first_better, "
        f"count(*) FILTER (b.bad < a.bad - {MARGIN}) AS second_better "
        "FROM best a JOIN best b ON a.described = b.described AND a.source < b.source GROUP BY ALL ORDER BY ALL"
    )
    tests = [
        binomtest(duel["first_better"], duel["first_better"] + duel["second_better"]).pvalue
        if duel["first_better"] + duel["second_better"]
        else 1.0
        for duel in duels
    ]
    return [SourceDuel(**duel, p_value=float(p_value)) for duel, p_value in zip(duels, tests, strict=True)]
