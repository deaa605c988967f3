"""The small files of an audit: topics.json, repair_marks.json and overlap/<name>.parquet.

They hold the most typical captions of each topic, the verdicts of people on proposed repairs, and the rows whose medium
or caption is also in another corpus.
"""

import re
from collections.abc import Sequence
from typing import Literal

import pyarrow as pa

from auditor.audit_folder.folder import Folder
from auditor.audit_folder.json_validation import SCORE_AGAIN, CompleteShape, read_valid_json
from auditor.errors import AuditError

TOPICS = "topics.json"
REPAIR_MARKS = "repair_marks.json"
Verdict = Literal["accepted", "refused"]
# uid: of the row, or of a medium's first row if the medium matches; what: media, caption; how: exact, near
OVERLAP_COLUMNS = ("uid", "key", "shard", "media_digest", "what", "how", "cosine", "other_key", "other_caption")
OVERLAP_SCHEMA = pa.schema([(name, pa.float32() if name == "cosine" else pa.string()) for name in OVERLAP_COLUMNS])


def write_topics(folder: Folder, captions: Sequence[Sequence[str]]) -> None:
    folder.write_json(TOPICS, {"captions": [list(topic) for topic in captions]})


def read_topics(folder: Folder) -> list[list[str]]:
    """Return the typical captions of each topic; none before the audit is scored."""
    if not folder.exists(TOPICS):
        return []
    topics = read_valid_json(folder, TOPICS, CompleteShape(captions=[[str]]), SCORE_AGAIN)
    captions: list[list[str]] = topics["captions"]
    return captions


def format_mark_key(uid: str, caption_index: int) -> str:
    return f"{uid}-{caption_index}"


def read_repair_marks(folder: Folder) -> dict[str, Verdict]:
    try:
        marks: dict[str, Verdict] = read_valid_json(folder, REPAIR_MARKS, {"": str}, "remove it, or put a copy back")
    except FileNotFoundError:
        return {}
    return marks


def mark_repair(folder: Folder, uid: str, caption_index: int, verdict: Verdict) -> None:
    folder.write_json(REPAIR_MARKS, {**read_repair_marks(folder), format_mark_key(uid, caption_index): verdict})


def overlap_name(other: str) -> str:
    return f"overlap/{re.sub(r'[^A-Za-z0-9.-]+', '_', other.rstrip('/')).strip('_')[-120:]}.parquet"


def overlapping_digests(folder: Folder, other: str) -> list[str]:
    from pyarrow.compute import equal  # slow to import; only a filter against another corpus needs it

    name = overlap_name(other)
    if not folder.exists(name):
        raise AuditError(f"{folder.url} has not been compared with {other}: run `auditor overlap {folder.url} {other}`")
    table = folder.read_table(name, ["media_digest", "what"], OVERLAP_SCHEMA)
    digests: list[str] = table.filter(equal(table["what"], "media"))["media_digest"].unique().to_pylist()
    return digests
