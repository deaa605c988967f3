"""export.json, the plan of a folder of exported shards: an interrupted export resumes, and exports never mix."""

import os
from typing import Any

from auditor.audit_folder.folder import TEMPORARY, Folder, StorageError
from auditor.audit_folder.lock import LOCK, REMOTE_LOCK
from auditor.corpus.file_names import resolve_stored_path
from auditor.keep.export_target import ExportError

PLAN = "export.json"
SAME = ("fingerprint", "shard_size")  # must not change between the runs of one export


def check_export_folder(folder: Folder) -> None:
    """Refuse a folder with other content, before a lock file is written to it."""
    if not folder.exists(PLAN) and not is_free_target(folder):
        raise ExportError(f"{folder.url} exists and is not empty; choose another folder")


def is_free_target(folder: Folder) -> bool:
    """Whether the folder holds nothing but the remains of an interrupted run."""
    return all(name.startswith((TEMPORARY, LOCK)) or name == REMOTE_LOCK for name in folder.entries())


def prepare_export(folder: Folder, description: dict[str, Any], force: bool, other_files: tuple[str, ...] = ()) -> None:
    """Start an export, resume the same export, or refuse. `other_files` are its files besides shards."""
    if force:
        clear_export(folder, other_files)
    previous = read_export_plan(folder)
    if previous.get("state") == "complete":
        raise ExportError(f"{folder.url} exists; --force replaces it")
    if previous and any(previous.get(key) != description.get(key) for key in SAME):
        raise ExportError(
            f"{folder.url} holds an unfinished export with other rules or of a corpus that has changed since; "
            "--force replaces it"
        )
    folder.write_json(PLAN, {**description, "state": "writing"})


def read_export_plan(folder: Folder) -> dict[str, Any]:
    """The plan of an earlier run; empty if there was none."""
    if not folder.exists(PLAN):
        return {}
    try:
        plan = folder.read_json(PLAN)
    except ValueError:
        plan = None
    if not isinstance(plan, dict):
        raise StorageError(f"{folder.path(PLAN)} is damaged; --force starts over")
    return plan


def clear_export(folder: Folder, other_files: tuple[str, ...]) -> None:
    """Remove an earlier export and nothing else."""
    for name in folder.names("", ".tar"):
        if name.isdecimal():
            folder.remove(f"{name}.tar")
    for name in (*other_files, PLAN):
        folder.remove(name)


def stamp_file(path: str) -> tuple[str, int, int]:
    """The size and modification time of a file, so that a changed corpus is a different export."""
    try:
        status = os.stat(resolve_stored_path(path))
    except OSError:
        return path, -1, -1
    return path, status.st_size, status.st_mtime_ns
