r"""File names: media extensions, the key of a name, the natural order of shards and the names of shards.

Names of files and tar members are bytes, decoded with surrogateescape. What a column cannot hold (bytes that are not
UTF-8, a NUL, half a surrogate pair) is escaped there, `caf\xe9`; so is a real backslash before text that looks like an
escape. So different names stay different and a path leads to its file.
"""

import hashlib
import os
import re
from collections.abc import Iterable, Sequence

from auditor.corpus.sample import Kind

IMAGES = frozenset(["jpg", "jpeg", "png", "webp", "gif", "bmp", "tif", "tiff"])
VIDEOS = frozenset(["mp4", "webm", "mkv", "avi", "mov", "m4v", "mpg", "mpeg", "3gp", "wmv", "flv", "ogv"])
SUBTITLES = ("vtt", "srt")
# Media that the auditor cannot decode. In a folder they get a row with that reason; other files (README) get none.
FOREIGN = frozenset(["heic", "heif", "avif", "jxl", "jp2", "svg", "psd", "ico", "tga", "dng"])
MAGIC = {  # first bytes of a file: its extension
    b"\xff\xd8\xff": "jpg",
    b"\x89PNG": "png",
    b"GIF8": "gif",
    b"BM": "bmp",
    b"II*\0": "tif",
    b"MM\0*": "tif",
    b"\x1a\x45\xdf\xa3": "webm",
    b"\0\0\x01\xba": "mpg",
    b"\0\0\x01\xb3": "mpg",
}

_META = re.compile(r"__[^/]*__($|/)")
_DIGITS = re.compile(r"[0-9]+")
_CONTAINER = re.compile(r"\.(tar(\.\w+)?|tgz|parquet|csv|tsv|jsonl|ndjson|json)$", re.IGNORECASE)
_UNSAFE = re.compile(r"^\.|[^\w.-]")
_NOT_PORTABLE = re.compile(r'[\x00-\x1f\x7f<>:"\\|?*#]')
_NO_TEXT = re.compile(r"[\x00\ud800-\udfff]|\\(?=x[0-9a-f]{2}|ud[89a-f][0-9a-f]{2})")
_ESCAPE = re.compile(r"\\x([0-9a-f]{2})|\\u(d[89a-f][0-9a-f]{2})")
MAX_SHARD_NAME = 150  # bytes; file systems allow 255, and a suffix is added later


def guess_media_kind(extension: str) -> Kind | None:
    """Guess image or video from the last part of an extension: `png`, `seg.png`."""
    last = extension.rpartition(".")[2].lower()
    if last in IMAGES:
        return "image"
    return "video" if last in VIDEOS else None


def sniff_media_kind(start: bytes) -> Kind | None:
    return guess_media_kind(sniff_extension(start) or "")


def sniff_extension(start: bytes) -> str | None:
    """Detect the format of a medium by its first 32 bytes; None if it is none that can be decoded."""
    if start[4:8] == b"ftyp":
        return None if start[8:12] in (b"heic", b"heix", b"mif1", b"avif", b"avis", b"msf1") else "mp4"
    if start[8:11] == b"AVI":
        return "avi"
    if start[8:12] == b"WEBP":
        return "webp"
    extension = next((extension for magic, extension in MAGIC.items() if start.startswith(magic)), None)
    return "mov" if extension is None and start[4:8] in (b"moov", b"mdat", b"wide") else extension


def split_key(name: str) -> tuple[str, str] | None:
    """Split at the first dot of the basename, as WebDataset does: `dir/a.seg.PNG` -> (`dir/a`, `seg.png`).

    Return None for files that belong to no sample: hidden files, names without a dot, WebDataset's `__meta__` entries.
    """
    folder, slash, base = name.rpartition("/")
    stem, dot, extension = base.partition(".")
    if not stem or not dot or not extension or _META.match(name):
        return None
    return folder + slash + stem, extension.lower()


def strip_extension(path: str) -> str:
    """Return a path up to the last dot of its last name, or all of it if there is no dot."""
    folder, slash, base = path.rpartition("/")
    return folder + slash + (base.rpartition(".")[0] or base)


def make_portable_key(key: str) -> str:
    """Make a key a valid tar member name on all systems: relative, no scheme, no dots in the last name.

    `/data/a.v2` -> `data/a_v2`, `https://host/b` -> `host/b`.
    """
    names = [name for name in key.rpartition("://")[2].split("/") if name not in ("", ".", "..")]
    if not names:
        return "sample"
    names[-1] = names[-1].replace(".", "_")
    return "/".join(_NOT_PORTABLE.sub("_", name) for name in names)


def make_portable_extension(extension: str) -> str:
    return _NOT_PORTABLE.sub("_", escape_name(extension)).replace("/", "_")


def escape_name(name: str) -> str:
    """Escape a name so that a column can hold it; most names stay as they are."""
    return _NO_TEXT.sub(_escape_match, name)


def _escape_match(match: re.Match[str]) -> str:
    code = ord(match[0])
    byte = code - 0xDC00 if 0xDC80 <= code <= 0xDCFF else code
    return f"\\x{byte:02x}" if byte < 256 else f"\\u{code:04x}"


def unescape_name(text: str) -> str:
    return _ESCAPE.sub(_unescape_match, text)


def _unescape_match(match: re.Match[str]) -> str:
    code = int(match[1] or match[2], 16)
    return chr(code if match[2] or code < 128 else 0xDC00 + code)


def resolve_stored_path(path: str) -> str:
    """Return the path of a file whose name may be escaped: the unescaped path if that file exists."""
    unescaped = unescape_name(path)
    return unescaped if "\0" not in unescaped and os.path.exists(unescaped) else path


def natural_sort_key(name: str) -> tuple[str, str]:
    """Return a sort key that puts `shard-2` before `shard-10`."""
    return _DIGITS.sub(lambda digits: digits[0].zfill(20), name), name


def make_shard_names(paths: Sequence[str]) -> list[str]:
    """Make a safe file name for each relative path, unique even if case is ignored: `a/b.tar` -> `a__b`."""
    names: list[str] = []
    used_names: set[str] = set()
    for path in paths:
        stem = _CONTAINER.sub("", path.strip("/"))
        name = _UNSAFE.sub("_", stem.replace("/", "__")) or "shard"
        if name.casefold() in used_names or len(name.encode()) > MAX_SHARD_NAME:
            digest = hashlib.blake2b(path.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
            name = f"{name.encode()[: MAX_SHARD_NAME - 13].decode(errors='ignore')}-{digest}"
        used_names.add(name.casefold())
        names.append(name)
    return names


def find_common_root(paths: Iterable[str]) -> str:
    """Return the deepest folder that contains all paths: `s3://b/x/1.tar`, `s3://b/x/2.tar` -> `s3://b/x`."""
    return "/".join(os.path.commonprefix([path.split("/")[:-1] for path in paths])) or "/"  # noqa: RUF071 (of lists)
