"""Read img2dataset's files beside a tar: NNNNN.parquet lists every sample it tried, NNNNN_stats.json counts them.

A sample that is not in the tar becomes a row with the reason: not downloaded, or missing in spite of a success.
"""

import json
import os
import re
from collections.abc import Iterator, Set
from typing import Any

import pyarrow as pa

from auditor.corpus.caption_text import dump_carried_fields, parse_captions, parse_uid, replace_unsafe
from auditor.corpus.corpus_files import path_exists, read_range
from auditor.corpus.parquet_rows import open_parquet
from auditor.corpus.sample import Problem, Sample
from auditor.corpus.shard import CorpusError, CorpusOptions

_CLIP = re.compile(r"_\d{5}$")
SUCCESS = "success"
REQUIRED_COLUMNS = ("key", "status")
USED_COLUMNS = (*REQUIRED_COLUMNS, "caption", "error_message", "uid", "url")


def find_companion(tar: str, ending: str) -> str | None:
    """Return the file of img2dataset beside NNNNN.tar, if it exists: NNNNN.parquet, NNNNN_stats.json."""
    path = tar.removesuffix(".tar") + ending
    return path if tar.endswith(".tar") and path_exists(path) and not os.path.isdir(path) else None


def find_lost_samples(shard: str, tar: str, keys: Set[str], options: CorpusOptions) -> tuple[list[Sample], list[str]]:
    videos = {_CLIP.sub("", key) for key in keys}  # video2dataset counts videos, not the clips cut from them
    problems = list(check_stats(tar, len(keys), len(videos)))
    path = find_companion(tar, ".parquet")
    if path is None:
        return [], problems
    try:
        with open_parquet(path) as file:
            names = file.schema_arrow.names
            if not set(REQUIRED_COLUMNS) <= set(names):
                return [], problems  # a table of another tool
            columns = dict.fromkeys([name for name in (*USED_COLUMNS, *options.carry) if name in names])
            rows = file.read(columns=list(columns)).to_pylist()
    except (OSError, CorpusError, pa.ArrowException) as error:
        return [], [*problems, f"{os.path.basename(path)} of img2dataset cannot be read: {format_one_line(error)}"]
    missing = [row for row in rows if str(row["key"]) not in keys]
    return [build_missing_sample(shard, row, options) for row in missing], problems


def build_missing_sample(shard: str, row: dict[str, Any], options: CorpusOptions) -> Sample:
    key, captions, uid = replace_unsafe(str(row["key"])), parse_captions(row.get("caption")), parse_uid(row.get("uid"))
    if row["status"] == SUCCESS:
        problem = Problem("missing_media", "img2dataset reports a success, but the sample is not in the tar")
    else:
        message = ": ".join(str(part) for part in (row["status"] or "no status", row.get("error_message")) if part)
        problem = Problem("not_downloaded", replace_unsafe(" ".join(message.split())))
    carried = (dump_carried_fields(row, options.carry),)
    return Sample(shard, key, captions, None, uid, problem=problem, carried=carried)


def check_stats(tar: str, samples: int, videos: int) -> Iterator[str]:
    """Yield a problem if NNNNN_stats.json disagrees with the tar, or counts failures that no table lists."""
    path = find_companion(tar, "_stats.json")
    if path is None:
        return
    name = os.path.basename(path)
    try:
        stats = json.loads(read_range(path))
        tried, successes = int(stats["count"]), int(stats["successes"])
    except (OSError, CorpusError, ValueError, KeyError, TypeError, RecursionError) as error:
        yield f"{name} of img2dataset cannot be read: {format_one_line(error)}"
        return
    if successes not in (samples, videos):
        yield f"{name} counts {successes:,} successes, the tar has {samples:,} samples"
    if tried > successes and find_companion(tar, ".parquet") is None:
        yield f"{name} counts {tried - successes:,} samples that failed; the .parquet file that lists them is missing"


def format_one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
