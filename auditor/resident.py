"""The narrow columns of an audit in memory, for a dashboard that is asked about the same few of them all day.

Ten million rows take about 1 GB and six seconds to read; a count or histogram then takes a twentieth of a second
instead of half of one. Whatever names another column (captions, keys) is asked of the files, and the rows that meet
such a condition are remembered by their places, so that paging through them asks nothing twice.
"""

import re
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from auditor.files import view_sql
from auditor.rules import flag_sql
from auditor.sandbox import literal

if TYPE_CHECKING:
    from auditor.query import Audit

MOST_ROWS = 20_000_000
NARROW = "narrow"
WORDS = ("status", "kind")  # few values: kept as an ENUM
NUMBERS = (
    *("caption_index", "width", "height", "duration", "frames", "topic"),
    *("similarity", "similarity_normalised", "uncertainty_visual", "uncertainty_text"),
    *("mean_similarity_visual", "mean_similarity_text", "matches_visual", "matches_text"),
    *("mismatch_score", "p_mismatch", "uid_order"),
)
CAPTION_LENGTH = "length(caption)"  # kept as the column caption_length
REMEMBERED = 8  # conditions


class Resident:
    """Tables of an audit's database that hold its narrow columns, each row with its place."""

    def __init__(self, audit: "Audit") -> None:
        self.audit = audit
        self.wide = set(audit.columns) - {*WORDS, *NUMBERS, *flag_sql({})} | {"columns"}
        self._lock = threading.Lock()
        self._known: OrderedDict[str, str] = OrderedDict()  # condition: table of the places that meet it
        self._number = 0
        database = audit.database
        for word in WORDS:
            found = {row["word"] for row in database.rows(f"SELECT DISTINCT {word} AS word FROM measured")} - {None}
            values = ", ".join(literal(value) for value in sorted(found | {""}))  # an ENUM of nothing is an error
            database.define(f"CREATE TYPE {word}_word AS ENUM ({values})")
        columns = [f"CAST({word} AS {word}_word) AS {word}" for word in WORDS]
        columns += [*NUMBERS, f"CAST({CAPTION_LENGTH} AS INTEGER) AS caption_length", *place_columns()]
        source = view_sql(audit.files, audit.thresholds, located=True)
        database.define(f"CREATE TABLE narrow_stored AS SELECT {', '.join(columns)} FROM ({source})")
        flags = ", ".join(f"{sql} AS {flag}" for flag, sql in flag_sql(audit.thresholds).items())
        database.define(f"CREATE VIEW {NARROW} AS SELECT *, {flags} FROM narrow_stored")

    def covers(self, *sql: str) -> bool:
        """Are all columns that are named in memory? A word that only looks like a wide column is no harm but slow."""
        return not self.wide & {word.lower() for text in sql for word in re.findall(r"\w+", text)}

    def matching(self, condition: str) -> str:
        """The table of the places of all rows that meet a condition on any column."""
        with self._lock:
            if condition in self._known:
                self._known.move_to_end(condition)
                return self._known[condition]
            self._number += 1
            table = f"places_{self._number}"
            source = view_sql(self.audit.files, self.audit.thresholds, located=True)
            chosen = f"SELECT {', '.join(place_columns())} FROM ({source}) WHERE {condition}"
            self.audit.database.define(f"CREATE TABLE {table} AS {chosen}")
            self._known[condition] = table
            if len(self._known) > REMEMBERED:
                self.audit.database.define(f"DROP TABLE {self._known.popitem(last=False)[1]}")
            return table


def place_columns() -> list[str]:
    return [f"CAST({column} AS INTEGER) AS {column}" for column in ("file", "file_row_number")]
