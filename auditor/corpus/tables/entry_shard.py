"""Virtual shards from lists: rows that say "this file, this caption", as tables and COCO's JSON do.

Rows that name the same medium are one sample with several captions, so that it is decoded once. A key is the row's own
where it has one; else it is the path below the list, up to the last dot; where two media share that (`a.jpg`, `a.png`),
the second is called by all of its path.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from auditor.corpus import remote_files
from auditor.corpus.caption_text import safe_text
from auditor.corpus.file_names import VIDEOS, as_text, kind_of, stem_of
from auditor.corpus.read_medium import media_reader
from auditor.corpus.sample import Kind, Media, Problem, Sample, Span
from auditor.corpus.shard import OpenShard

KNOWN = tuple(f".{extension}" for extension in ("mp4", *sorted(VIDEOS - {"mp4"})))  # where a list has ids only


@dataclass(frozen=True, slots=True)
class Entry:
    """One row. `media` is a path relative to the list, an absolute one or a URL; empty where the row names none."""

    row: int
    media: str
    captions: tuple[str, ...]
    key: str | None = None
    uid: str | None = None
    cell: Media | None = None  # where the bytes are in the table itself
    defect: str | None = None  # the row itself cannot be read
    spans: tuple[Span | None, ...] = ()  # of its captions, where the list has any
    carried: tuple[str | None, ...] = ()  # of each caption, one where there is none; empty where nothing is carried
    uids: tuple[str | None, ...] = ()  # of each caption: that of its row for the first there
    places: tuple[tuple[int, int], ...] = ()  # of each caption: its row, and which of the captions there


@dataclass(frozen=True, slots=True)
class ListedShard:
    """Entries that are known when the corpus is opened. `folder` is what their paths are relative to."""

    name: str
    folder: str
    entries: tuple[Entry, ...]

    def fingerprint(self) -> str:
        return entries_fingerprint(self.folder, self.entries)

    @contextmanager
    def open(self) -> Iterator[OpenShard]:
        yield OpenShard(samples_of(self.name, self.folder, self.entries), [], media_reader)


def samples_of(shard: str, folder: str, entries: Sequence[Entry], default: Kind = "image") -> list[Sample]:
    """One sample for each medium of the entries, in the order of their first mention."""
    return [
        _sample(shard, folder, entry, key, occurrence, default) for key, occurrence, entry in merged(folder, entries)
    ]


def merged(folder: str, entries: Sequence[Entry]) -> Iterator[tuple[str, int, Entry]]:
    """(key, occurrence, entry) of each medium: the entries that name it as one."""
    found: dict[tuple[str | None, str], Entry] = {}
    for entry in entries:
        # a row without a path, or with its bytes in the table, stands for itself
        identity = locate(folder, entry.media) if entry.media and entry.cell is None else f"\0{entry.row}"
        first = found.get((entry.key, identity))
        found[entry.key, identity] = entry if first is None else _joined(first, entry)
    taken: dict[str, int] = {}
    for entry in found.values():
        key = as_text(entry.key if entry.key is not None else _free_key(folder, entry, taken))
        occurrence = taken.get(key, 0)
        taken[key] = occurrence + 1
        yield key, occurrence, entry


def entries_fingerprint(folder: str, entries: Sequence[Entry]) -> str:
    """Of the rows, and of the sizes and times of the local files they name."""
    digest = hashlib.blake2b(digest_size=16)
    known_files: dict[str, tuple[int, int]] = {}  # rows of a video are many, and its file is looked for once
    for entry in entries:
        path = locate(folder, entry.media)
        if path not in known_files:
            nowhere = remote_files.is_url(path) or not entry.media
            known_files[path] = (-1, 0) if nowhere else _status(_with_extension(path))
        size, time = known_files[path]
        known = (entry.key, entry.media, entry.captions, entry.uid, entry.cell, size, time, *entry.carried)
        digest.update(repr((*known, entry.spans) if entry.spans else known).encode())
    return digest.hexdigest()


def locate(folder: str, media: str) -> str:
    """Where a path of a list leads: URLs and absolute paths stand for themselves."""
    if remote_files.is_url(media):
        return remote_files.absolute(media)
    if media.startswith("/") and not remote_files.is_url(folder):
        return media
    joined = f"{folder.rstrip('/')}/{media.lstrip('/')}"
    return joined if remote_files.is_url(joined) else os.path.normpath(joined)


def _joined(first: Entry, again: Entry) -> Entry:
    carried = first.carried[: len(first.captions)] + again.carried[: len(again.captions)]
    return replace(
        first,
        captions=first.captions + again.captions,
        uid=first.uid or again.uid,
        carried=carried or first.carried,
        places=first.places + again.places,
        uids=first.uids + again.uids,
        spans=first.spans + again.spans,
    )


def _free_key(folder: str, entry: Entry, taken: dict[str, int]) -> str:
    number = f"{entry.row:09d}"
    if not entry.media:
        return number
    path = path_below(folder, entry.media)
    candidates = [path if remote_files.is_url(path) else stem_of(path), path]
    return next((key for key in candidates if as_text(key) not in taken), f"{path}#{number}")


def path_below(folder: str, media: str) -> str:
    """A path relative to the list where it lies below it, else without its leading slash; URLs stay as they are."""
    if remote_files.is_url(media):
        return media
    return locate(folder, media).removeprefix(f"{folder.rstrip('/')}/").lstrip("/")


def _sample(shard: str, folder: str, entry: Entry, key: str, occurrence: int, default: Kind) -> Sample:
    media, problem = (entry.cell, None) if entry.cell is not None else _find(folder, entry.media, default)
    if entry.defect is not None:
        problem = Problem("corrupt", entry.defect)
    if problem is None and media is not None and media.size == 0:
        problem = Problem("corrupt", f"{safe_text(entry.media or key)} is empty")
    if problem is None and not entry.captions:
        problem = Problem("missing_caption", "no caption in its row")
    if occurrence:
        problem = Problem("duplicate_key", f"key {key} was seen {occurrence} times before in this shard")
    spans = entry.spans if any(entry.spans) else ()
    uids = entry.uids if any(entry.uids) else ()
    given = entry.captions, media, entry.uid, occurrence, problem, spans
    return Sample(shard, key, *given, carried=entry.carried, uids=uids)


def _find(folder: str, media: str, default: Kind) -> tuple[Media | None, Problem | None]:
    if not media:
        return None, Problem("missing_media", "its row names no file")
    path = locate(folder, media)
    if remote_files.is_url(path):  # asking for each would cost a request; a missing one shows when it is read
        return Media(path, 0, -1, kind_of(path.split("?")[0]) or default), None
    path = _with_extension(path)
    size, _ = _status(path)
    if size < 0:
        return None, Problem("missing_media", safe_text(f"{media} does not exist"))
    kind = kind_of(path) or sniff_kind(_start(path))
    if kind is None:
        return None, Problem("missing_media", safe_text(f"{media} is neither an image nor a video"))
    return Media(as_text(path), 0, size, kind), None


def _with_extension(path: str) -> str:
    """The path, or where only the id of a video stands there, its file: `abc` -> `abc.mp4` or `videos/abc.mp4`."""
    if os.path.splitext(path)[1] in KNOWN or os.path.exists(path):
        return path
    folder, name = os.path.split(path)
    places = (f"{root}/{name}{ending}" for root in (folder, f"{folder}/videos") for ending in KNOWN)
    return next((place for place in places if os.path.isfile(place)), path)


def sniff_kind(start: bytes) -> Kind | None:
    """Image or video by the first bytes (32 are enough); None for what is neither."""
    if start.startswith((b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"BM", b"II*\0", b"MM\0*")) or start[8:12] == b"WEBP":
        return "image"
    if start[4:8] == b"ftyp":
        return None if start[8:12] in (b"heic", b"heix", b"mif1", b"avif", b"avis", b"msf1") else "video"
    video = start.startswith((b"\x1a\x45\xdf\xa3", b"\0\0\x01\xba", b"\0\0\x01\xb3")) or start[8:11] == b"AVI"
    return "video" if video or start[4:8] in (b"moov", b"mdat", b"wide") else None


def _status(path: str) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except (OSError, ValueError):  # ValueError: a NUL in the name
        return -1, 0
    return (status.st_size, status.st_mtime_ns) if os.path.isfile(path) else (-1, 0)


def _start(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(32)
    except OSError:
        return b""
