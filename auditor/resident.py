"""The columns of an audit that are looked at all day, in memory: for a dashboard that answers at once.

Ten million rows take about 1.6 GB and eight seconds to read, captions included; a count or histogram then takes a tenth
of a second instead of half of one. Where captions do not fit they stay in the files. Whatever names another column
(keys, paths) is asked of the files. The rows that meet a condition on text are remembered by their places, so that
paging through them asks nothing twice.
"""

import re
import threading
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from auditor.files import AuditFiles, view_sql
from auditor.rules import Threshold, flag_sql
from auditor.sandbox import Database, literal

MOST_ROWS = 20_000_000
NARROW = "narrow"
WORDS = ("status", "kind")  # few values: kept as an ENUM
NUMBERS = (
    *("caption_index", "width", "height", "duration", "frames", "topic"),
    *("similarity", "similarity_normalised", "uncertainty_visual", "uncertainty_text"),
    *("mean_similarity_visual", "mean_similarity_text", "matches_visual", "matches_text"),
    *("mismatch_score", "p_mismatch", "uid_order"),
)
REMEMBERED = 6  # conditions; as many that were forgotten last may still be in use


@dataclass
class Places:
    """The table of the places of the rows that meet a condition; whoever asks first makes it."""

    table: str
    made: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


class Resident:
    """Tables in an audit's database that hold its narrow columns, each row with its place."""

    def __init__(
        self,
        database: Database,
        files: AuditFiles,
        thresholds: Mapping[str, Threshold],
        columns: Sequence[str],
        *,
        captions: bool,
    ) -> None:
        self.database = database
        self.located = view_sql(files, thresholds, located=True)
        self.plain = (*NUMBERS, "caption") if captions else NUMBERS
        wide = {column.lower() for column in columns} - {*WORDS, *self.plain, *flag_sql({})} | {"columns"}
        self.wide = {column for column in wide if re.fullmatch(r"\w+", column)}
        self.odd = wide - self.wide  # names that are no words
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Places] = OrderedDict()
        self._forgotten: deque[Places] = deque()
        self._number = 0
        self._read(flag_sql(thresholds))

    def _read(self, flags: Mapping[str, str]) -> None:
        define = self.database.define
        for word in WORDS:
            known = self.database.rows(f"SELECT DISTINCT {word} AS word FROM measured")
            values = sorted({row["word"] for row in known} - {None} | {""})  # an ENUM of nothing is an error
            define(f"CREATE OR REPLACE TYPE {word}_word AS ENUM ({', '.join(map(literal, values))})")
        columns = [*(f"CAST({word} AS {word}_word) AS {word}" for word in WORDS), *self.plain, *place_columns()]
        chosen = f"SELECT {', '.join(columns)} FROM ({self.located})"
        define(f"CREATE TABLE narrow_stored AS {chosen}", patient=True)
        listed = ", ".join(f"{sql} AS {flag}" for flag, sql in flags.items())
        define(f"CREATE VIEW {NARROW} AS SELECT *, {listed} FROM narrow_stored")

    def covers(self, *sql: str) -> bool:
        """Are all columns that are named in memory? A word that only looks like a wide column is no harm but slow."""
        text = " ".join(sql).lower()
        return not self.wide & set(re.findall(r"\w+", text)) and not any(name in text for name in self.odd)

    def slow(self, condition: str) -> bool:
        """Does it look at text, in memory or not?"""
        return not self.covers(condition) or "caption" in re.findall(r"\w+", condition.lower())

    def matching(self, condition: str) -> str:
        """The table of the places of all rows that meet a condition on any column."""
        with self._lock:
            places = self._known.get(condition) or self._remember(condition)
            self._known.move_to_end(condition)
        with places.lock:
            if not places.made:
                source = NARROW if self.covers(condition) else f"({self.located})"
                chosen = f"SELECT {', '.join(place_columns())} FROM {source} AS samples WHERE {condition}"
                self.database.define(f"CREATE TABLE {places.table} AS {chosen}")
                places.made = True
        return places.table

    def _remember(self, condition: str) -> Places:
        self._number += 1
        self._known[condition] = Places(f"places_{self._number}")
        if len(self._known) > REMEMBERED:
            self._forgotten.append(self._known.popitem(last=False)[1])
        if len(self._forgotten) > REMEMBERED:
            self.database.define(f"DROP TABLE IF EXISTS {self._forgotten.popleft().table}")
        return self._known[condition]


def place_columns() -> list[str]:
    return [f"CAST({column} AS INTEGER) AS {column}" for column in ("file", "file_row_number")]
