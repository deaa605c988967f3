"""What an export is written to: the form that a target's name asks for, and how rows get there."""

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from auditor.audit_folder.folder import Folder, describe_os_error
from auditor.corpus.corpus_spec import find_corpus_folder, is_folder_spec
from auditor.errors import AuditorError
from auditor.keep.kept_rows import KeptRows
from auditor.query.sandbox import QueryError, Sandbox, literal

Progress = Callable[[int], None]


class ExportError(AuditorError):
    """A target that cannot be written."""


@dataclass(frozen=True, slots=True)
class ExportResult:
    target: str
    form: str  # npy, parquet, txt, csv, tsv, jsonl, webdataset
    rows: int  # what was written: rows; for npy distinct uids, for txt keys, for a folder samples
    shards: int = 0
    captions: int = 0  # pairs kept, of which what was written is made


@contextmanager
def open_unlimited_sandbox(kept: KeptRows, writable: Sequence[str] = ()) -> Iterator[Sandbox]:
    """A sandbox without a time limit: writing takes as long as it takes."""
    sandbox = kept.database.open_sandbox(writable, replace(kept.database.limits, seconds=None), kept.condition)
    try:
        yield sandbox
    finally:
        sandbox.close()


FILES = ("npy", "parquet", "txt", "csv", "tsv", "jsonl")
# what nobody calls a folder
OTHER_FILES = frozenset(["json", "ndjson", "npz", "tar", "tgz", "gz", "zip", "zst", "pkl", "arrow", "feather", "xlsx"])


def parse_target_form(target: str) -> str:
    """npy, parquet, txt, csv, … by the extension; else a folder, unless the name looks like some other kind of file."""
    form = target.rsplit("/", 1)[-1].rpartition(".")[2].lower() if "." in target.rsplit("/", 1)[-1] else ""
    if form in OTHER_FILES:
        raise ExportError(
            f"cannot write .{form}; targets are {', '.join(f'.{f}' for f in FILES)} or a folder for shards"
        )
    return form if form in FILES else "webdataset"


def check_outside_corpus(kept: KeptRows, target: str) -> None:
    """What is written into the folder of a corpus would be part of it when it is read next."""
    database = kept.database
    spec, root = str(database.manifest.get("corpus", {}).get("spec", "")), database.moved_to or database.old_root
    if root and is_folder_spec(spec) and find_corpus_folder(root, target):
        raise ExportError(f"{target} lies in the corpus {root}, which would then hold it: choose a place outside of it")


def copy_to_parquet(kept: KeptRows, folder: Folder, name: str, sql: str) -> int:
    """DuckDB writes the file itself, in a sandbox that may write this one path and no other.

    Bloom filters, which nobody asks who reads all rows, would cost a twentieth of the processor time.
    """
    with folder.writing(name) as path, open_unlimited_sandbox(kept, [str(path)]) as sandbox:
        try:
            return sandbox.rows_of(
                f"COPY ({sql}) TO {literal(str(path))} "
                "(FORMAT parquet, COMPRESSION snappy, ROW_GROUP_SIZE 122880, WRITE_BLOOM_FILTER false, "
                "USE_TMP_FILE false)"
            )
        except QueryError as error:
            full = OSError(errno.ENOSPC, "") if os.strerror(errno.ENOSPC) in str(error) else None
            raise ExportError(
                f"cannot write {folder.path(name)}: {describe_os_error(full) if full else error}"
            ) from None
