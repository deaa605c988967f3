"""Targets of an export: the form that the target's name selects, and the sandbox that writes rows."""

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeVar

from auditor.audit_folder.folder import Folder, describe_os_error, split_target
from auditor.corpus.corpus_spec import find_corpus_folder, is_folder_spec
from auditor.errors import AuditorError
from auditor.keep.kept_rows import KeptRows
from auditor.query.sandbox import QueryError, Sandbox, quote_literal

T = TypeVar("T")
Progress = Callable[[int], None]


class ExportError(AuditorError):
    """A target that cannot be written."""


@dataclass(frozen=True, slots=True)
class ExportResult:
    target: str
    form: str  # npy, parquet, txt, csv, tsv, jsonl, webdataset
    rows: int  # rows written; distinct uids for npy, keys for txt, samples for a folder
    shards: int = 0
    captions: int = 0  # pairs kept


@contextmanager
def open_unlimited_sandbox(subset: KeptRows, writable: Sequence[str] = ()) -> Iterator[Sandbox]:
    """A sandbox without a time limit, for writing."""
    sandbox = subset.database.open_sandbox(writable, replace(subset.database.limits, seconds=None), subset.condition)
    try:
        yield sandbox
    finally:
        sandbox.close()


FILES = ("npy", "parquet", "txt", "csv", "tsv", "jsonl")
# extensions that are not folder names
OTHER_FILES = frozenset(["json", "ndjson", "npz", "tar", "tgz", "gz", "zip", "zst", "pkl", "arrow", "feather", "xlsx"])


def parse_target_form(target: str) -> str:
    """The form by extension (npy, parquet, txt, csv, ...), or webdataset for a folder; refuses other file types."""
    form = target.rsplit("/", 1)[-1].rpartition(".")[2].lower() if "." in target.rsplit("/", 1)[-1] else ""
    if form in OTHER_FILES:
        raise ExportError(
            f"cannot write .{form}; targets are {', '.join(f'.{f}' for f in FILES)} or a folder for shards"
        )
    return form if form in FILES else "webdataset"


def check_outside_corpus(subset: KeptRows, target: str) -> None:
    """Refuse a target inside the corpus folder, where it would become part of the corpus."""
    database = subset.database
    spec, root = str(database.manifest.get("corpus", {}).get("spec", "")), database.moved_to or database.old_root
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


def copy_to_parquet(subset: KeptRows, folder: Folder, name: str, sql: str) -> int:
    """Let DuckDB write the file, in a sandbox that may write only this path.

    Bloom filters do not help readers of all rows and would cost a twentieth of the processor time.
    """
    with folder.writing(name) as path, open_unlimited_sandbox(subset, [str(path)]) as sandbox:
        try:
            return sandbox.run_copy(
                f"COPY ({sql}) TO {quote_literal(str(path))} "
                "(FORMAT parquet, COMPRESSION snappy, ROW_GROUP_SIZE 122880, WRITE_BLOOM_FILTER false, "
                "USE_TMP_FILE false)"
            )
        except QueryError as error:
            full = OSError(errno.ENOSPC, "") if os.strerror(errno.ENOSPC) in str(error) else None
            raise ExportError(
                f"cannot write {folder.path(name)}: {describe_os_error(full) if full else error}"
            ) from None
