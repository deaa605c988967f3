"""Checks on SQL that a user wrote: it is one SELECT, or one condition, over the tables of the audit.

The checks read DuckDB's own syntax tree. They decide what a query may read, not what it may cost: memory and time are
limited by the process that runs it (auditor/query/sql_process.py). A plain condition, such as
`similarity > 0.3 AND kind = 'video'`, has a bounded cost, so it may also run beside the auditor's own SQL.
"""

import json
import re
from collections.abc import Collection, Iterator
from typing import Any

import duckdb

from auditor.query.sandbox import QueryError, Sandbox, format_duckdb_error, is_utf8, quote_literal

TABLES = frozenset({"samples", "reviews"})
TABLE_FUNCTIONS = frozenset(["range", "generate_series", "unnest", "json_each", "json_tree", "repeat", "repeat_row"])
# Functions that read settings, write logs or bind SQL of their own.
FORBIDDEN_FUNCTIONS = frozenset(["current_setting", "getenv", "write_log", "json_serialize_plan", "pg_get_viewdef"])
LONGEST_SQL = 100_000  # characters
IDENTIFIER = re.compile(r"[A-Za-z_]\w*\Z")

PLAIN_CLASSES = frozenset(
    ["CONJUNCTION", "COMPARISON", "BETWEEN", "CONSTANT", "COLUMN_REF", "OPERATOR", "FUNCTION", "CAST", "TYPE"]
)
PLAIN_OPERATORS = frozenset(
    ["OPERATOR_NOT", "OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL", "OPERATOR_COALESCE", "COMPARE_IN", "COMPARE_NOT_IN"]
)
PATTERN_FUNCTIONS = frozenset(["~~", "!~~", "~~*", "!~~*", "regexp_matches"])
PLAIN_FUNCTIONS = PATTERN_FUNCTIONS.union(
    ["+", "-", "*", "/", "//", "%", "abs", "ceil", "floor", "round", "sqrt", "ln", "log10", "exp", "isnan", "isfinite"],
    ["lower", "upper", "trim", "length", "len", "strlen", "contains", "starts_with", "ends_with", "prefix", "suffix"],
    ["left", "right"],
)
PLAIN_TYPES = frozenset(
    ["TINYINT", "SMALLINT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE", "BOOLEAN", "DATE", "TIMESTAMP", "VARCHAR"]
)
LONGEST_PLAIN_PATTERN = 200  # characters
EXAMPLE = "similarity > 0.3 AND kind = 'video'"

Node = dict[str, Any]


def limit_select(sql: str, limit: int | None) -> str:
    """Add a limit to a checked SELECT; DESCRIBE, FROM and VALUES become a subquery."""
    text = sql.rstrip().rstrip(";")
    if limit is None and text.lstrip().lower().startswith(("select", "with", "(")):
        return sql
    return f"SELECT * FROM (\n{text}\n)" + ("" if limit is None else f" LIMIT {int(limit)}")


def close_condition(sandbox: Sandbox, condition: str) -> tuple[str, Node]:
    """Return a user's condition as one closed expression, ready to stand between ANDs, and its syntax tree."""
    closed = f"coalesce(\n{condition}\n, FALSE)"
    try:
        tree = parse_select(sandbox, f"SELECT 1 FROM samples WHERE {closed}")
        reference = parse_select(sandbox, "SELECT 1 FROM samples WHERE coalesce(TRUE, FALSE)")
        # Everything but the first argument must look as if that argument were TRUE: nothing left the parentheses.
        if split_first_argument(tree)[0] != split_first_argument(reference)[0]:
            raise QueryError(f"a condition must be a single expression, like: {EXAMPLE}")
        check_tree(tree)
        return closed, split_first_argument(tree)[1]
    except RecursionError:
        raise QueryError("is nested too deeply") from None


def enclose_condition(condition: str) -> str:
    """Return a condition that `close_condition` accepts as one expression whose value may be NULL.

    Without a coalesce, DuckDB lets a scan skip rows by single terms of an AND, and tries the costly terms on the rest.
    """
    return f"(\n{condition}\n)"


def parse_select(sandbox: Sandbox, sql: str) -> Node:
    """Return the syntax tree of the one SELECT in `sql`."""
    if len(sql) > LONGEST_SQL:
        raise QueryError(f"a query of {len(sql):,} characters is too long")
    if not is_utf8(sql):
        raise QueryError("a query must be text in UTF-8")
    try:
        duckdb.extract_statements(sql)  # its error message is better than that of json_serialize_sql
        tree: Node = json.loads(sandbox.value(f"SELECT json_serialize_sql({quote_literal(sql)})"))
    except RecursionError:
        raise QueryError("is nested too deeply") from None
    except (UnicodeError, duckdb.Error) as error:
        raise QueryError(format_duckdb_error(error)) from None
    if tree.get("error") or len(tree["statements"]) != 1:
        raise QueryError("only a single SELECT statement can be run on an audit")
    statement: Node = tree["statements"][0]
    return statement


def check_tree(tree: Node) -> None:
    """Refuse every table and function that leads outside the audit."""
    for node in walk_nodes(tree):
        kind, function = node.get("type"), str(node.get("function_name", "")).lower()
        if kind == "SHOW_REF" and node.get("table_name"):
            raise QueryError("SHOW is not available; DESCRIBE samples lists the columns")
        if kind == "TABLE_FUNCTION":
            name = node["function"].get("function_name", "")
            if name.lower() not in TABLE_FUNCTIONS:
                raise QueryError(
                    f"the table function {name} is not available: a query can read the audit and nothing else"
                )
        if function in FORBIDDEN_FUNCTIONS:
            raise QueryError(f"the function {function} is not available in a query on an audit")
    check_tables(tree)


def walk_nodes(tree: Any) -> Iterator[Node]:
    """Yield every object of a syntax tree, without recursion."""
    pending = [tree]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            yield item
            pending.extend(item.values())
        elif isinstance(item, list):
            pending.extend(item)


def check_tables(tree: Any) -> None:
    """Every table in the query is one of the audit's, or a WITH that is in scope."""
    pending: list[tuple[Any, frozenset[str]]] = [(tree, TABLES)]
    while pending:
        item, tables = pending.pop()
        if isinstance(item, list):
            pending.extend((part, tables) for part in item)
        elif isinstance(item, dict):
            path = ".".join(item["qualified_name"]["path"]) if item.get("type") == "BASE_TABLE" else None
            if path is not None and path.lower() not in tables:
                raise QueryError(f"there is no table {path!r}; an audit has {' and '.join(sorted(TABLES))}")
            if item.get("type") == "RECURSIVE_CTE_NODE":
                tables |= cte_names(item.get("cte_name", ""))
            for entry in (item.get("cte_map") or {}).get("map", ()):  # each sees the ones before it, but not itself
                pending.append((entry["value"], tables))
                tables |= cte_names(entry["key"])
            pending.extend((part, tables) for key, part in item.items() if key != "cte_map")


def cte_names(name: str) -> frozenset[str]:
    """Return the name of a WITH as a set; empty if it is not a plain identifier, because it could name a file."""
    return frozenset({name.lower()} if IDENTIFIER.match(name) else ())


def split_first_argument(tree: Node) -> tuple[Any, Any]:
    bare = strip_positions(tree)
    arguments = (bare["node"].get("where_clause") or {}).get("children")
    if not arguments:
        return bare, None
    argument, arguments[0] = arguments[0], None
    return bare, argument


def strip_positions(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: strip_positions(value) for key, value in tree.items() if not key.startswith("query_location")}
    if isinstance(tree, list):
        return [strip_positions(item) for item in tree]
    return tree


def reads_reviews(condition: Node) -> bool:
    """Whether the rows that meet a condition may change with the reviews: it names `review`, a table or a star."""
    return any(
        node.get("type") in ("BASE_TABLE", "STAR")
        or {str(name).lower() for name in node.get("column_names") or ()} & {"review", *TABLES}
        for node in walk_nodes(condition)
    )


def is_plain(condition: Node, columns: Collection[str]) -> bool:
    """Whether a condition has only cheap parts: `columns`, constants, comparisons, arithmetic and simple patterns."""
    return all(is_plain_node(node, columns) for node in walk_nodes(condition) if "class" in node)


def is_plain_node(node: Node, columns: Collection[str]) -> bool:
    kind = node["class"]
    if kind == "COLUMN_REF":
        return len(node["column_names"]) == 1 and node["column_names"][0].lower() in columns
    if kind == "OPERATOR":
        return node["type"] in PLAIN_OPERATORS
    if kind == "TYPE":
        return node["type_name"] in PLAIN_TYPES
    if kind == "FUNCTION":
        arguments = [argument["expression"] for argument in node["arguments"]]
        function = node["function_name"]
        return function in PLAIN_FUNCTIONS and (function not in PATTERN_FUNCTIONS or has_plain_pattern(arguments))
    return kind in PLAIN_CLASSES


def has_plain_pattern(arguments: list[Node]) -> bool:
    """Whether the pattern is a short constant; LIKE tries every position of every %, if there is an _ too."""
    if len(arguments) != 2 or arguments[1]["class"] != "CONSTANT":
        return False
    pattern = str((arguments[1].get("literal") or {}).get("text") or "")
    return len(pattern) <= LONGEST_PLAIN_PATTERN and ("_" not in pattern or pattern.count("%") <= 2)
