"""Openings that many captions share, such as "In this image we can see": a habit of the model that wrote them.

Counted on a random sample of the captions of each source, over different captions only, so that one caption which is
repeated is no opening. Of 20,000 captions of Flickr8k, written by people, 1.6% open with the most frequent four words.
"""

import re
from typing import Any

from auditor.audit_folder.fault_records import Fault
from auditor.query.database import AuditDatabase
from auditor.query.sandbox import quote_literal

LENGTHS = (6, 5, 4)  # words, the longest first
SHARE = 0.05  # of the different captions of a source
FEWEST = 50  # captions of the sample with the opening
SAMPLE_ROWS = 200_000
OPENING_CHARACTERS = 200
MOST = 10  # openings
WORD = r"[\p{L}\p{N}]+"


def find_shared_openings(database: AuditDatabase) -> list[Fault]:
    """Return the openings that captions share, by source, the most frequent first; a longer one hides its beginning."""
    step = -(-database.counts["rows"] // SAMPLE_ROWS)
    words = f"regexp_extract_all(lower(left(caption, {OPENING_CHARACTERS})), '{WORD}')"
    rows = database.rows(
        f"WITH texts AS (SELECT caption_source AS source, caption_hash, any_value({words}) AS words "
        f"FROM measured WHERE status = 'ok' AND hash(uid) % {step} = 0 GROUP BY ALL), "
        "totals AS (SELECT source, count(*) AS captions FROM texts GROUP BY source), "
        f"lengths AS (SELECT unnest({list(LENGTHS)}) AS length) "
        "SELECT texts.source, length, array_to_string(words[1:length], ' ') AS opening, "
        "count(*) / any_value(captions) AS share "
        "FROM texts JOIN lengths ON len(words) > length JOIN totals ON totals.source IS NOT DISTINCT FROM texts.source "
        f"GROUP BY ALL HAVING count(*) >= {FEWEST} AND share >= {SHARE} ORDER BY length DESC, share DESC, opening"
    )
    openings: list[dict[str, Any]] = []
    for row in rows:
        if not any(is_beginning(row["opening"], row["source"], longer) for longer in openings):
            openings.append(row)
    openings.sort(key=lambda row: -row["share"])
    return [describe_opening(database, row) for row in openings[:MOST]]


def is_beginning(opening: str, source: str | None, longer: dict[str, Any]) -> bool:
    return longer["source"] == source and str(longer["opening"]).startswith(f"{opening} ")


def describe_opening(database: AuditDatabase, row: dict[str, Any]) -> Fault:
    words, source = row["opening"].split(" "), row["source"]
    pattern = r"^[^\p{L}\p{N}]*" + r"[^\p{L}\p{N}]+".join(map(re.escape, words)) + r"([^\p{L}\p{N}]|$)"
    where = f"status = 'ok' AND regexp_matches(lower(left(caption, {OPENING_CHARACTERS})), {quote_literal(pattern)})"
    where += "" if source is None else f" AND caption_source = {quote_literal(source)}"
    count = int(database.value(f"SELECT count(*) FROM measured WHERE {where}"))
    noun = "captions" if source is None else f"captions of {source}"
    sentence = f"{count:,} {noun} ({row['share']:.0%} of the different ones) open with {row['opening']!r}"
    place, share = (None, None, None, None), row["share"]
    return Fault("caption", "opening", *place, count, None, sentence, row["opening"], share, where=where, source=source)
