"""Findings: what is wrong with a corpus, worst first, with examples, what it means and what to do.

The same list ends `auditor audit` and opens the summary, the report and the dashboard.
"""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from typing import Any

from auditor.notebook_view import NotebookView
from auditor.query.database import AuditDatabase
from auditor.query.distributions import summarize_time_shifts
from auditor.query.row_queries import find_worst_rows, read_rows_at
from auditor.report.finding_rules import FAULT_TITLES, FLAG_RULES, FindingRule, list_rules
from auditor.schema import COLUMNS, HIGH_IS_SUSPICIOUS
from auditor.terminal import escape_controls

MEDIUM = ("media_path", "media_offset", "media_size", "kind", "start", "end")  # what a thumbnail needs
PARTS = ("part_ends", "part_probabilities", "weakest_part")  # what the weak sentence of a caption needs
EXAMPLE = ("uid", "shard", "key", "caption_index", "caption", "status", "error_message", *MEDIUM, *PARTS)
EXAMPLES = 5
SHOWN = 8  # findings at the end of an audit
WEAKEST = 3
LONGEST_LINE = 240  # characters of a condition or command in a terminal


def describe_example(row: Mapping[str, Any]) -> str:
    """The key and the caption of a row, or what was wrong with it."""
    text = row["error_message"] if row["status"] != "ok" else row["caption"]
    words = " ".join((text or "").split())
    shortened = words if len(words) <= 60 else f"{words[:59]}…"
    return escape_controls(f"{row['key']}: {shortened!r}" if words else str(row["key"]))


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, with the condition that selects exactly its rows."""

    name: str
    title: str
    rows: int
    share: float  # of all rows
    also: int  # rows that have this defect, but count under another finding
    meaning: str
    advice: str  # a command
    where: str
    sort: str  # column that orders the rows, the clearest first; empty: corpus order
    examples: list[dict[str, Any]]
    interval: tuple[float, float] | None = None  # 95%, of the share in the whole corpus, if the audit is a sample

    @property
    def percent(self) -> str:
        if self.interval:
            return f"{self.share:.1%} ({100 * self.interval[0]:.1f} to {100 * self.interval[1]:.1f})"
        return "< 0.1%" if self.share < 0.0005 else f"{self.share:.1%}"

    def describe(self) -> str:
        """The meaning, and the number of rows with this defect that count under another finding."""
        return self.meaning + (f" Under other findings: {self.also:,} more." if self.also else "")

    def lines(self, *, short: bool) -> list[str]:
        first, example = f"{self.rows:>9,} {self.percent:>6}  ", describe_example(self.examples[0])
        advice = self.advice if len(self.advice) <= LONGEST_LINE else f"{self.advice[:LONGEST_LINE]}… (--json has all)"
        if short:
            return [f"{first}{self.title}, such as {example}", f"{'':18}{advice}"]
        where = [f"rows: {self.where}"] if len(self.where) <= LONGEST_LINE else []
        facts = [self.describe(), f"example: {example}", *where, advice]
        return [f"{first}{self.title}", *(f"{'':18}{escape_controls(fact)}" for fact in facts)]


@dataclass(frozen=True, slots=True)
class WeakSpot:
    """The row of a sound corpus that comes nearest to a limit."""

    column: str
    value: float
    limit: float
    example: dict[str, Any]

    def __str__(self) -> str:
        end = "from {:.3g} up" if self.column in HIGH_IS_SUSPICIOUS else "below {:.3g}"
        label, limit = COLUMNS[self.column].label, end.format(self.limit)
        return f"{label} {self.value:.3g} (a finding {limit}): {describe_example(self.example)}"

    @property
    def nearness(self) -> float:
        """1 at the limit, less if the value is far from it."""
        low, high = sorted((abs(self.value), abs(self.limit)))
        return low / high if high else 1.0


@dataclass(frozen=True)
class Findings(NotebookView):
    """All findings of an audit, worst first; if there are none, its weakest spots."""

    path: str
    items: list[Finding]
    weakest: list[WeakSpot] = field(default_factory=list)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def to_dict(self) -> dict[str, Any]:
        return {"findings": [asdict(finding) for finding in self], "weakest": [asdict(spot) for spot in self.weakest]}

    def lines(self, *, short: bool = False) -> list[str]:
        if not self.items:
            return ["nothing found" + "; the weakest spots:" * bool(self.weakest), *(f"  {s}" for s in self.weakest)]
        first = self.items[:SHOWN] if short else self.items
        lines = [line for finding in first for line in finding.lines(short=short)]
        if rest := len(self) - len(first):
            lines.append(f"{rest} more: auditor summary {quote_for_shell(self.path)}")
        sample = " (shares of the whole corpus, 95%)" * any(finding.interval for finding in self)
        return [f"findings, worst first{sample}:", *lines]

    def __str__(self) -> str:
        return "\n".join(self.lines())


@dataclass(slots=True)
class RuleRows:
    """The rows that meet one rule, counted in a pass over all rows."""

    rows: int = 0
    also: int = 0
    covered_by: set[int] = field(default_factory=set)  # rules of higher precedence that take some of its rows
    places: list[dict[str, Any]] = field(default_factory=list)  # of the clearest rows of each group

    def list_examples(self) -> list[dict[str, Any]]:
        self.places.sort(key=lambda place: (place["sort"], place["file"], place["file_row_number"]))
        return self.places[:EXAMPLES]


def find_findings(database: AuditDatabase) -> Findings:
    """List what is wrong with the rows, worst first. A defect counts under one finding only."""
    rules = list_rules(database)
    counts = count_rule_rows(database, rules)
    total = database.counts["rows"]
    numbers = [number for number, count in enumerate(counts) if count.rows]
    numbers.sort(key=lambda number: -rules[number].harm * counts[number].rows)
    places = [counts[number].list_examples() for number in numbers]
    rows = iter(read_rows_at(database, list(chain(*places)), EXAMPLE).to_pylist())
    findings = [
        build_finding(database, rules, counts, number, total, [next(rows) for _ in own_places])
        for number, own_places in zip(numbers, places, strict=True)
    ]
    if database.manifest.get("sample"):
        findings = add_intervals(database, findings)
    return Findings(database.path, findings, [] if findings else find_weak_spots(database, rules))


def add_intervals(database: AuditDatabase, findings: list[Finding]) -> list[Finding]:
    """Add the intervals of a sample; its copies and faults say nothing about the whole corpus."""
    from auditor.report.sampled_shares import estimate_intervals  # few audits are samples

    sums = [(f"count(*) FILTER ({database.where(finding.where)})", "count(*)") for finding in findings]
    return [
        finding if finding.name in (*FAULT_TITLES, "duplicates") else replace(finding, interval=interval)
        for finding, interval in zip(findings, estimate_intervals(database, sums), strict=True)
    ]


def count_rule_rows(database: AuditDatabase, rules: list[FindingRule]) -> list[RuleRows]:
    """Count the rows of each rule in one pass: rows are grouped by the set of rules that they meet."""
    mask = build_mask_sql(database, rules)
    order = build_mask_order_sql(rules)
    source = database.placed_table(mask, order)
    place = "{'sort': rule_order, 'file': file, 'file_row_number': file_row_number}"
    # Rows without a defect are left out of the examples, not by WHERE: DuckDB would compute the mask there once more.
    groups = database.stored_rows(
        "findings",
        f"SELECT rule_mask AS mask, count(*) AS n, min({place}, {EXAMPLES}) FILTER (rule_mask <> 0) AS places FROM "
        f"(SELECT *, {order} AS rule_order FROM (SELECT *, {mask} AS rule_mask FROM {source})) GROUP BY rule_mask",
    )
    counts = [RuleRows() for _ in rules]
    for group in groups:
        numbers = [number for number in range(len(rules)) if group["mask"] >> number & 1]
        first = next((number for number in numbers if not rules[number].apart), -1)
        for number in numbers:
            if number == first or rules[number].apart:
                counts[number].rows += group["n"]
                counts[number].places += group["places"]
            else:
                counts[number].also += group["n"]
                counts[number].covered_by.add(first)
    return counts


def build_mask_sql(database: AuditDatabase, rules: list[FindingRule]) -> str:
    """A bit for each rule that a row meets. Conditions of faults come from a file, so they are checked."""
    usable, others = ["0::BIGINT"], ["0::BIGINT"]
    for number, rule in enumerate(rules):
        condition = database.where(rule.condition) if rule.name in FAULT_TITLES else rule.defect
        bit = f"CASE WHEN {condition} THEN {1 << number}::BIGINT ELSE 0 END"
        (usable if rule.usable and rule.name not in FAULT_TITLES else others).append(bit)
    return f"CASE WHEN status = 'ok' THEN {' | '.join(usable)} ELSE 0 END | {' | '.join(others)}"


def build_mask_order_sql(rules: list[FindingRule]) -> str:
    """The order of a row among those with the same mask, by its first rule; rules with one order share a case."""
    bits: dict[str, int] = {}
    for number, rule in enumerate(rules):
        order = build_order_sql(rule)
        bits[order] = bits.get(order, 0) | 1 << number
    cases = (f"WHEN rule_mask & -rule_mask & {mask} <> 0 THEN {order}" for order, mask in bits.items())
    return f"CASE WHEN rule_mask = 0 THEN NULL {' '.join(cases)} END"


def build_order_sql(rule: FindingRule) -> str:
    """A list that orders the rows of a rule, the clearest first."""
    column = COLUMNS.get(rule.sort_column)
    names = [name for name in (column.name, column.tie_breaker) if name] if column else []
    numbers = [f"coalesce({'-' if name in HIGH_IS_SUSPICIOUS else ''}{name}, 1e30)::DOUBLE" for name in names]
    return f"[{', '.join(numbers or ['0::DOUBLE'])}]"


def quote_for_shell(text: str) -> str:
    """Quote an argument; SQL with its single quotes stays readable in double quotes."""
    return f'"{text}"' if "'" in text and not set(text) & set('"$`\\!\n') else shlex.quote(text)


def build_finding(
    database: AuditDatabase,
    rules: list[FindingRule],
    counts: list[RuleRows],
    number: int,
    total: int,
    examples: list[dict[str, Any]],
) -> Finding:
    rule, count = rules[number], counts[number]
    exceptions = [f"{rules[rule_number].defect} IS NOT TRUE" for rule_number in sorted(count.covered_by)]
    where = " AND ".join([rule.condition, *exceptions])
    shifts = summarize_time_shifts(database) if rule.name == "out_of_sync" else None
    corpus = database.manifest.get("corpus", {})
    parts = {
        "audit": database.path,
        "corpus": corpus.get("spec") or corpus.get("root") or "CORPUS",
        "sound_rows": f"{rule.defect} IS NOT TRUE",
        "query": f"SELECT shard, key, caption, error_message FROM samples WHERE {where}",
    }
    advice = rule.advice.format(**{name: quote_for_shell(str(part)) for name, part in parts.items()})
    return Finding(
        name=rule.name,
        title=rule.title,
        rows=count.rows,
        share=count.rows / total,
        also=count.also,
        meaning=rule.meaning + (f" Videos: {shifts.words()}." if shifts else ""),
        advice=advice,
        where=where,
        sort=rule.sort_column,
        examples=examples,
    )


def find_weak_spots(database: AuditDatabase, rules: list[FindingRule]) -> list[WeakSpot]:
    """The values of usable rows that come nearest to a limit, at most one for each column."""
    limits = [item for rule in rules for item in rule.limits.items()]
    limits += [(rule.sort, database.thresholds[rule.name]) for rule in FLAG_RULES]
    spots = [spot for limit in limits if (spot := find_nearest_row(database, *limit))]
    spots.sort(key=lambda spot: -spot.nearness)
    return list({spot.column: spot for spot in reversed(spots)}.values())[::-1][:WEAKEST]


def find_nearest_row(database: AuditDatabase, column: str, limit: float) -> WeakSpot | None:
    rows = find_worst_rows(database, column, 1, "status = 'ok'").select([column, *EXAMPLE]).to_pylist()
    return WeakSpot(column, rows[0][column], limit, rows[0]) if rows else None
