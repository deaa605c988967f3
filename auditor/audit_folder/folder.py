"""A folder on disk or behind fsspec (`s3://`, `gs://`, `memory://`) with atomic writes.

A file appears only when it is complete, so its existence marks finished work: on disk it is written under a temporary
name, flushed and renamed; an object store shows an upload at its end.
"""

import contextlib
import errno
import fcntl
import json
import os
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from auditor.audit_folder.arrow_schema import find_type_error
from auditor.audit_folder.checksum import CHECKSUM_KEY, EMPTY_CHECKSUM, verify_checksum, write_checksum
from auditor.audit_folder.parquet_reader import PythonParquetFile
from auditor.errors import AuditorError
from auditor.regular_files import find_unsafe_part, open_regular, open_regular_file, parse_json

TEMPORARY = ".part-"
_SWEPT: set[str] = set()  # folders without the temporary files of earlier processes


class StorageError(AuditorError):
    """A folder cannot be read or written."""


class StoreError(AuditorError):
    """A remote store refused or failed: its file may be sound."""


class Folder:
    """A local or remote folder; the names of its files are paths relative to it."""

    def __init__(self, url: str | Path):
        self.url = str(url).rstrip("/") or "/"
        is_path = ":" not in self.url and not self.url.startswith("~")
        self.root = self.url if is_path else str(self._resolve_url()[1])
        self.local = is_path or "file" in self.fs.protocol
        if self.local:
            self.root = os.path.abspath(self.root)

    @cached_property
    def fs(self) -> Any:
        """The fsspec file system; most programs that read a local audit never ask for it."""
        return self._resolve_url()[0]

    def _resolve_url(self) -> tuple[Any, str]:
        import fsspec  # takes longer than to read a small audit

        try:
            fs, root = fsspec.core.url_to_fs(self.url)
        except (ImportError, ValueError) as error:
            raise StorageError(f"cannot open {self.url}: {error}") from error
        return fs, root

    def __reduce__(self) -> tuple[type["Folder"], tuple[str]]:
        return Folder, (self.url,)

    def path(self, name: str) -> str:
        """Return the path of a file. Raises StorageError if it leads out of this folder or is a special file."""
        if self.local and name and (unsafe := find_unsafe_part(self.root, name)):
            raise StorageError(f"{unsafe}: it is neither read nor written")
        return f"{self.root}/{name}" if name else self.root

    def address(self, name: str) -> str:
        """Return the path or URL of a file, as other programs open it."""
        return self.path(name) if self.local else str(self.fs.unstrip_protocol(self.path(name)))

    def exists(self, name: str = "") -> bool:
        if self.local:
            return os.path.exists(self.path(name))
        self.fs.invalidate_cache()
        with self.naming(name):
            return bool(self.fs.exists(self.path(name)))

    def entries(self, folder: str = "") -> list[str]:
        """Return the names of all files and folders in a folder, also hidden ones; none if it does not exist yet."""
        try:
            if self.local:
                return os.listdir(self.path(folder))
            self.fs.invalidate_cache()
            with self.naming(folder):
                paths = self.fs.ls(self.path(folder), detail=False)
        except FileNotFoundError:
            return []
        except NotADirectoryError:  # a file
            paths = [self.path(folder)]
        return [str(path).rstrip("/").rsplit("/", 1)[-1] for path in paths]

    def names(self, folder: str, suffix: str) -> list[str]:
        """Return the sorted names, without folder and suffix, of the finished files of a folder."""
        names = (name for name in self.entries(folder) if name.endswith(suffix) and not name.startswith("."))
        return sorted(name.removesuffix(suffix) for name in names)

    def bytes_in(self, folder: str) -> int:
        self.fs.invalidate_cache()
        try:
            return int(self.fs.du(self.path(folder)))
        except FileNotFoundError:
            return 0

    def read_bytes(self, name: str) -> bytes:
        if self.local:
            with open_regular_file(self.path(name)) as file:
                return file.read()
        with self.naming(name):
            data: bytes = self.fs.cat_file(self.path(name))
            return data

    def read_json(self, name: str) -> Any:
        return parse_json(self.read_bytes(name))

    def write_json(self, name: str, value: Any) -> None:
        text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
        if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
            text = json.dumps(value, indent=1, allow_nan=False)  # a path with undecodable bytes
        with self.writing(name) as local:
            local.write_text(text + "\n", encoding="utf-8")

    def write_table(
        self,
        name: str,
        table: pa.Table,
        metadata: Mapping[str, str] | None = None,
        storage: Mapping[str, Any] | None = None,  # pyarrow's options for storing columns
    ) -> None:
        fields = {**(metadata or {}), CHECKSUM_KEY: EMPTY_CHECKSUM}
        extra = {**(table.schema.metadata or {}), **{k.encode(): v.encode() for k, v in fields.items()}}
        with self.writing(name) as local:
            pq.write_table(table.replace_schema_metadata(extra), local, **(storage or {"compression": "zstd"}))
            write_checksum(local)

    def read_table(self, name: str, columns: Sequence[str] | None = None, schema: pa.Schema | None = None) -> pa.Table:
        """Read a Parquet file. Raises StorageError if it lacks a column of `columns`, or one of `schema`."""
        with self.reading(name), self.open_table(name, schema) as file:
            if absent := sorted(set(columns or ()).difference(file.schema_arrow.names)):
                raise StorageError(f"{self.path(name)} is damaged: it has no column {absent[0]}")
            return file.read(list(columns) if columns else None)

    @contextlib.contextmanager
    def open_table(self, name: str, schema: pa.Schema | None = None) -> Iterator[pq.ParquetFile]:
        """Open a Parquet file. Raises StorageError if it is a table of an audit and its columns have other types."""
        with contextlib.ExitStack() as stack:
            if self.local:
                file = stack.enter_context(pq.ParquetFile(self.path(name)))
            else:
                remote = stack.enter_context(self.fs.open(self.path(name), "rb"))
                file = stack.enter_context(PythonParquetFile(remote))
            if wrong := find_type_error(name, file.schema_arrow, schema):
                raise StorageError(f"{self.path(name)} is damaged: {wrong}; run the `auditor audit` command again")
            yield file

    def table_schema(self, name: str) -> pa.Schema:
        with self.reading(name), self.open_table(name) as file:
            return file.schema_arrow.remove_metadata()

    @contextlib.contextmanager
    def naming(self, name: str) -> Iterator[None]:
        """Convert errors of a remote store to StoreError with the address of the file."""
        try:
            yield
        except OSError as error:
            # Arrow's own errors about damaged files have no number, but a 403 of s3fs has none either
            has_number = error.errno not in (None, errno.ENOENT, errno.ENOTDIR)
            if self.local or not (has_number or isinstance(error, PermissionError)):
                raise
            raise StoreError(f"cannot read {self.address(name)}: {describe_os_error(error)}") from error

    @contextlib.contextmanager
    def reading(self, name: str) -> Iterator[None]:
        """Convert errors to StorageError with the path of the file."""
        try:
            with self.naming(name):
                yield
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowException) as error:
            cause = " ".join(str(error).split())
            raise StorageError(
                f"{self.path(name)} cannot be read; run the `auditor audit` command again ({cause})"
            ) from None

    def table_metadata(self, name: str) -> dict[str, str]:
        """Return the key-value metadata of a Parquet file; empty if the file is missing or unreadable."""
        try:
            with self.naming(name), self.open_table(name) as file:
                stored = file.metadata.metadata or {}
        except (OSError, pa.ArrowException, StorageError):
            return {}
        return {
            key.decode(errors="replace"): value.decode(errors="replace")
            for key, value in stored.items()
            if not key.startswith(b"ARROW:")
        }

    def is_sound(self, name: str) -> bool | None:
        """Return whether a Parquet file is as it was written, or None if it has no checksum. Reads the whole file."""
        try:
            with self.naming(name), self.fs.open(self.path(name), "rb") as file:
                return verify_checksum(file)
        except OSError:
            return False

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.fs.rm(self.path(name), recursive=True)

    @contextlib.contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """Yield a local path to write to. On success it becomes `name`; on failure it is removed."""
        target = self.path(name)
        staging = os.path.dirname(target) if self.local else tempfile.gettempdir()
        temporary, handle = f"{staging}/{TEMPORARY}{uuid.uuid4().hex[:12]}", -1  # named first: an interrupt finds it
        try:
            make_folders = os.makedirs if self.local else self.fs.makedirs  # `fs` imports fsspec
            make_folders(target.rsplit("/", 1)[0], exist_ok=True)
            if staging not in _SWEPT:
                _SWEPT.add(staging)
                remove_abandoned_files(staging)
            handle = create_locked_file(temporary)
            yield Path(temporary)
            if self.local:
                os.chmod(temporary, 0o644)
                with open(temporary, "rb") as file:  # not `handle`: the caller may have replaced the file
                    os.fsync(file.fileno())
                os.replace(temporary, target)
            else:
                self.fs.put_file(temporary, target)
        except OSError as error:
            raise StorageError(f"cannot write {self.address(name)}: {describe_os_error(error)}") from error
        finally:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            if handle >= 0:
                os.close(handle)

    def sweep_temporary(self, *folders: str) -> None:
        for folder in folders if self.local else ():
            remove_abandoned_files(self.path(folder))


def create_locked_file(path: str) -> int:
    """Create a file that is locked while its descriptor is open, so other processes see if its writer is alive."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(handle, fcntl.LOCK_EX)
        if os.path.exists(path):  # else another process removed it before it was locked
            return handle
        os.close(handle)


def remove_abandoned_files(folder: str) -> None:
    """Remove the temporary files of killed writers in a folder: those that no process has locked."""
    for path in Path(folder).glob(f"{TEMPORARY}*"):
        with contextlib.suppress(OSError):
            handle = open_regular(str(path), os.O_RDWR | os.O_NOFOLLOW)
            with os.fdopen(handle, "r+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()


def split_target(target: str) -> tuple[Folder, str]:
    parent, _, name = target.rpartition("/")
    if not name or parent.endswith(":/"):
        raise StorageError(f"{target} is not a file: give one such as results.json or s3://bucket/results.json")
    return Folder(parent or ("/" if target.startswith("/") else ".")), name


def describe_os_error(error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return "the disk is full; free some space and run the same command again to resume"
    return error.strerror or str(error)
