"""A folder that Hugging Face's `save_to_disk` wrote: state.json says which of its Arrow files are the dataset.

Others in it are caches of `map` and `filter`. A dictionary of datasets has a folder for each split.
"""

import json
from collections.abc import Sequence

from auditor.corpus.read_medium import MediaError, read_media

STATE = "state.json"


def without_caches(files: Sequence[str]) -> list[str]:
    """The files of a corpus without the Arrow files that no dataset beside them calls its own."""
    own: dict[str, set[str]] = {}
    for path in files:
        folder, _, name = path.rpartition("/")
        if name == STATE and (listed := data_files(path)):
            own[folder] = {f"{folder}/{file}" for file in listed}
    return sorted(
        {path for path in files if not path.endswith(".arrow") or path in own.get(path.rpartition("/")[0], {path})}
        | {path for paths in own.values() for path in paths}
    )


def data_files(state: str) -> list[str]:
    """The Arrow files that a state.json names; none where it is of something else."""
    try:
        found = json.loads(read_media(state, 0, -1))
        return [entry["filename"] for entry in found["_data_files"] if "/" not in entry["filename"]]
    except (MediaError, ValueError, KeyError, TypeError, RecursionError):
        return []
