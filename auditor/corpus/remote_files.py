"""Read corpora through fsspec: list objects, fetch a shard with one GET, use the digests of the store."""

import hashlib
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import fsspec

from auditor.corpus.shard import CorpusError

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
# Names that object stores use for the digest of an object, best first.
_DIGESTS = ("ETag", "etag", "md5Hash", "content_md5", "sha256", "blob_id", "crc32c")


def is_url(path: str) -> bool:
    return _URL.match(path) is not None


def make_path_absolute(path: str) -> str:
    """Make a local path absolute; `file://` becomes a path, other URLs stay."""
    if path.startswith("file://"):
        path = path.removeprefix("file://")
    return path.rstrip("/") if is_url(path) else os.path.abspath(path)


def open_filesystem(url: str) -> tuple[Any, str]:
    """Return the file system of a URL and the path in it. Listings are not cached: shards change while audits run."""
    try:
        fs, path = fsspec.core.url_to_fs(url, use_listings_cache=False)
    except ImportError as error:
        raise CorpusError(f"{url} needs a package that is not installed: {error}") from error
    except ValueError as error:
        raise CorpusError(f"{url}: {error}") from error
    return fs, str(path)


@contextmanager
def convert_store_errors(url: str) -> Iterator[None]:
    """Convert the errors of any file system to CorpusError; a missing file stays a FileNotFoundError."""
    try:
        yield
    except (FileNotFoundError, CorpusError):
        raise
    except Exception as error:  # each store has its own error types: botocore, aiohttp, google, ...
        raise CorpusError(f"{url} cannot be read: {type(error).__name__}: {error}") from error


def open_url(url: str) -> Any:
    """Open an object as a file; only the parts that are read are fetched."""
    fs, path = open_filesystem(url)
    return fs.open(path, "rb")


@contextmanager
def fetch_copy(url: str) -> Iterator[int]:
    """Yield a descriptor of a temporary copy of the object, deleted when the context or the process ends."""
    with convert_store_errors(url):
        fs, path = open_filesystem(url)
        handle, copy = tempfile.mkstemp(prefix="auditor-", suffix=".shard")
        os.close(handle)
        try:
            fs.get_file(path, copy)
            descriptor = os.open(copy, os.O_RDONLY)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(copy)  # the open descriptor keeps the file
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read_object_info(url: str) -> dict[str, Any]:
    """Return the information of the store about one object: at least `size`, usually a digest."""
    with convert_store_errors(url):
        fs, path = open_filesystem(url)
        info: dict[str, Any] = fs.info(path)
        return info


def format_store_digest(info: dict[str, Any]) -> str | None:
    """Return the store's own digest of the content with the size, or None if it has no digest."""
    for name in _DIGESTS:
        if info.get(name):
            return f"{name}={str(info[name]).strip(chr(34))};size={info.get('size')}"
    return None


def fingerprint_object(url: str) -> str:
    """Return a digest of the content: from the store if it has one, else from reading the whole object."""
    store_digest = format_store_digest(read_object_info(url))
    digest = hashlib.blake2b(digest_size=16)
    if store_digest is not None:
        digest.update(store_digest.encode())
        return digest.hexdigest()
    with fetch_copy(url) as descriptor, open(descriptor, "rb", closefd=False) as file:
        while chunk := file.read(2**20):
            digest.update(chunk)
    return digest.hexdigest()


def list_objects(url: str) -> dict[str, dict[str, Any]]:
    """Return the information of the store about every file under a URL, by URL."""
    with convert_store_errors(url):
        fs, path = open_filesystem(url)
        objects: dict[str, dict[str, Any]] = fs.find(path, detail=True)
        return {str(fs.unstrip_protocol(name)): info for name, info in objects.items()}


def glob_urls(pattern: str) -> list[str]:
    """Return the URLs that match a glob."""
    with convert_store_errors(pattern):
        fs, path = open_filesystem(pattern)
        return [str(fs.unstrip_protocol(name)) for name in fs.glob(path)]


def url_exists(url: str) -> bool:
    with convert_store_errors(url):
        fs, path = open_filesystem(url)
        return bool(fs.exists(path))


def find_folder_url(url: str) -> str | None:
    """Return the URL of a folder as `list_objects` spells it, or None if it is not a folder."""
    with convert_store_errors(url):
        fs, path = open_filesystem(url)
        return str(fs.unstrip_protocol(path)).rstrip("/") if fs.isdir(path) else None


def read_objects(urls: list[str]) -> dict[str, bytes]:
    """Read small objects with one call; unreadable ones are left out."""
    if not urls:
        return {}
    with convert_store_errors(urls[0]):
        fs, _ = open_filesystem(urls[0])
        contents = fs.cat([fs._strip_protocol(url) for url in urls], on_error="omit")
        return {str(fs.unstrip_protocol(path)): data for path, data in contents.items()}


def read_object_range(url: str, offset: int, size: int) -> bytes:
    """Read a byte range of an object with one request, or the whole object if `size` is negative."""
    with convert_store_errors(url):
        fs, path = open_filesystem(url)
        data: bytes = fs.cat_file(path) if size < 0 else fs.cat_file(path, start=offset, end=offset + size)
        return data
