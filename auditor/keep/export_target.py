"""Targets of an export: the form that the target's name selects, and the files and folders that may be written.

A folder of exported shards has a plan, export.json: an interrupted export resumes, and exports never mix.
"""

import errno
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

from auditor.audit_folder.folder import TEMPORARY, Folder, StorageError, describe_os_error, split_target
from auditor.audit_folder.lock import LOCK, REMOTE_LOCK
from auditor.corpus.corpus_spec import find_corpus_folder, is_folder_spec
from auditor.corpus.file_names import resolve_stored_path
from auditor.corpus.read_medium import strip_fragment
from auditor.errors import AuditorError
from auditor.keep.kept_rows import KeptRows
from auditor.query.database import AuditDatabase
from auditor.query.sandbox import QueryError, quote_literal

T = TypeVar("T")
Progress = Callable[[int], None]
FILES = ("npy", "parquet", "txt", "csv", "tsv", "jsonl")
# extensions that are not folder names
OTHER_FILES = frozenset(["json", "ndjson", "npz", "tar", "tgz", "gz", "zip", "zst", "pkl", "arrow", "feather", "xlsx"])
PLAN = "export.json"
EMPTY_COLUMNS = "empty_columns"  # in the metadata of a .parquet: those that it leaves out
SAME = ("fingerprint", "shard_size")  # must not change between the runs of one export


class ExportError(AuditorError):
    """A target that cannot be written."""


@dataclass(frozen=True, slots=True)
class ExportResult:
    target: str
    form: str  # npy, parquet, txt, csv, tsv, jsonl, webdataset
    rows: int  # rows written; distinct uids for npy, keys for txt, samples for a folder
    shards: int = 0
    captions: int = 0  # pairs kept
    changes: Mapping[str, int] = field(default_factory=dict)  # captions that are changed, by what changes them
    empty_columns: tuple[str, ...] = ()  # left out of a .parquet, because no row of the audit has a value


def parse_target_form(target: str) -> str:
    """The form by extension (npy, parquet, txt, csv, ...), or webdataset for a folder; refuses other file types."""
    _, dot, form = target.rsplit("/", 1)[-1].lower().rpartition(".")
    if dot and form in OTHER_FILES:
        raise ExportError(
            f"cannot write .{form}; targets are {', '.join(f'.{f}' for f in FILES)} or a folder for shards"
        )
    return form if dot and form in FILES else "webdataset"


def check_outside_corpus(subset: KeptRows, target: str) -> None:
    """Refuse a target inside the corpus folder, where it would become part of the corpus."""
    database = subset.database
    spec = str(database.manifest.get("corpus", {}).get("spec", ""))
    root = database.places.moved_to or database.places.old_root
    if root and is_folder_spec(spec) and find_corpus_folder(root, target):
        raise ExportError(f"{target} lies in the corpus {root} and would become part of it: choose a place outside")


def open_target_file(subset: KeptRows, target: str, force: bool) -> tuple[Folder, str]:
    """The folder and name of a target file; refuses one inside the corpus, and an existing one without `force`."""
    check_outside_corpus(subset, target)
    folder, name = split_target(target)
    if folder.exists(name) and not force:
        raise ExportError(f"{target} exists; --force replaces it")
    return folder, name


def split_batches(items: Iterator[T], size: int) -> Iterator[list[T]]:
    """Split items into lists of `size`; the last may be shorter."""
    while batch := list(islice(items, size)):
        yield batch


def copy_to_parquet(subset: KeptRows, folder: Folder, name: str, sql: str, note: str = "") -> int:
    """Let DuckDB write the file, in a sandbox that may write only this path; `note` is stored in its metadata.

    Bloom filters do not help readers of all rows and would cost a twentieth of the processor time. A dictionary of more
    than 1,000 values is not worth building. zstd of level 1 takes the time of snappy and two thirds of the bytes.
    """
    with folder.writing(name) as path, subset.open_sandbox(str(path)) as sandbox:
        try:
            return sandbox.run_copy(
                f"COPY ({sql}) TO {quote_literal(str(path))} "
                "(FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1, ROW_GROUP_SIZE 122880, "
                "DICTIONARY_SIZE_LIMIT 1000, WRITE_BLOOM_FILTER false, USE_TMP_FILE false, "
                f"KV_METADATA {{{EMPTY_COLUMNS}: {quote_literal(note)}}})"
            )
        except QueryError as error:
            full = os.strerror(errno.ENOSPC) in str(error)
            reason = describe_os_error(OSError(errno.ENOSPC, "")) if full else error
            raise ExportError(f"cannot write {folder.path(name)}: {reason}") from None


def check_export_folder(folder: Folder) -> None:
    """Refuse a folder with other content than an export or the remains of one, before a lock file is written to it."""
    content = [name for name in folder.entries() if not name.startswith((TEMPORARY, LOCK)) and name != REMOTE_LOCK]
    if content and PLAN not in content:
        raise ExportError(f"{folder.url} exists and is not empty; choose another folder")


def prepare_export(folder: Folder, description: dict[str, Any], force: bool, other_files: tuple[str, ...] = ()) -> None:
    """Start an export, resume the same export, or refuse. `other_files` are its files besides shards."""
    if force:
        clear_export(folder, other_files)
    previous = read_export_plan(folder)
    if previous.get("state") == "complete":
        raise ExportError(f"{folder.url} exists; --force replaces it")
    if previous and any(previous.get(key) != description.get(key) for key in SAME):
        raise ExportError(
            f"{folder.url} holds an unfinished export with other rules or edits or of a corpus that has changed since; "
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
    shards = (f"{name}.tar" for name in folder.names("", ".tar") if name.isdecimal())
    for name in (*shards, *other_files, PLAN):
        folder.remove(name)


def fingerprint_export(*content: Any) -> str:
    return hashlib.blake2b(json.dumps(content).encode(), digest_size=16).hexdigest()


def stamp_media_files(database: AuditDatabase, paths: Iterable[str | None]) -> list[tuple[str, int, int]]:
    """The size and modification time of local media files, so that a changed corpus is a different export."""
    places = [strip_fragment(database.places.locate(path)) for path in paths if path]
    return [identify_file(place) for place in places if "://" not in place]


def identify_file(path: str) -> tuple[str, int, int]:
    try:
        status = os.stat(resolve_stored_path(path))
    except OSError:
        return path, -1, -1
    return path, status.st_size, status.st_mtime_ns
