"""The columns of an audit that are looked at all day, in memory: for a dashboard that answers at once.

Ten million rows take some 1.6 GB and ten seconds of two cores to read, captions included; a count or histogram then
takes a tenth of a second instead of half of one. A dashboard reads them in the background, once its first page stands.
Where captions do not fit they stay in the files. Whatever names another column (keys, paths) is asked of the files. The
rows that meet a condition on text are remembered by their places, so that paging through them asks nothing twice.
"""

import itertools
import re
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from auditor.query.rules import Threshold, flag_sql
from auditor.query.samples_view import flag_columns
from auditor.query.sandbox import Sandbox, literal, name
from auditor.schema import COLUMNS

MOST_ROWS = 20_000_000
IN_MEMORY = "in_memory"  # the view
_KEPT = [column for column in COLUMNS.values() if column.in_memory]
WORDS = tuple(column.name for column in _KEPT if column.type == "string" and not column.unique)  # as ENUMs
TEXTS = tuple(column.name for column in _KEPT if column.type == "string" and column.unique)  # where they fit
NUMBERS = (*(column.name for column in _KEPT if column.type != "string"), "uid_order")
REMEMBERED = 6  # conditions; as many that were forgotten last may still be in use

T = TypeVar("T")


class Cached(Generic[T]):
    """An answer that is computed once, by whoever asks first; others wait for it. One that fails is asked for again."""

    def __init__(self) -> None:
        self.answers: list[T] = []  # one, when it is known
        self._lock = threading.Lock()

    def get(self, compute: Callable[[], T]) -> T:
        with self._lock:
            if not self.answers:
                self.answers.append(compute())
            return self.answers[0]


class InMemory:
    """Tables in the sandbox of an audit that hold some of its columns, each row with its place."""

    def __init__(
        self,
        sandbox: Sandbox,
        located: str,  # SQL of all rows with their places
        thresholds: Mapping[str, Threshold],
        columns: Sequence[str],
        *,
        texts: bool,
        extra: Sequence[str] = (),  # numbers of others
    ) -> None:
        self.sandbox, self.located = sandbox, located
        self.plain = (*NUMBERS, *TEXTS, *extra) if texts else (*NUMBERS, *extra)
        kept = {column.lower() for column in (*WORDS, *self.plain, *flag_sql({}))}
        absent = {column.lower() for column in columns} - kept | {"columns"}
        self.absent = {column for column in absent if re.fullmatch(r"\w+", column)}
        self.absent_odd = absent - self.absent  # names that are not words
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Cached[str]] = OrderedDict()  # condition: table of the places that meet it
        self._forgotten: deque[Cached[str]] = deque()
        self._numbers = itertools.count(1)
        self._read(flag_columns(thresholds))

    def _read(self, flags: str) -> None:
        define = self.sandbox.define
        distinct = ", ".join(f"list(DISTINCT {word}) AS {word}" for word in WORDS)
        known = self.sandbox.rows(f"SELECT {distinct} FROM measured")[0]
        for word in WORDS:
            values = sorted(set(known[word] or ()) - {None} | {""})  # an ENUM of nothing is an error
            define(f"CREATE OR REPLACE TYPE {word}_word AS ENUM ({', '.join(map(literal, values))})")
        columns = [
            *(f"CAST({word} AS {word}_word) AS {word}" for word in WORDS),
            *map(name, self.plain),
            *place_columns(),
        ]
        chosen = f"SELECT {', '.join(columns)} FROM ({self.located})"
        define(f"CREATE TABLE in_memory_columns AS {chosen}", patient=True)
        define(f"CREATE VIEW {IN_MEMORY} AS SELECT *, {flags} FROM in_memory_columns")

    def covers(self, *sql: str) -> bool:
        """Are all columns that are named in memory? A word that only looks like another column costs time, no more."""
        text = " ".join(sql).lower()
        return not self.absent & set(re.findall(r"\w+", text)) and not any(odd in text for odd in self.absent_odd)

    def reads_text(self, condition: str) -> bool:
        """Does it look at text, in memory or not?"""
        return not self.covers(condition) or bool(set(TEXTS) & set(re.findall(r"\w+", condition.lower())))

    def places(self, condition: str) -> str:
        """The table of the places of all rows that meet a condition on any column."""
        with self._lock:
            if condition not in self._known:
                self._known[condition] = Cached()
                self._forget()
            self._known.move_to_end(condition)
            found = self._known[condition]
        return found.get(lambda: self._find(condition))

    def _find(self, condition: str) -> str:
        table = f"places_{next(self._numbers)}"
        source = IN_MEMORY if self.covers(condition) else f"({self.located})"
        chosen = f"SELECT {', '.join(place_columns())} FROM {source} AS samples WHERE {condition}"
        self.sandbox.define(f"CREATE TABLE {table} AS {chosen}")
        return table

    def _forget(self) -> None:
        if len(self._known) > REMEMBERED:
            self._forgotten.append(self._known.popitem(last=False)[1])
        if len(self._forgotten) > REMEMBERED:
            for table in self._forgotten.popleft().answers:
                self.sandbox.define(f"DROP TABLE {table}")


def place_columns() -> list[str]:
    return [f"CAST({column} AS INTEGER) AS {column}" for column in ("file", "file_row_number")]
