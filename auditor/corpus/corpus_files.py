"""Read the files of a corpus, on disk or through fsspec: a remote shard is fetched with one GET."""

import glob
import hashlib
import os
import re
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from typing import IO, Any

from auditor.audit_folder.hub import HUB, explain_hub_errors, retry
from auditor.corpus.shard import CorpusError
from auditor.errors import AuditorError
from auditor.regular_files import leads_outside, open_regular_file

Info = Mapping[str, Any]  # of the store about one object: at least `size`, usually a digest
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
SETTLED_SECONDS = 10.0  # after a change, a further one has another time on any file system
# Names that object stores use for the digest of an object, best first.
_DIGESTS = ("ETag", "etag", "md5Hash", "content_md5", "sha256", "blob_id", "crc32c")


def is_url(path: str) -> bool:
    return _URL.match(path) is not None


def make_path_absolute(path: str) -> str:
    """Make a local path absolute; `file://` becomes a path, other URLs stay."""
    path = path.removeprefix("file://")
    return path.rstrip("/") if is_url(path) else os.path.abspath(path)


@contextmanager
def open_store(url: str) -> Iterator[tuple[Any, str]]:
    """Yield the file system of a URL and the path in it; all errors but a missing file become a CorpusError."""
    import fsspec

    try:
        try:  # listings are not cached: shards change while audits run
            fs, path = fsspec.core.url_to_fs(url, use_listings_cache=False)
        except ImportError as error:
            raise CorpusError(f"{url} needs a package that is not installed: {error}") from error
        except ValueError as error:
            raise CorpusError(f"{url}: {error}") from error
        if url.startswith(HUB):
            with explain_hub_errors(url):
                retry(partial(fs.resolve_path, path))  # remembers the repository, so that no later call asks for it
                yield fs, str(path)
            return
        yield fs, str(path)
    except (FileNotFoundError, AuditorError):
        raise
    except Exception as error:  # each store has its own error types: botocore, aiohttp, google, ...
        raise CorpusError(f"{url} cannot be read: {type(error).__name__}: {error}") from error


def open_file(path: str) -> IO[bytes]:
    """Open a file; of a remote one, only the parts that are read are fetched."""
    if not is_url(path):
        return open_regular_file(path)
    with open_store(path) as (fs, name):
        file: IO[bytes] = fs.open(name, "rb")
        return file


def open_copy(path: str) -> IO[bytes]:
    """Open a local file, or a temporary copy of a remote one, deleted when it is closed or the process ends."""
    if not is_url(path):
        return open_regular_file(path)
    with open_store(path) as (fs, name):
        handle, copy = tempfile.mkstemp(prefix="auditor-", suffix=".shard")
        os.close(handle)
        try:
            retry(partial(fs.get_file, name, copy))
            return open(copy, "rb")
        finally:
            with suppress(FileNotFoundError):
                os.unlink(copy)  # the open file keeps its bytes


def read_range(path: str, offset: int = 0, size: int = -1) -> bytes:
    """Read a byte range, of a remote file with one request, or the whole file if `size` is negative."""
    if is_url(path):
        with open_store(path) as (fs, name):
            data: bytes = fs.cat_file(name) if size < 0 else fs.cat_file(name, start=offset, end=offset + size)
            return data
    with open_regular_file(path) as file:
        file.seek(offset)
        return file.read(max(size, -1))


def read_files(paths: list[str], limit: int) -> dict[str, bytes]:
    """Read small files, remote ones with one call, without unreadable ones and those of more than `limit` bytes."""
    contents: dict[str, bytes] = {}
    if paths and is_url(paths[0]):
        with open_store(paths[0]) as (fs, _):
            objects = fs.cat([fs._strip_protocol(path) for path in paths], on_error="omit")
            return {str(fs.unstrip_protocol(name)): data for name, data in objects.items()}
    for path in paths:
        with suppress(OSError), open_regular_file(path) as file:
            if len(data := file.read(limit + 1)) <= limit:
                contents[path] = data
    return contents


def is_below(path: str, root: str, *, follow_links: bool = False) -> bool:
    """Return whether a path or URL is a root or lies below it, links resolved unless they may be followed."""
    if path.rstrip("/") == root.rstrip("/"):
        return True
    if is_url(path) or is_url(root):
        return path.startswith(root if root.endswith("/") else f"{root}/") and ".." not in path.split("/")
    if follow_links:
        return os.path.normpath(path).startswith(os.path.normpath(root).rstrip("/") + "/")
    folder, name = os.path.split(path)
    if os.path.islink(path):
        return not leads_outside(path, root)
    return not _leads_outside(folder, root) and name not in ("", "..")


_leads_outside = lru_cache(maxsize=4096)(leads_outside)  # of folders: media of one folder are many


def path_exists(path: str) -> bool:
    if not is_url(path):
        return os.path.exists(path)
    with open_store(path) as (fs, name):
        return bool(fs.exists(name))


def expand_glob(pattern: str) -> list[str]:
    if not is_url(pattern):
        return glob.glob(pattern, recursive=True)
    with open_store(pattern) as (fs, path):
        return [str(fs.unstrip_protocol(name)) for name in fs.glob(path)]


def list_files(folder: str) -> dict[str, Info]:
    """Return all files under a folder with the information of the store, which is empty for local files.

    Symbolic links to folders are not followed, so there are no cycles.
    """
    if not is_url(folder):
        walk = os.walk(folder)
        return {os.path.join(top, name): {} for top, _, names in walk for name in names if name[0] != "."}
    with open_store(folder) as (fs, path):
        return {str(fs.unstrip_protocol(name)): info for name, info in fs.find(path, detail=True).items()}


def read_object_info(url: str) -> Info:
    with open_store(url) as (fs, path):
        info: Info = fs.info(path)
        return info


def format_store_digest(info: Info) -> str | None:
    """Return the store's own digest of the content with the size, or None if it has no digest."""
    name = next((name for name in _DIGESTS if info.get(name)), None)
    return name and f"{name}={str(info[name]).strip(chr(34))};size={info.get('size')}"


def digest(data: bytes | memoryview) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def hash_file(path: str) -> str:
    """Hash the content, or the store's own digest of a remote file if there is one.

    A local file is read once as long as it is the same file and nobody changes it. Times of changes are coarse, so the
    times of a file that has just been changed show nothing.
    """
    if is_url(path) and (digest := format_store_digest(read_object_info(path))):
        return hashlib.blake2b(digest.encode(), digest_size=16).hexdigest()
    with open_copy(path) as file:
        status = os.fstat(file.fileno())
        if is_url(path) or max(status.st_mtime, status.st_ctime) > time.time() - SETTLED_SECONDS:
            return _hash_content(file)
    state = status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
    return _hash_settled_file(path, state)


@lru_cache(maxsize=1024)
def _hash_settled_file(path: str, state: tuple[int, ...]) -> str:
    with open_regular_file(path) as file:
        return _hash_content(file)


def _hash_content(file: IO[bytes]) -> str:
    return hashlib.file_digest(file, partial(hashlib.blake2b, digest_size=16)).hexdigest()  # type: ignore[arg-type]


def stamp_file(path: str) -> str:
    if is_url(path):
        return hash_file(path)
    status = os.stat(path)
    return f"{status.st_size} {status.st_mtime_ns}"
