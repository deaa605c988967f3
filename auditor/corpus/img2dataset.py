"""img2dataset's files beside a tar: NNNNN.parquet names every sample it tried, NNNNN_stats.json counts them.

Samples that it could not download or resize are in no tar; they become rows that say so. Of a sample that it calls a
success and that is not in the tar either, the medium is missing.
"""

import json
import os
import re
from collections.abc import Collection, Iterator
from typing import Any

import pyarrow as pa

from auditor.corpus import remote_files
from auditor.corpus.caption_text import captions_of, carried_json, record_uid, safe_text
from auditor.corpus.read_medium import MediaError, open_parquet, read_media
from auditor.corpus.sample import Problem, Sample
from auditor.corpus.shard import CorpusError, CorpusOptions

_CLIP = re.compile(r"_\d{5}$")
SUCCESS = "success"
NEEDED = ("key", "status")
USED = (*NEEDED, "caption", "error_message", "uid", "url")


def beside(tar: str, ending: str) -> str | None:
    """The file of img2dataset beside NNNNN.tar, if it is there: NNNNN.parquet, NNNNN_stats.json."""
    if not tar.endswith(".tar"):
        return None
    path = tar.removesuffix(".tar") + ending
    there = remote_files.exists(path) if remote_files.is_url(path) else os.path.isfile(path)
    return path if there else None


def tried_samples(
    shard: str, tar: str, there: Collection[str], options: CorpusOptions
) -> tuple[list[Sample], list[str]]:
    """The samples that img2dataset's table has and the tar has not, and what is wrong with its files."""
    videos = {_CLIP.sub("", key) for key in there}  # video2dataset counts those, and not the clips it cut from them
    problems = list(stats_problems(tar, len(there), len(videos)))
    path = beside(tar, ".parquet")
    if path is None:
        return [], problems
    try:
        with open_parquet(path) as file:
            names = file.schema_arrow.names
            if not set(NEEDED) <= set(names):
                return [], problems  # a table of somebody else's
            wanted = dict.fromkeys([name for name in (*USED, *options.carry) if name in names])
            rows = file.read(columns=list(wanted)).to_pylist()
    except (OSError, CorpusError, pa.ArrowException) as error:
        return [], [*problems, f"{os.path.basename(path)} of img2dataset cannot be read: {one_line(error)}"]
    known = set(there)
    lost = [row for row in rows if str(row["key"]) not in known]
    return [lost_sample(shard, row, options) for row in lost], problems


def lost_sample(shard: str, row: dict[str, Any], options: CorpusOptions) -> Sample:
    """The row of a sample that is in no tar."""
    captions = captions_of(row.get("caption"))
    carried = (carried_json(row, options.carry),) if options.carry else (None,)
    return Sample(shard, safe_text(str(row["key"])), captions, None, record_uid(row), problem=why(row), carried=carried)


def why(row: dict[str, Any]) -> Problem:
    status, message = row["status"], row.get("error_message")
    if status == SUCCESS:
        return Problem("missing_media", "img2dataset calls it a success, but it is not in the tar")
    parts = [str(status or "no status"), *([str(message)] if message else [])]
    return Problem("not_downloaded", safe_text(" ".join(": ".join(parts).split())))


def stats_problems(tar: str, there: int, videos: int) -> Iterator[str]:
    """Where NNNNN_stats.json counts otherwise than the tar, or tells of failures that no table names."""
    path = beside(tar, "_stats.json")
    if path is None:
        return
    name = os.path.basename(path)
    try:
        counted = json.loads(read_media(path, 0, -1))
        tried, successes = int(counted["count"]), int(counted["successes"])
    except (MediaError, ValueError, KeyError, TypeError) as error:
        yield f"{name} of img2dataset cannot be read: {one_line(error)}"
        return
    if successes not in (there, videos):
        yield f"{name} counts {successes:,} successes, the tar has {there:,} samples"
    if tried > successes and beside(tar, ".parquet") is None:
        yield f"{name} counts {tried - successes:,} samples that failed; the .parquet that names them is not here"


def one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
