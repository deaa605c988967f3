r"""Names: which extensions are media, where a key ends, the natural order of shards and what they are called.

Names of files and tar members are bytes, decoded with surrogateescape. What is not UTF-8 (Latin-1 of old archives), a
NUL, and half a surrogate pair cannot stand in a column and are escaped there, `caf\xe9`; a real backslash before what
looks like such an escape is escaped too. So names that differ stay apart, and a path finds its file again.
"""

import hashlib
import os
import re
from collections.abc import Iterable, Sequence

from auditor.corpus.sample import Kind

IMAGES = frozenset(["jpg", "jpeg", "png", "webp", "gif", "bmp", "tif", "tiff"])
VIDEOS = frozenset(["mp4", "webm", "mkv", "avi", "mov", "m4v", "mpg", "mpeg", "3gp", "wmv", "flv", "ogv"])
SUBTITLES = ("vtt", "srt")
# Media that cannot be decoded here: in a folder they still get a row that says so, unlike a README.
FOREIGN = frozenset(["heic", "heif", "avif", "jxl", "jp2", "svg", "psd", "ico", "tga", "dng"])

_META = re.compile(r"__[^/]*__($|/)")
_DIGITS = re.compile(r"[0-9]+")
_CONTAINER = re.compile(r"\.(tar(\.\w+)?|tgz|parquet|csv|tsv|jsonl|ndjson|json)$", re.IGNORECASE)
_UNSAFE = re.compile(r"^\.|[^\w.-]")
_NOT_PORTABLE = re.compile(r'[\x00-\x1f\x7f<>:"\\|?*#]')
_NO_TEXT = re.compile(r"[\x00\ud800-\udfff]|\\(?=x[0-9a-f]{2}|ud[89a-f][0-9a-f]{2})")
_ESCAPE = re.compile(r"\\x([0-9a-f]{2})|\\u(d[89a-f][0-9a-f]{2})")
LONGEST_NAME = 150  # of a shard; file systems allow 255 bytes, and a suffix is still to come


def kind_of(extension: str) -> Kind | None:
    """Image or video by the last part of an extension: `png`, `seg.png`."""
    last = extension.rpartition(".")[2].lower()
    if last in IMAGES:
        return "image"
    return "video" if last in VIDEOS else None


def split_key(name: str) -> tuple[str, str] | None:
    """`dir/a.seg.PNG` -> (`dir/a`, `seg.png`), at the first dot of the basename as WebDataset does.

    None for what is no member of a sample: hidden files, names without a dot, WebDataset's own `__meta__` entries.
    """
    folder, slash, base = name.rpartition("/")
    stem, dot, extension = base.partition(".")
    if not stem or not dot or not extension or _META.match(name):
        return None
    return folder + slash + stem, extension.lower()


def stem_of(path: str) -> str:
    """A path up to the last dot of its last name; all of it where there is none."""
    folder, slash, base = path.rpartition("/")
    return folder + slash + (base.rpartition(".")[0] or base)


def portable_key(key: str) -> str:
    """A key as the name of a tar member: relative, without a scheme, without dots in its last name, in all systems.

    `/data/a.v2` -> `data/a_v2`, `https://host/b` -> `host/b`.
    """
    names = [name for name in key.rpartition("://")[2].split("/") if name not in ("", ".", "..")]
    if not names:
        return "sample"
    names[-1] = names[-1].replace(".", "_")
    return "/".join(_NOT_PORTABLE.sub("_", name) for name in names)


def portable_extension(extension: str) -> str:
    """What follows the first dot of a member's name, in all systems."""
    return _NOT_PORTABLE.sub("_", as_text(extension)).replace("/", "_")


def as_text(name: str) -> str:
    """A name as a column can hold it; nearly always itself."""
    return _NO_TEXT.sub(_escape, name) if _NO_TEXT.search(name) else name


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    byte = code - 0xDC00 if 0xDC80 <= code <= 0xDCFF else code
    return f"\\x{byte:02x}" if byte < 256 else f"\\u{code:04x}"


def from_text(text: str) -> str:
    """The name that `as_text` was given."""
    return _ESCAPE.sub(_unescape, text) if "\\" in text else text


def _unescape(found: re.Match[str]) -> str:
    if found[2]:
        return chr(int(found[2], 16))
    byte = int(found[1], 16)
    return chr(byte) if byte < 128 else chr(0xDC00 + byte)


def real_path(path: str) -> str:
    """Where the file of a stored path is; audits of earlier versions hold paths that were never escaped."""
    found = from_text(path)
    return found if found == path or ("\0" not in found and os.path.exists(found)) else path


def natural(name: str) -> tuple[str, str]:
    """Sort key under which `shard-2` comes before `shard-10`."""
    return _DIGITS.sub(lambda digits: digits[0].zfill(20), name), name


def shard_names(paths: Sequence[str]) -> list[str]:
    """A file-system-safe name for each relative path, unique even where case is ignored: `a/b.tar` -> `a__b`."""
    names: list[str] = []
    taken: set[str] = set()
    for path in paths:
        name = _safe(path)
        if name.casefold() in taken or len(name.encode()) > LONGEST_NAME:
            digest = hashlib.blake2b(path.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
            name = f"{name.encode()[: LONGEST_NAME - 13].decode(errors='ignore')}-{digest}"
        taken.add(name.casefold())
        names.append(name)
    return names


def _safe(path: str) -> str:
    stem = _CONTAINER.sub("", path.strip("/"))
    return _UNSAFE.sub("_", stem.replace("/", "__")) or "shard"


def common_root(paths: Iterable[str]) -> str:
    """The deepest folder all paths lie in, by whole names: `s3://b/x/1.tar`, `s3://b/x/2.tar` -> `s3://b/x`."""
    shared: list[str] | None = None
    for path in paths:
        folders = path.split("/")[:-1]
        if shared is None:
            shared = folders
        elif shared != folders:
            same = 0
            while same < min(len(shared), len(folders)) and shared[same] == folders[same]:
                same += 1
            shared = shared[:same]
    return "/".join(shared or []) or "/"
