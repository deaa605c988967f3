"""Names: which extensions are media, where a key ends, the natural order of shards and what they are called."""

import hashlib
import re
from collections.abc import Iterable, Sequence

from auditor.sample import Kind

IMAGES = frozenset(["jpg", "jpeg", "png", "webp", "gif", "bmp", "tif", "tiff"])
VIDEOS = frozenset(["mp4", "webm", "mkv", "avi", "mov", "m4v", "mpg", "mpeg", "3gp"])
# Media that cannot be decoded here: in a folder they still get a row that says so, unlike a README.
FOREIGN = frozenset(
    ["heic", "heif", "avif", "jxl", "jp2", "svg", "psd", "ico", "tga", "exr", "raw", "dng", "cr2", "nef", "arw"]
    + ["wmv", "flv", "ogv", "ts", "mts", "vob"]
)

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
    if not stem or not dot or not extension or re.match(r"__[^/]*__($|/)", name):
        return None
    return folder + slash + stem, extension.lower()


def natural(name: str) -> list[tuple[int, int | str]]:
    """Sort key under which `shard-2` comes before `shard-10`."""
    parts = re.split(r"(\d+)", name)
    return [(0, int(part)) if part.isdecimal() else (1, part) for part in parts] + [(2, name)]


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
    folder, slash, base = path.strip("/").rpartition("/")
    stem = re.sub(r"(?i)(\.tar(\.\w+)?|\.tgz|\.parquet|\.csv|\.tsv|\.jsonl|\.ndjson)$", "", base)
    flat = re.sub(r"/+", "__", folder + slash + stem)
    return re.sub(r"^\.|[^\w.-]", "_", flat) or "shard"


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
