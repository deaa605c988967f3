"""Read img2dataset's files beside a tar: NNNNN.parquet lists every sample it tried, NNNNN_stats.json counts them.

A sample that img2dataset could not download or resize is not in the tar; it becomes a row with that reason. A sample
that img2dataset reports as a success but that is not in the tar has a missing medium.
"""

import json
import os
import re
from collections.abc import Collection, Iterator
from typing import Any

import pyarrow as pa

from auditor.corpus import remote_files
from auditor.corpus.caption_text import dump_carried_fields, parse_captions, parse_uid, replace_unsafe
from auditor.corpus.read_medium import MediaError, open_parquet, read_media
from auditor.corpus.sample import Problem, Sample
from auditor.corpus.shard import CorpusError, CorpusOptions

_CLIP = re.compile(r"_\d{5}$")
SUCCESS = "success"
REQUIRED_COLUMNS = ("key", "status")
USED_COLUMNS = (*REQUIRED_COLUMNS, "caption", "error_message", "uid", "url")


def find_companion(tar: str, ending: str) -> str | None:
    """Return the file of img2dataset beside NNNNN.tar, if it exists: NNNNN.parquet, NNNNN_stats.json."""
    if not tar.endswith(".tar"):
        return None
    path = tar.removesuffix(".tar") + ending
    exists = remote_files.url_exists(path) if remote_files.is_url(path) else os.path.isfile(path)
    return path if exists else None


def find_missing_samples(
    shard: str, tar: str, keys: Collection[str], options: CorpusOptions
) -> tuple[list[Sample], list[str]]:
    """Return the samples of img2dataset's table that the tar lacks, and the problems of its files."""
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
    tar_keys = set(keys)
    missing = [row for row in rows if str(row["key"]) not in tar_keys]
    return [build_missing_sample(shard, row, options) for row in missing], problems


def build_missing_sample(shard: str, row: dict[str, Any], options: CorpusOptions) -> Sample:
    """Build a sample that the tar does not contain."""
    key, captions, uid = replace_unsafe(str(row["key"])), parse_captions(row.get("caption")), parse_uid(row.get("uid"))
    carried = (dump_carried_fields(row, options.carry),)
    return Sample(shard, key, captions, None, uid, problem=describe_failure(row), carried=carried)


def describe_failure(row: dict[str, Any]) -> Problem:
    status, message = row["status"], row.get("error_message")
    if status == SUCCESS:
        return Problem("missing_media", "img2dataset reports a success, but the sample is not in the tar")
    parts = [str(status or "no status"), *([str(message)] if message else [])]
    return Problem("not_downloaded", replace_unsafe(" ".join(": ".join(parts).split())))


def check_stats(tar: str, samples: int, videos: int) -> Iterator[str]:
    """Yield a problem if NNNNN_stats.json disagrees with the tar, or counts failures that no table lists."""
    path = find_companion(tar, "_stats.json")
    if path is None:
        return
    name = os.path.basename(path)
    try:
        stats = json.loads(read_media(path, 0, -1))
        tried, successes = int(stats["count"]), int(stats["successes"])
    except (MediaError, ValueError, KeyError, TypeError) as error:
        yield f"{name} of img2dataset cannot be read: {format_one_line(error)}"
        return
    if successes not in (samples, videos):
        yield f"{name} counts {successes:,} successes, the tar has {samples:,} samples"
    if tried > successes and find_companion(tar, ".parquet") is None:
        yield f"{name} counts {tried - successes:,} samples that failed; the .parquet file that lists them is missing"


def format_one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
