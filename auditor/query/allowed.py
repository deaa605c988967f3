"""What SQL written by a user may say: which functions, types and tables, checked on DuckDB's syntax tree.

DuckDB's memory limit does not see the strings and lists that functions build, and its interrupt waits for a function
to return. So what is not listed here is refused: every listed function gives a result of bounded size, or one no longer
than its longest argument, in time that grows no faster than its arguments. Text may be joined, and compared letter by
letter, only where it is cut first: left(caption, 200). Nor does an interrupt reach DuckDB while it plans, so a query is
measured before as it will be planned, with every WITH, alias and * written out.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from auditor.errors import AuditorError

TABLES = frozenset({"samples", "reviews"})
TABLE_FUNCTIONS = frozenset({"range", "generate_series", "unnest"})
SHORT = 200  # characters of a text that may be joined or compared letter by letter
MOST_JOINS = 50  # of short texts, in a query
LONGEST_PATTERN = 200
LONGEST_TEXT = 1000  # of a constant
MOST_COLUMNS = 300  # of a result
MOST_TABLES = 16  # of a query as it is planned
MOST_TERMS = 50_000  # likewise: columns, constants, functions
MOST_GROUPINGS = 200  # of CUBE, ROLLUP and GROUPING SETS
WIDE = 100  # columns, about, that * stands for

FUNCTIONS: dict[str, frozenset[str]] = {
    family: frozenset(names.split())
    for family, names in {
        "operators": "+ - * / // % ** ^ & | << >> ~ ! @ < > <= >= = != <> + __between between",
        "logic": "coalesce nullif if ifnull greatest least constant_or_null",
        "numbers": """abs acos asin atan atan2 cbrt ceil ceiling cos cot degrees even exp fdiv floor fmod gcd isfinite
            isinf isnan lcm ln log log10 log2 mod pi pow power radians random round round_even sign signbit sin
            sqrt tan trunc hash add subtract multiply divide sinh cosh tanh""",
        "text": """contains starts_with ends_with prefix suffix ^@ instr strpos position length len char_length
            character_length strlen octet_length bit_length ascii unicode ord lower upper lcase ucase trim ltrim
            rtrim left right substr substring left_grapheme right_grapheme substring_grapheme length_grapheme
            reverse strip_accents nfc_normalize md5 sha1 sha256 array_extract array_slice list_extract
            list_element list_slice list_contains list_has parse_filename parse_dirname typeof""",
        "patterns": """~~ !~~ ~~* !~~* ~~~ like_escape not_like_escape ilike_escape not_ilike_escape regexp_matches
            regexp_full_match regexp_extract""",
        "short texts": "|| concat concat_ws levenshtein editdist3 damerau_levenshtein jaccard jaro_similarity "
        "jaro_winkler_similarity hamming mismatches",
        "dates": """age century current_date date_add date_diff date_part date_sub date_trunc datediff datepart datesub
            datetrunc day dayname dayofmonth dayofweek dayofyear epoch epoch_ms hour last_day make_date
            make_timestamp minute month monthname now quarter second strptime time_bucket to_days to_hours
            to_minutes to_months to_seconds to_timestamp to_weeks to_years today try_strptime week weekday year
            yearweek""",
        "aggregates": """any_value approx_count_distinct approx_quantile arbitrary arg_max arg_min argmax argmin avg
            bit_and bit_or bit_xor bool_and bool_or corr count count_if count_star countif covar_pop covar_samp favg
            first fsum geomean kahan_sum kurtosis last max max_by mean median min min_by mad product quantile
            quantile_cont quantile_disc regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope
            regr_sxx regr_sxy regr_syy sem skewness stddev stddev_pop stddev_samp sum sumkahan var_pop var_samp
            variance""",
        "windows": """cume_dist dense_rank fill first_value lag last_value lead nth_value ntile percent_rank rank
            row_number""",
        "lists": "list_value unnest",
    }.items()
}
ALLOWED = frozenset().union(*FUNCTIONS.values())
MOST_ARGUMENTS = {"min": 1, "max": 1, "max_by": 2, "min_by": 2, "argmax": 2, "argmin": 2, "arg_max": 2, "arg_min": 2}
CUTS = {"left": 2, "right": 2, "substr": 3, "substring": 3}  # and how many arguments; the last is a length
SAME_SIZE = frozenset({"lower", "upper", "trim", "ltrim", "rtrim", "coalesce", "strip_accents"})
JOINS = frozenset({"||", "concat", "concat_ws"})
NUMBERS = """TINYINT SMALLINT INTEGER INT INT2 INT4 INT8 BIGINT LONG HUGEINT UTINYINT USMALLINT UINTEGER UBIGINT FLOAT
    REAL DOUBLE FLOAT4 FLOAT8 DECIMAL NUMERIC"""
OTHERS = "BOOLEAN BOOL DATE TIME TIMESTAMP TIMESTAMPTZ DATETIME INTERVAL VARCHAR TEXT STRING UUID"
TYPES = frozenset([*NUMBERS.split(), *OTHERS.split(), "TIMESTAMP WITH TIME ZONE"])
COLLATIONS = frozenset({"nocase", "noaccent", "nocase.noaccent", "nfc"})
IDENTIFIER = re.compile(r"[A-Za-z_]\w*\Z")

Node = dict[str, Any]


class QueryError(AuditorError):
    """A query that cannot be run; the message is DuckDB's or ours, without its drawing of the position."""


def check_tree(tree: Node) -> None:
    """Refuse what is not listed. The locked engine is the second wall behind this one."""
    every = list(nodes(tree))
    rows = row_names(every)
    tabular = {id(node["function"]) for node in every if node.get("type") == "TABLE_FUNCTION"}
    if sum(node.get("function_name", "").lower() in JOINS for node in every) > MOST_JOINS:
        raise QueryError(f"a query may join texts {MOST_JOINS} times at most")
    for node in every:
        kind = node.get("type")
        if len(node.get("group_sets") or ()) > MOST_GROUPINGS:
            raise QueryError(f"a query may group its rows in {MOST_GROUPINGS} ways at most")
        if kind == "SHOW_REF" and node.get("table_name"):
            raise QueryError("SHOW is not available; DESCRIBE samples lists the columns")
        if kind == "TABLE_FUNCTION":
            check_table_function(node["function"])
        elif "function_name" in node and id(node) not in tabular:
            check_function(node)
        elif node.get("class") == "CONSTANT" and len(text_of(node)) > LONGEST_TEXT:
            raise QueryError(f"a text in a query may have {LONGEST_TEXT:,} characters at most")
        elif node.get("class") == "CAST":
            check_type(node.get("type_expr") or {})
        elif kind == "COLUMN_REF" and (name := node["column_names"][-1].lower()) and (name in rows or unnamed(name)):
            raise QueryError(f"{name} is a table, not a column: name the columns that you want")
        elif kind == "COLLATE" and node.get("collation", "").lower() not in COLLATIONS:
            raise QueryError(f"the collation {node.get('collation')} is not available in a query on an audit")
    check_tables(tree)
    try:
        size_of(tree, {}, {})
    except RecursionError:
        raise QueryError("is nested too deeply") from None


def nodes(tree: Any) -> Iterator[Node]:
    """Every object in a syntax tree, without recursion."""
    waiting = [tree]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            yield item
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)


# -- tables ------------------------------------------------------------------------------------------------------


def check_tables(tree: Any) -> None:
    """Every table that is named is the audit's, or a WITH of the query around it."""
    waiting: list[tuple[Any, frozenset[str]]] = [(tree, TABLES)]
    while waiting:
        item, known = waiting.pop()
        if isinstance(item, list):
            waiting.extend((part, known) for part in item)
        elif isinstance(item, dict):
            if item.get("type") == "BASE_TABLE":
                check_table(item, known)
            if item.get("type") == "RECURSIVE_CTE_NODE":
                known |= named(item.get("cte_name", ""))
            for entry in (item.get("cte_map") or {}).get("map", ()):  # each sees those before it, and not itself
                waiting.append((entry["value"], known))
                known |= named(entry["key"])
            waiting.extend((part, known) for key, part in item.items() if key != "cte_map")


def named(given: str) -> frozenset[str]:
    return frozenset({given.lower()} if IDENTIFIER.match(given) else ())


def check_table(node: Node, known: frozenset[str]) -> None:
    table = ".".join(node["qualified_name"]["path"])
    if table.lower() not in known:
        raise QueryError(f"there is no table {table!r}; an audit has {' and '.join(sorted(TABLES))}")


def check_table_function(function: Node) -> None:
    called = function.get("function_name", "")
    if called.lower() not in TABLE_FUNCTIONS:
        raise QueryError(f"the table function {called} is not available: a query can read the audit and nothing else")


SOURCES = ("BASE_TABLE", "SUBQUERY", "TABLE_FUNCTION", "JOIN", "EXPRESSION_LIST", "COLUMN_DATA")


def row_names(every: list[Node]) -> frozenset[str]:
    """Names of tables and of what stands for one: as a column they are whole rows, which texts can be made of."""
    found = set()
    for node in every:
        if "class" not in node and node.get("type") in SOURCES:
            path = (node.get("qualified_name") or {}).get("path") or [""]
            found |= {str(node.get("alias") or ""), str(node.get("table_name") or ""), path[-1]}
    return frozenset(name.lower() for name in found if name)


def unnamed(name: str) -> bool:
    return name.startswith(("unnamed_", "valueslist"))


# -- size ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Size:
    """What a part of a query grows to: WITH, aliases and * can each double it, and so on with every line."""

    tables: int = 0
    terms: int = 0
    stars: int = 0

    def __add__(self, other: "Size") -> "Size":
        return Size(self.tables + other.tables, self.terms + other.terms, self.stars + other.stars)

    def checked(self) -> "Size":
        if self.tables > MOST_TABLES:
            raise QueryError(f"a query may read {MOST_TABLES} tables at most, a WITH as often as it is named")
        if self.terms > MOST_TERMS:
            raise QueryError(f"a query may have {MOST_TERMS:,} terms at most, with every alias, * and WITH written out")
        return self


Sizes = Mapping[str, Size]


def size_of(tree: Any, known: Sizes, aliases: Sizes) -> Size:
    """Of any part of a tree; `known` are the WITHs around it, `aliases` those of the select list before it."""
    total, waiting = Size(), [tree]
    while waiting:
        item = waiting.pop()
        if isinstance(item, list):
            waiting.extend(item)
        elif isinstance(item, dict):
            kind = item.get("type")
            if "cte_map" in item:
                total += size_of_query(item, known, aliases)
                continue
            if kind == "BASE_TABLE":
                total += known.get(str(item.get("table_name")).lower(), Size(1))
            elif kind == "COLUMN_REF":
                total += aliases.get(item["column_names"][-1].lower(), Size(terms=1))
            else:
                total += Size(kind in LEAVES, "class" in item, kind == "STAR")
            waiting.extend(item.values())
    return total.checked()


LEAVES = ("EMPTY", "TABLE_FUNCTION", "EXPRESSION_LIST", "COLUMN_DATA", "SHOW_REF")


def size_of_query(node: Node, outer: Sizes, aliases: Sizes) -> Size:
    known, own = dict(outer), dict(aliases)
    if node.get("cte_name"):  # a recursive one reads what it has made itself
        known[node["cte_name"].lower()] = Size(1)
    for entry in (node.get("cte_map") or {}).get("map", ()):
        known[entry["key"].lower()] = size_of(entry["value"], known, {})
    total = size_of(node.get("from_table"), known, aliases)
    star = WIDE * total.tables + total.terms
    for item in node.get("select_list") or ():
        found = size_of(item, known, own)
        found = Size(found.tables, found.terms * star if found.stars else found.terms).checked()
        if item.get("alias"):
            own[item["alias"].lower()] = found
        total += found
    rest = [part for key, part in node.items() if key not in ("cte_map", "from_table", "select_list")]
    total += size_of(rest, known, own)
    return Size(total.tables, total.terms).checked()


# -- functions and types -----------------------------------------------------------------------------------------


def check_function(node: Node) -> None:
    called = node["function_name"].lower()
    path = (node.get("qualified_name") or {}).get("path") or [called]
    if called not in ALLOWED or len(path) > 1:
        raise QueryError(f"the function {node['function_name']} is not available in a query on an audit")
    arguments = arguments_of(node)
    if len(arguments) > MOST_ARGUMENTS.get(called, len(arguments)):
        raise QueryError(f"{called} can be given {MOST_ARGUMENTS[called]} argument(s) in a query on an audit")
    if called in FUNCTIONS["short texts"] and not all(map(is_short, arguments)):
        raise QueryError(f"{called} takes short texts only: cut them first, like left(caption, {SHORT})")
    if called in FUNCTIONS["patterns"]:
        check_pattern(called, arguments[1:])
    if called == "list_value" and not all(map(is_constant, arguments)):
        raise QueryError("a list can be made of constants only")


def arguments_of(node: Node) -> list[Node]:
    """Of a function, or of an operator."""
    given = [argument["expression"] for argument in node.get("arguments") or ()]
    return given or list(node.get("children") or ())


def is_constant(node: Node) -> bool:
    return node.get("class") == "CONSTANT" or (node.get("class") == "CAST" and is_constant(node["child"]))


def is_short(node: Node) -> bool:
    """Is it a text of at most SHORT characters, or of a few such?"""
    if node.get("class") == "CONSTANT":
        return len(text_of(node)) <= SHORT
    called, arguments = str(node.get("function_name", "")).lower(), arguments_of(node)
    if called in CUTS:
        count = text_of(arguments[-1]) if len(arguments) == CUTS[called] else ""
        return count.isdecimal() and int(count) <= SHORT
    passes_on = called in JOINS | SAME_SIZE or node.get("type") == "OPERATOR_COALESCE"
    return passes_on and all(map(is_short, arguments))


def text_of(node: Node) -> str:
    """Of a constant, as it was written; empty where it is none."""
    literal = node.get("literal") or {}
    return str(literal.get("text") or "")


def check_pattern(called: str, given: list[Node]) -> None:
    """Of LIKE or a regular expression: a constant that is short; `_` makes LIKE try every place of every %."""
    if not all(map(is_constant, given)):
        raise QueryError("a pattern must be written out, not taken from a column")
    if any(len(text_of(node)) > LONGEST_PATTERN for node in given):
        raise QueryError(f"a pattern may have {LONGEST_PATTERN} characters at most")
    text = text_of(given[0]) if given else ""
    many = text.count("*") if called == "~~~" else text.count("%")
    plain = called in ("~~", "!~~", "~~*", "!~~*") and "_" not in text
    if not called.startswith("regexp") and not plain and many > 2:
        raise QueryError("a pattern with _ or GLOB may have two wildcards at most; regexp_matches takes any")


def check_type(wanted: Node) -> None:
    name = str(wanted.get("type_name") or "").upper()
    if name not in TYPES:
        raise QueryError(f"the type {name or '?'} is not available in a query on an audit")
