"""A JSON with captions and the folder of its media, as in `coco:captions.json::images`: read whole, cut into shards."""

import json
import os
from collections.abc import Callable
from typing import Any

from auditor.corpus import remote_files
from auditor.corpus.file_names import shard_names
from auditor.corpus.shard import Corpus, CorpusError, CorpusOptions
from auditor.corpus.tables.entry_shard import Entry, ListedShard


def open_json_list(
    spec: str, prefix: str, options: CorpusOptions, entries_of: Callable[[Any, str], list[Entry]]
) -> Corpus:
    """The corpus of `PREFIX:JSON::FOLDER`; both may be URLs."""
    captions, separator, folder = spec.removeprefix(prefix).partition("::")
    if not separator or not captions or not folder:
        raise CorpusError(f"{spec}: say where captions and media are, as in {prefix}captions.json::folder")
    captions, folder = remote_files.absolute(captions), remote_files.absolute(folder)
    if not remote_files.is_url(folder) and not os.path.isdir(folder):
        raise CorpusError(f"{folder} is not a folder")
    entries = entries_of(_load(captions), captions)
    stem = captions.rpartition("/")[2].removesuffix(".json")
    cuts = [entries[start : start + options.shard_size] for start in range(0, len(entries), options.shard_size)]
    names = shard_names([f"{stem}-{number:06d}" for number in range(len(cuts))])
    shards = [ListedShard(name, folder, tuple(cut)) for name, cut in zip(names, cuts, strict=True)]
    return Corpus(spec, folder, shards)


def _load(path: str) -> Any:
    try:
        if remote_files.is_url(path):
            return json.loads(remote_files.read_range(path, 0, -1))
        with open(path, "rb") as file:
            return json.loads(file.read())
    except FileNotFoundError:
        raise CorpusError(f"{path} does not exist") from None
    except (OSError, ValueError, RecursionError) as error:
        raise CorpusError(f"{path} cannot be read as JSON: {error}") from error
