"""Virtual shards from lists of media and captions, such as tables and COCO's JSON.

Rows that name the same medium become one sample with several captions. The key is the row's own key, else the path
below the list up to the last dot, or the whole path if another medium has that key (`a.jpg`, `a.png`).
"""

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

from auditor.corpus.caption_text import replace_unsafe
from auditor.corpus.corpus_files import is_below, is_url, make_path_absolute, read_range
from auditor.corpus.file_names import VIDEOS, escape_name, guess_media_kind, sniff_media_kind, strip_extension
from auditor.corpus.read_medium import read_medium_bytes
from auditor.corpus.sample import Kind, Media, Problem, Sample, Span
from auditor.corpus.shard import DEFAULT_OPTIONS, CorpusError, CorpusOptions, OpenShard

FindMedia = Callable[[str], tuple[Media | None, Problem | None]]
# Tried in this order if a list has only the ids of videos.
VIDEO_ENDINGS = tuple(f".{extension}" for extension in ("mp4", *sorted(VIDEOS - {"mp4"})))


@dataclass(frozen=True, slots=True)
class TableEntry:
    """One row. `media` is a path relative to the list, an absolute path or a URL; empty if the row names none."""

    row: int
    media: str
    captions: tuple[str, ...]
    key: str | None = None
    uid: str | None = None
    cell: Media | None = None  # the bytes, if they are in the table itself
    defect: str | None = None  # why the row itself cannot be read
    spans: tuple[Span | None, ...] = ()  # of its captions, if the list has spans
    carried: tuple[str | None, ...] = ()  # of each caption, one if there is no caption; empty if nothing is carried
    uids: tuple[str | None, ...] = ()  # of each caption: the row's uid for its first caption
    places: tuple[tuple[int, int], ...] = ()  # of each caption: its row, and its place in the cell
    sources: tuple[str, ...] = ()  # of each caption: its column, if there are several


@dataclass(frozen=True, slots=True)
class EntryShard:
    """Entries that are read when the corpus is opened. Their paths are relative to `folder`."""

    name: str
    folder: str
    entries: tuple[TableEntry, ...]
    options: CorpusOptions = DEFAULT_OPTIONS

    def fingerprint(self) -> str:
        return fingerprint_entries(self.folder, self.entries, self.options)

    @contextmanager
    def open(self) -> Iterator[OpenShard]:
        samples = build_entry_samples(self.name, self.folder, self.entries, self.options)
        yield OpenShard(samples, [], read_medium_bytes)


def build_entry_samples(
    shard: str, folder: str, entries: Sequence[TableEntry], options: CorpusOptions, kind: Kind = "image"
) -> list[Sample]:
    """Build one sample per medium, in the order of first mention. `kind`: of media that do not show it."""
    find_media = partial(_find_media, folder, options, kind)
    return [_build_entry_sample(shard, *medium, find_media) for medium in merge_entries(folder, entries)]


def merge_entries(folder: str, entries: Sequence[TableEntry]) -> Iterator[tuple[str, int, TableEntry]]:
    """Yield (key, occurrence, entry) of each medium, with the entries that name it merged."""
    media_entries: dict[tuple[str | None, str], list[TableEntry]] = {}
    for entry in entries:
        # a row without a path, or with its bytes in the table, is a medium of its own
        identity = resolve_media_path(folder, entry.media) if entry.media and entry.cell is None else f"\0{entry.row}"
        media_entries.setdefault((entry.key, identity), []).append(entry)
    key_counts: dict[str, int] = {}
    for entry in map(_join_entries, media_entries.values()):
        key = escape_name(entry.key if entry.key is not None else _choose_free_key(folder, entry, key_counts))
        occurrence = key_counts.get(key, 0)
        key_counts[key] = occurrence + 1
        yield key, occurrence, entry


def fingerprint_entries(folder: str, entries: Sequence[TableEntry], options: CorpusOptions) -> str:
    """Hash the rows, and the sizes and times of the local files that they name and that may be read."""
    digest = hashlib.blake2b(digest_size=16)
    file_states: dict[str, tuple[int, int]] = {}  # a video has many rows; its file is checked once
    for entry in entries:
        path = resolve_media_path(folder, entry.media)
        if path not in file_states:
            unchecked = is_url(path) or not entry.media
            file = path if unchecked else _find_video_file(path)
            allowed = not entry.media or is_allowed(file, folder, options)
            file_states[path] = (-1, 0) if unchecked and allowed else _stat_file(file) if allowed else (-2, 0)
        size, time = file_states[path]
        fields = (entry.key, entry.media, entry.captions, entry.uid, entry.cell, size, time, *entry.carried)
        extra = [part for part in (entry.spans, entry.sources) if part]
        digest.update(repr((*fields, *extra)).encode())
    return digest.hexdigest()


def resolve_media_path(folder: str, media: str) -> str:
    """Resolve a path of a list against its folder; URLs and absolute paths stay."""
    if is_url(media):
        return make_path_absolute(media)
    if media.startswith("/") and not is_url(folder):
        return media
    path = f"{folder.rstrip('/')}/{media.lstrip('/')}"
    return path if is_url(path) else os.path.normpath(path)


def _join_entries(entries: Sequence[TableEntry]) -> TableEntry:
    first = entries[0]
    if len(entries) == 1:
        return first
    carried = tuple(chain.from_iterable(entry.carried[: len(entry.captions)] for entry in entries))
    lists: dict[str, Any] = {
        name: tuple(chain.from_iterable(getattr(entry, name) for entry in entries))
        for name in ("captions", "places", "uids", "spans", "sources")
    }
    uid = next((entry.uid for entry in entries if entry.uid), None)
    return replace(first, uid=uid, carried=carried or first.carried, **lists)


def _choose_free_key(folder: str, entry: TableEntry, key_counts: dict[str, int]) -> str:
    number = f"{entry.row:09d}"
    if not entry.media:
        return number
    path = entry.media
    if is_url(path):
        candidates = [path]
    else:  # relative to the list if it is below it, else without its leading slash
        path = resolve_media_path(folder, path).removeprefix(f"{folder.rstrip('/')}/").lstrip("/")
        candidates = [strip_extension(path), path]
    return next((key for key in candidates if escape_name(key) not in key_counts), f"{path}#{number}")


def _build_entry_sample(shard: str, key: str, occurrence: int, entry: TableEntry, find_media: FindMedia) -> Sample:
    media, problem = (entry.cell, None) if entry.cell is not None else find_media(entry.media)
    if entry.defect is not None:
        problem = Problem("corrupt", entry.defect)
    if problem is None and media is not None and media.size == 0:
        problem = Problem("corrupt", f"{replace_unsafe(entry.media or key)} is empty")
    if problem is None and not entry.captions:
        problem = Problem("missing_caption", "no caption in its row")
    if occurrence:
        problem = Problem("duplicate_key", f"key {key} was seen {occurrence} times before in this shard")
    spans = entry.spans if any(entry.spans) else ()
    uids = entry.uids if any(entry.uids) else ()
    fields = entry.captions, media, entry.uid, occurrence, problem, spans
    return Sample(shard, key, *fields, carried=entry.carried, uids=uids, sources=entry.sources)


def is_allowed(path: str, folder: str, options: CorpusOptions) -> bool:
    """Return whether a list in `folder` may name this file or URL: only below it, or below a --media-root."""
    roots = (folder, *map(make_path_absolute, options.media_root))
    return any(is_below(path, root, follow_links=options.follow_links) for root in roots)


def refuse_outside_media(table: str, media: Sequence[str], options: CorpusOptions) -> None:
    """Raise CorpusError if all of these media of a table lie outside its folder, before a model is loaded."""
    folder = os.path.dirname(table)
    problems = [_find_outside(folder, resolve_media_path(folder, name), options) for name in media]
    if problems and all(problems):
        raise CorpusError(f"the files that {table} names are not read: {problems[0]}")


def _find_outside(folder: str, path: str, options: CorpusOptions) -> str | None:
    """Describe a path that leads out of the folder of its list, with the option that allows it."""
    if is_allowed(path, folder, options):
        return None
    parent = path[: path.find("/", path.index("://") + 3) + 1] if is_url(path) else os.path.dirname(path)
    return f"{path} lies outside {folder}; --media-root {parent or path} allows it"


def _find_media(folder: str, options: CorpusOptions, default: Kind, media: str) -> tuple[Media | None, Problem | None]:
    if not media:
        return None, Problem("missing_media", "its row names no file")
    path = resolve_media_path(folder, media)
    if not is_url(path):
        path = _find_video_file(path)
    if outside := _find_outside(folder, path, options):
        return None, Problem("outside", replace_unsafe(outside))
    if is_url(path):  # a check would cost a request; reading reports a missing one
        return Media(path, 0, -1, guess_media_kind(path.split("?")[0]) or default), None
    size, _ = _stat_file(path)
    if size < 0:
        return None, Problem("missing_media", replace_unsafe(f"{media} does not exist"))
    kind = guess_media_kind(path)
    if kind is None:
        with suppress(OSError):
            kind = sniff_media_kind(read_range(path, 0, 32))
    if kind is None:
        return None, Problem("missing_media", replace_unsafe(f"{media} is neither an image nor a video"))
    return Media(escape_name(path), 0, size, kind), None


def _find_video_file(path: str) -> str:
    """Return the path, or the file of a video if the path is only its id: `abc` -> `abc.mp4` or `videos/abc.mp4`."""
    if os.path.splitext(path)[1] in VIDEO_ENDINGS or os.path.exists(path):
        return path
    folder, name = os.path.split(path)
    places = (f"{root}/{name}{ending}" for root in (folder, f"{folder}/videos") for ending in VIDEO_ENDINGS)
    return next((place for place in places if os.path.isfile(place)), path)


def _stat_file(path: str) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except (OSError, ValueError):  # ValueError: a NUL in the name
        return -1, 0
    return (status.st_size, status.st_mtime_ns) if os.path.isfile(path) else (-1, 0)
