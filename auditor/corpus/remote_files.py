"""Corpora behind fsspec: listing, fetching a shard in one GET, and what the store itself knows of its content."""

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
# What object stores call the digest of an object, best first.
_DIGESTS = ("ETag", "etag", "md5Hash", "content_md5", "sha256", "blob_id", "crc32c")


def is_url(path: str) -> bool:
    return _URL.match(path) is not None


def absolute(path: str) -> str:
    """An absolute local path, or the URL as it is; `file://` becomes a path."""
    if path.startswith("file://"):
        path = path.removeprefix("file://")
    return path.rstrip("/") if is_url(path) else os.path.abspath(path)


def filesystem(url: str) -> tuple[Any, str]:
    """The file system of a URL and the path in it. Listings are not cached: shards come and go while audits run."""
    try:
        fs, path = fsspec.core.url_to_fs(url, use_listings_cache=False)
    except ImportError as error:
        raise CorpusError(f"{url} needs a package that is not installed: {error}") from error
    except ValueError as error:
        raise CorpusError(f"{url}: {error}") from error
    return fs, str(path)


@contextmanager
def reading(url: str) -> Iterator[None]:
    """Errors of any file system as one line; a missing file stays a FileNotFoundError."""
    try:
        yield
    except (FileNotFoundError, CorpusError):
        raise
    except Exception as error:  # each store has its own family of errors: botocore's, aiohttp's, google's, ...
        raise CorpusError(f"{url} cannot be read: {type(error).__name__}: {error}") from error


def open_url(url: str) -> Any:
    """The object as a file to read from, fetched as far as it is read."""
    fs, path = filesystem(url)
    return fs.open(path, "rb")


@contextmanager
def fetched(url: str) -> Iterator[int]:
    """A descriptor of a temporary local copy of the whole object, gone when the context ends or the process dies."""
    with reading(url):
        fs, path = filesystem(url)
        handle, copy = tempfile.mkstemp(prefix="auditor-", suffix=".shard")
        os.close(handle)
        try:
            fs.get_file(path, copy)
            descriptor = os.open(copy, os.O_RDONLY)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(copy)  # an open file lives on without its name
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def describe(url: str) -> dict[str, Any]:
    """What the store says of one object: at least `size`, mostly a digest."""
    with reading(url):
        fs, path = filesystem(url)
        info: dict[str, Any] = fs.info(path)
        return info


def digest_of(info: dict[str, Any]) -> str | None:
    """The store's own digest of the content, with the size; None where it has none."""
    for name in _DIGESTS:
        if info.get(name):
            return f"{name}={str(info[name]).strip(chr(34))};size={info.get('size')}"
    return None


def fingerprint(url: str) -> str:
    """Digest of the content: the store's where it keeps one, else computed by reading all of it."""
    known = digest_of(describe(url))
    digest = hashlib.blake2b(digest_size=16)
    if known is not None:
        digest.update(known.encode())
        return digest.hexdigest()
    with fetched(url) as descriptor, open(descriptor, "rb", closefd=False) as file:
        while chunk := file.read(2**20):
            digest.update(chunk)
    return digest.hexdigest()


def listing(url: str) -> dict[str, dict[str, Any]]:
    """Every file under a URL: its own URL -> what the store says of it."""
    with reading(url):
        fs, path = filesystem(url)
        found: dict[str, dict[str, Any]] = fs.find(path, detail=True)
        return {str(fs.unstrip_protocol(name)): info for name, info in found.items()}


def matching(pattern: str) -> list[str]:
    """URLs that match a glob."""
    with reading(pattern):
        fs, path = filesystem(pattern)
        return [str(fs.unstrip_protocol(name)) for name in fs.glob(path)]


def exists(url: str) -> bool:
    with reading(url):
        fs, path = filesystem(url)
        return bool(fs.exists(path))


def folder_url(url: str) -> str | None:
    """The URL as `listing` spells it if it is a folder, else None."""
    with reading(url):
        fs, path = filesystem(url)
        return str(fs.unstrip_protocol(path)).rstrip("/") if fs.isdir(path) else None


def read_many(urls: list[str]) -> dict[str, bytes]:
    """Small objects, asked for together; those that cannot be read are left out."""
    if not urls:
        return {}
    with reading(urls[0]):
        fs, _ = filesystem(urls[0])
        found = fs.cat([fs._strip_protocol(url) for url in urls], on_error="omit")
        return {str(fs.unstrip_protocol(path)): data for path, data in found.items()}


def read_range(url: str, offset: int, size: int) -> bytes:
    """A stretch of an object in one request; all of it where `size` is negative."""
    with reading(url):
        fs, path = filesystem(url)
        data: bytes = fs.cat_file(path) if size < 0 else fs.cat_file(path, start=offset, end=offset + size)
        return data
