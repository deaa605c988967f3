"""Choose among the captions of a medium, or of a time span of one: by source, or the one that describes it best.

`prefer` keeps the captions of the first source in a list that has captions which meet all other rules. `best_caption`
keeps one caption: that with the lowest `badness`, then the most similar one. p_mismatch alone does not suffice, because
a caption that fits everything looks right to an encoder: one that the corpus repeats counts as bad as a pair of even
odds, and one that is no description at all (a URL, a refusal) as bad as a mismatched one.
"""

from collections.abc import Mapping

from auditor.query.database import AuditDatabase
from auditor.query.rules import RuleError, Rules
from auditor.query.sandbox import quote_literal
from auditor.schema import DEFECTS, NO_CAPTIONS

REPEATED_SHARE, FEWEST_REPEATS = 0.002, 10  # of the rows: a caption that occurs more often is boilerplate
MOST_SOURCES = 20  # that are compared; a corpus of somebody else may name any number
UNSCORED = 0.5  # badness of a caption without p_mismatch: worse than a sound one, better than a bad one
DESCRIBED = '(shard, key, coalesce("start", -1), coalesce("end", -1))'  # what a caption describes: a medium, or a span


def build_choice_clauses(database: AuditDatabase, rules: Rules, clauses: Mapping[str, str]) -> dict[str, str]:
    """Return the rules that choose among the captions that all other rules keep."""
    choices: dict[str, str] = {}
    if rules.prefer:
        check_sources(database, rules.prefer)
        rank = f"list_position({quote_literal(list(rules.prefer))}, caption_source)"
        passing = conjoin((*clauses.values(), f"{rank} > 0"))
        choices["prefer"] = build_choice_sql(database, passing, rank, f"min({rank})")
    if rules.best_caption:
        passing = conjoin((*clauses.values(), *choices.values()))
        best = f"arg_min(caption_index, row({build_order(database)}, caption_index))"
        choices["best_caption"] = build_choice_sql(database, passing, "caption_index", best)
    return choices


def build_choice_sql(database: AuditDatabase, passing: str, value: str, chosen: str) -> str:
    """SQL of the rows whose value is the chosen one among the passing rows that describe the same."""
    chosen_rows = f"SELECT {DESCRIBED}, {chosen} FROM {database.stored_table(passing)} WHERE {passing} GROUP BY ALL"
    return f"coalesce(({DESCRIBED}, {value}) IN ({chosen_rows}), FALSE)"


def build_order(database: AuditDatabase) -> str:
    """SQL of the terms that order the captions of a medium, the best first."""
    return f"{build_badness(database)}, -coalesce(similarity, -1)"


def build_badness(database: AuditDatabase) -> str:
    """SQL of how probably a caption should not stand beside its medium: 0 to 1."""
    worthless, flawed = (", ".join(map(quote_literal, names)) for names in (NO_CAPTIONS, DEFECTS))
    return (
        f"greatest(coalesce(p_mismatch, {UNSCORED}), CASE WHEN looks_like IN ({worthless}) THEN 1 "
        f"WHEN looks_like IN ({flawed}) OR {build_repeat_condition(database)} THEN 0.5 END)"
    )


def build_repeat_condition(database: AuditDatabase) -> str:
    """SQL of whether the corpus repeats a caption so often that it counts as boilerplate."""
    return f"caption_count >= {max(FEWEST_REPEATS, round(REPEATED_SHARE * database.counts['rows']))}"


def count_sources(database: AuditDatabase) -> dict[str, int]:
    """Return the rows of each source of captions, of the largest ones; none if the corpus has one source."""
    sql = (
        f"SELECT caption_source AS source, count(*) AS n FROM {database.table('caption_source')} "
        f"WHERE caption_source IS NOT NULL GROUP BY source ORDER BY n DESC, source LIMIT {MOST_SOURCES}"
    )
    rows = database.cached("caption sources", lambda: database.rows(sql))
    return {row["source"]: row["n"] for row in rows}


def list_sources(database: AuditDatabase) -> list[str]:
    """Return the sources of most captions in alphabetical order; none if the corpus has one."""
    return sorted(count_sources(database))


def check_sources(database: AuditDatabase, names: tuple[str, ...]) -> None:
    sources = list_sources(database)
    if not sources:
        raise RuleError("prefer: the captions of this audit have one source")
    if unknown := [name for name in names if name not in sources]:
        raise RuleError(f"prefer: no caption has the source {unknown[0]!r}; there are {', '.join(sources)}")


def conjoin(conditions: tuple[str, ...]) -> str:
    return " AND ".join(f"({sql})" for sql in conditions)
