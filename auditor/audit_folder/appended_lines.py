"""Append-only files of an audit, for what people add to it: marks and edited captions. Safe with several writers.

On a local disk an entry is one line of `NAME.jsonl`, appended by a single write; on an object store, which cannot
append, it is one small object under `NAME/`. Nothing is ever rewritten, so writers do not need to coordinate.
"""

import contextlib
import errno
import getpass
import json
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from auditor.audit_folder.folder import Folder
from auditor.regular_files import open_regular


def append_entries(folder: Folder, name: str, entries: Sequence[Mapping[str, Any]]) -> None:
    """Store entries as lines of JSON. Raises OSError."""
    lines = "".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries).encode()
    if folder.local:
        _append_lines(folder.path(f"{name}.jsonl"), lines)
    else:
        folder.fs.pipe_file(folder.path(f"{name}/{time.time_ns():020d}-{uuid.uuid4().hex[:12]}.json"), lines)


def _append_lines(path: str, lines: bytes) -> None:
    """Append by one write to a descriptor opened for appending, which the kernel does atomically.

    If a full disk has truncated the last line, a line break comes first; otherwise both lines would be lost.
    """
    descriptor = open_regular(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW)
    try:
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            lines = b"\n" + lines
        if (written := os.write(descriptor, lines)) < len(lines):
            raise OSError(errno.EIO, f"only {written} of {len(lines)} bytes were written; is the disk full?")
    finally:
        os.close(descriptor)


def read_lines(folder: Folder, name: str) -> list[bytes]:
    """Read all lines in the order in which they were stored; some may be truncated or malformed."""
    if folder.local:
        file = f"{name}.jsonl"
        return folder.read_bytes(file).splitlines() if folder.exists(file) else []
    names = folder.names(name, ".json")
    return [line for entry in names for line in folder.read_bytes(f"{name}/{entry}.json").splitlines()]


def read_lines_version(folder: Folder, name: str) -> str:
    """Return a version that changes with each new entry of a local audit; empty without one, or for a remote audit."""
    if folder.local:
        with contextlib.suppress(OSError):
            status = os.stat(folder.path(f"{name}.jsonl"))
            return f"{status.st_mtime_ns}-{status.st_size}"
    return ""


def find_user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container without a user database
        return "unknown"


def format_time() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
