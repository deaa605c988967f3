"""export.json: what a folder of written shards is. A run that was killed goes on with it; another is never mixed in."""

import os
from typing import Any

from auditor.audit_folder.folder import TEMPORARY, Folder, StorageError
from auditor.audit_folder.lock import LOCK, REMOTE_LOCK
from auditor.corpus.file_names import real_path
from auditor.keep.export_target import ExportError

PLAN = "export.json"
SAME = ("fingerprint", "shard_size")  # what must not change between the runs of one export


def refuse_before_lock(folder: Folder) -> None:
    """A folder of something else gets no lock file either."""
    if not folder.exists(PLAN) and not is_free(folder):
        raise ExportError(f"{folder.url} exists and is not empty; choose another folder")


def is_free(folder: Folder) -> bool:
    """Whether there is nothing in it but what a run that was killed has left."""
    return all(name.startswith((TEMPORARY, LOCK)) or name == REMOTE_LOCK for name in folder.entries())


def prepare(folder: Folder, description: dict[str, Any], force: bool, others: tuple[str, ...] = ()) -> None:
    """Start, go on with the same export, or refuse. `others` are files that it has beside its shards."""
    if force:
        clear(folder, others)
    earlier = read_plan(folder)
    if earlier.get("state") == "complete":
        raise ExportError(f"{folder.url} exists; --force replaces it")
    if earlier and any(earlier.get(key) != description.get(key) for key in SAME):
        raise ExportError(
            f"{folder.url} holds an unfinished export by other rules, or of a corpus that has changed since; "
            "--force replaces it"
        )
    folder.write_json(PLAN, {**description, "state": "writing"})


def read_plan(folder: Folder) -> dict[str, Any]:
    """What an earlier run has said; empty where there was none."""
    if not folder.exists(PLAN):
        return {}
    try:
        found = folder.read_json(PLAN)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise StorageError(f"{folder.path(PLAN)} is damaged; --force starts from the beginning")
    return found


def clear(folder: Folder, others: tuple[str, ...]) -> None:
    """Remove an earlier export, and nothing that is not one."""
    for name in folder.names("", ".tar"):
        if name.isdecimal():
            folder.remove(f"{name}.tar")
    for name in (*others, PLAN):
        folder.remove(name)


def stamp(path: str) -> tuple[str, int, int]:
    """Size and time of a file that is read: a corpus that changes in between gives another export."""
    try:
        status = os.stat(real_path(path))
    except OSError:
        return path, -1, -1
    return path, status.st_size, status.st_mtime_ns
