"""Open files that a stranger may have placed: regular ones only, without blocking, and within limits.

A corpus or an audit may come from an archive or a bucket. A named pipe in it would block for ever, a device would fill
the memory, and a symbolic link would lead to a file of the user. All local files of corpora and audits are opened here.
"""

import errno
import json
import os
import stat
from typing import Any, BinaryIO, NoReturn

MAX_JSON_BYTES = 1 << 30
MAX_JSON_DIGITS = 300  # a longer integer does not fit into a float
NOT_REGULAR = "not a regular file"


def open_regular(path: str, flags: int = os.O_RDONLY, mode: int = 0o666) -> int:
    """Return a descriptor of a regular file. Raises OSError for anything else, such as a pipe or a device."""
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, NOT_REGULAR, path)
    return descriptor


def open_regular_file(path: str) -> BinaryIO:
    return os.fdopen(open_regular(path), "rb")


def check_regular(path: str) -> os.stat_result:
    """Return the status of a regular file, for libraries that open the path themselves. Raises OSError."""
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EISDIR if stat.S_ISDIR(status.st_mode) else errno.EINVAL, NOT_REGULAR, path)
    return status


def leads_outside(path: str, root: str) -> bool:
    """Return whether symbolic links, or `..`, lead from a path below `root` to a place that is not below it."""
    place, base = os.path.realpath(path), os.path.realpath(root)
    return place != base and not place.startswith(base.rstrip("/") + "/")


def find_unsafe_part(root: str, name: str) -> str:
    """Describe the first part of `root/name` that leaves the root or is a special file, or return ""."""
    path = root.rstrip("/")
    for part in name.split("/"):
        path = f"{path}/{part}"
        try:
            mode = os.lstat(path).st_mode
        except OSError:  # nothing there yet
            mode = stat.S_IFREG
        if part == ".." or (stat.S_ISLNK(mode) and leads_outside(path, root)):
            return f"{path} leads out of {root}"
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
            return f"{path} is {NOT_REGULAR}"
    return ""


def parse_json(data: bytes | str) -> Any:
    """Parse JSON without what Python's parser tolerates: NaN, infinity, numbers that no float holds, deep nesting."""
    if len(data) > MAX_JSON_BYTES:
        raise ValueError("too large")
    try:
        return json.loads(data, parse_constant=_refuse, parse_int=_parse_integer, parse_float=_parse_float)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text[:20]} is not a number")


def _parse_integer(text: str) -> int:
    return int(text) if len(text) < MAX_JSON_DIGITS else _refuse(text)


def _parse_float(text: str) -> float:
    number = float(text)
    return number if abs(number) != float("inf") else _refuse(text)
