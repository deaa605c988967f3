"""A folder on disk or behind fsspec (`s3://`, `gs://`, `memory://`) whose files appear whole or not at all.

On disk a file is written under a temporary name, flushed and renamed; an object store shows an upload only when it is
complete. So a finished file is the mark of finished work, and a kill at any moment leaves nothing half-written.
"""

import contextlib
import errno
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq

from auditor.audit_folder.checksum import KEY, UNSEALED, is_sealed_whole, seal
from auditor.audit_folder.parquet_reader import PythonParquetFile
from auditor.errors import AuditorError

TEMPORARY = ".part-"
_SWEPT: set[str] = set()


class StorageError(AuditorError):
    """A folder that cannot be read or written."""


class Folder:
    """A place for files, local or remote, with paths relative to it."""

    def __init__(self, url: str | Path):
        self.url = str(url).rstrip("/") or "/"
        try:
            self.fs, self.root = fsspec.core.url_to_fs(self.url)
        except (ImportError, ValueError) as error:
            raise StorageError(f"cannot open {self.url}: {error}") from error
        self.local = getattr(self.fs, "protocol", "") == "file" or "file" in self.fs.protocol
        if self.local:
            self.root = os.path.abspath(self.root)

    def __reduce__(self) -> tuple[type["Folder"], tuple[str]]:
        return Folder, (self.url,)

    def path(self, name: str) -> str:
        return f"{self.root}/{name}" if name else self.root

    def address(self, name: str) -> str:
        """Of a file, as others can open it: a path on this machine, or a URL."""
        return self.path(name) if self.local else str(self.fs.unstrip_protocol(self.path(name)))

    def exists(self, name: str = "") -> bool:
        self.fs.invalidate_cache()
        return bool(self.fs.exists(self.path(name)))

    def names(self, folder: str, suffix: str) -> list[str]:
        """Names (without folder and suffix) of the finished files of a folder, sorted."""
        if self.local:
            with contextlib.suppress(FileNotFoundError), os.scandir(self.path(folder)) as entries:
                found = [entry.name for entry in entries]
                return sorted(n.removesuffix(suffix) for n in found if n.endswith(suffix) and not n.startswith("."))
            return []
        self.fs.invalidate_cache()
        try:
            paths = self.fs.ls(self.path(folder), detail=False)
        except FileNotFoundError:
            return []
        found = [str(path).rsplit("/", 1)[-1] for path in paths]
        return sorted(n.removesuffix(suffix) for n in found if n.endswith(suffix) and not n.startswith("."))

    def bytes_in(self, folder: str) -> int:
        """The size of all files of a folder of it."""
        if self.local:
            with contextlib.suppress(FileNotFoundError), os.scandir(self.path(folder)) as entries:
                return sum(entry.stat().st_size for entry in entries)
            return 0
        self.fs.invalidate_cache()
        try:
            return int(self.fs.du(self.path(folder)))
        except FileNotFoundError:
            return 0

    def entries(self) -> list[str]:
        """Names of all that is in it, hidden or not; none where it does not exist yet."""
        self.fs.invalidate_cache()
        try:
            return [str(path).rstrip("/").rsplit("/", 1)[-1] for path in self.fs.ls(self.root, detail=False)]
        except FileNotFoundError:
            return []

    def read_bytes(self, name: str) -> bytes:
        data: bytes = self.fs.cat_file(self.path(name))
        return data

    def read_json(self, name: str) -> Any:
        return json.loads(self.read_bytes(name))

    def write_json(self, name: str, value: Any) -> None:
        text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
        if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
            text = json.dumps(value, indent=1, allow_nan=False)  # a path of undecodable bytes
        with self.writing(name) as local:
            local.write_text(text + "\n", encoding="utf-8")

    def write_table(
        self,
        name: str,
        table: pa.Table,
        metadata: Mapping[str, str] | None = None,
        storage: Mapping[str, Any] | None = None,  # pyarrow's options of how columns are stored
    ) -> None:
        given = {**(metadata or {}), KEY: UNSEALED}
        extra = {**(table.schema.metadata or {}), **{k.encode(): v.encode() for k, v in given.items()}}
        with self.writing(name) as local:
            pq.write_table(table.replace_schema_metadata(extra), local, **(storage or {"compression": "zstd"}))
            seal(local)

    def read_table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        with self.reading(name), self.open_table(name) as file:
            return file.read(list(columns) if columns else None)

    @contextlib.contextmanager
    def open_table(self, name: str) -> Iterator[pq.ParquetFile]:
        """A Parquet file to read from, a part at a time."""
        if self.local:
            with pq.ParquetFile(self.path(name)) as file:
                yield file
        else:
            with self.fs.open(self.path(name), "rb") as remote, PythonParquetFile(remote) as file:
                yield file

    def table_schema(self, name: str) -> pa.Schema:
        """Names and types of the columns, without metadata."""
        with self.reading(name), self.open_table(name) as file:
            return file.schema_arrow.remove_metadata()

    def table_columns(self, name: str) -> list[str]:
        columns: list[str] = self.table_schema(name).names
        return columns

    @contextlib.contextmanager
    def reading(self, name: str) -> Iterator[None]:
        """What goes wrong with a file says which one it was."""
        try:
            yield
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowException) as error:
            what = " ".join(str(error).split())
            raise StorageError(
                f"{self.path(name)} cannot be read; run the `auditor audit` command again ({what})"
            ) from None

    def table_metadata(self, name: str) -> dict[str, str]:
        """The key-value metadata of a Parquet file; empty where there is no such file or it cannot be read."""
        try:
            with self.open_table(name) as file:
                stored = file.metadata.metadata or {}
        except (OSError, pa.ArrowException):
            return {}
        return {key.decode(): value.decode() for key, value in stored.items() if not key.startswith(b"ARROW:")}

    def is_sound(self, name: str) -> bool | None:
        """Whether a Parquet file is as it was written; None where it has no checksum. Reads all of it."""
        try:
            with self.fs.open(self.path(name), "rb") as file:
                return is_sealed_whole(file)
        except OSError:
            return False

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.fs.rm(self.path(name), recursive=True)

    @contextlib.contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """A local path to write to; on success it becomes `name`, whole. On failure nothing is left."""
        target = self.path(name)
        try:
            self.fs.makedirs(target.rsplit("/", 1)[0], exist_ok=True)
            staging = os.path.dirname(target) if self.local else tempfile.gettempdir()
            sweep_abandoned(staging)
            handle, temporary = new_temporary(staging)
        except OSError as error:
            raise StorageError(f"cannot write {target}: {reason(error)}") from error
        try:
            yield Path(temporary)
            if self.local:
                _publish(temporary, target)
            else:
                self.fs.put_file(temporary, target)
        except OSError as error:
            raise StorageError(f"cannot write {target}: {reason(error)}") from error
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            os.close(handle)

    def sweep_temporary(self, *folders: str) -> None:
        """Remove what an earlier run that was killed left under temporary names."""
        if not self.local:
            return
        for folder in folders:
            for path in Path(self.path(folder)).glob(f"{TEMPORARY}*"):
                path.unlink(missing_ok=True)


def new_temporary(folder: str) -> tuple[int, str]:
    """A file that is locked as long as its descriptor is open, so that others see whether its writer is alive."""
    while True:
        handle, path = tempfile.mkstemp(prefix=TEMPORARY, dir=folder)
        fcntl.flock(handle, fcntl.LOCK_EX)
        if os.path.exists(path):  # else it was swept away before it was locked
            return handle, path
        os.close(handle)


def sweep_abandoned(folder: str) -> None:
    """Remove what writers that were killed left in a folder; once for each folder in the life of a process."""
    if folder in _SWEPT:
        return
    _SWEPT.add(folder)
    with os.scandir(folder) as entries:
        left = [entry.path for entry in entries if entry.name.startswith(TEMPORARY)]
    for path in left:
        with contextlib.suppress(OSError):
            handle = os.open(path, os.O_RDWR)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(path)
            finally:
                os.close(handle)


def split_target(target: str) -> tuple[Folder, str]:
    """The folder that a file goes into, on disk or behind a URL, and its name there."""
    parent, _, name = target.rpartition("/")
    if not name or parent.endswith(":/"):
        raise StorageError(f"{target} names no file: give one such as results.json or s3://bucket/results.json")
    return Folder(parent or ("/" if target.startswith("/") else ".")), name


def reason(error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return "the disk is full; free some space and run the same command again to resume"
    return error.strerror or str(error)


def _publish(temporary: str, target: str) -> None:
    os.chmod(temporary, 0o644)
    with open(temporary, "rb") as file:
        os.fsync(file.fileno())
    os.replace(temporary, target)


def free_bytes(folder: Folder) -> int | None:
    """Free space where a local folder is, or will be."""
    if not folder.local:
        return None
    place = Path(folder.root)
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free
