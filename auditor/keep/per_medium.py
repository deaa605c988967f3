"""Rules that decide on media instead of single captions: the captions of a medium stay or go together.

| rule    | a medium is kept when ...                                                                                 |
|---------|-----------------------------------------------------------------------------------------------------------|
| `any`   | one of its captions meets all rules                                                                       |
| `all`   | each of its captions meets all rules                                                                      |
| `mean`  | the means of its captions' numbers are within the limits; `where` still decides caption by caption        |
| `worst` | the numbers of its most suspicious caption are within the limits; `where` still decides caption by caption |
"""

from auditor.query.rules import PerMedium
from auditor.schema import HIGH_IS_SUSPICIOUS

USABLE = "status = 'ok'"


def media_that(having: str, table: str) -> str:
    """SQL that is true for the rows of the media whose usable rows meet a condition together."""
    media = f"SELECT shard, key FROM {table} WHERE {USABLE} GROUP BY shard, key HAVING {having}"
    return f"(shard, key) IN ({media})"


def values_of_media(column: str, quoted: str, rule: PerMedium) -> str:
    """What stands after FROM for one row a medium, with the mean or the worst value of a column of its captions."""
    value = "avg" if rule == "mean" else "max" if column in HIGH_IS_SUSPICIOUS else "min"
    # as exact as measurements are: the last bits of a mean depend on the order it was summed in
    return (
        f"(SELECT shard, key, CAST({value}({quoted}) AS FLOAT) AS {quoted}, min(uid_order) AS uid_order "
        f"FROM measured WHERE {USABLE} GROUP BY shard, key) AS media"
    )


def media_with(condition: str, values: str) -> str:
    """SQL that is true for the rows of the media whose value meets a condition."""
    return f"(shard, key) IN (SELECT shard, key FROM {values} WHERE {condition})"
