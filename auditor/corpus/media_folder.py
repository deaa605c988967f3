"""A folder of media with sidecars, `cat.jpg` beside `cat.txt`, `cat.json` or `cat.vtt`, cut into virtual shards.

A key is always the path of the medium below the folder, up to its last dot: `clip.0001.mp4` has the key `clip.0001`. A
sidecar is named like the medium, with its extension or without (`a.jpg.txt`, `a.txt`); `a.jpg` beside `a.png` repeats a
key. Hidden files, and files that are neither media nor sidecars, are not part of the corpus.
"""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from auditor.corpus import remote_files
from auditor.corpus.file_names import (
    FOREIGN,
    SUBTITLES,
    guess_media_kind,
    make_shard_names,
    natural_sort_key,
    split_key,
    strip_extension,
)
from auditor.corpus.read_medium import read_medium_bytes
from auditor.corpus.sample import Sample
from auditor.corpus.sample_files import SampleFile, build_sample, describe_text_problems
from auditor.corpus.shard import CorpusOptions, OpenShard

_LANGUAGE = re.compile(r"\.[a-z]{2,3}([-_]\w+)*$", re.IGNORECASE)
SIDECARS = frozenset(["txt", "json", *SUBTITLES])


@dataclass(frozen=True, slots=True)
class FolderFile:
    """A file below the root. Size and digest come from the listing of a remote store, and are unset for local files."""

    name: str
    size: int = -1
    digest: str = ""


@dataclass(frozen=True, slots=True)
class FolderShard:
    """Some keys of a folder with all of their files."""

    name: str
    root: str
    files: tuple[FolderFile, ...]
    options: CorpusOptions

    def fingerprint(self) -> str:
        """Hash the names, sizes and times of all files and the content of the sidecars."""
        digest = hashlib.blake2b(digest_size=16)
        sidecars = self.sidecars()
        for file in self.files:
            digest.update(repr((file.name, file.size, file.digest)).encode("utf-8", "surrogatepass"))
            digest.update(b"" if remote_files.is_url(self.root) else _stamp_file(self.path(file.name)).encode())
            digest.update(sidecars.get(file.name, b""))
        return digest.hexdigest()

    @contextmanager
    def open(self) -> Iterator[OpenShard]:
        sidecars = self.sidecars()
        parts = {part.name: part for file in self.files if (part := self.part(file)) is not None}

        def read(part: SampleFile) -> bytes:
            return sidecars.get(part.name, b"")

        samples: list[Sample] = []
        for key, occurrence, names in group_files(file.name for file in self.files):
            key_files = {_get_full_extension(name): parts[name] for name in names if name in parts}
            samples.append(build_sample(self.name, key, occurrence, key_files, read, self.options))
        yield OpenShard(samples, describe_text_problems(samples), read_medium_bytes)

    def path(self, name: str) -> str:
        return f"{self.root.rstrip('/')}/{name}"

    def part(self, file: FolderFile) -> SampleFile | None:
        """Return the file of a sample, or None if the file is gone."""
        size = file.size
        if not remote_files.is_url(self.root):
            try:
                size = os.stat(self.path(file.name)).st_size
            except OSError:
                return None
        return SampleFile(file.name, self.path(file.name), 0, size)

    def sidecars(self) -> dict[str, bytes]:
        """Return the content of each readable sidecar by name; remote ones are fetched together."""
        names = [file.name for file in self.files if _get_last_extension(file.name) in SIDECARS]
        if remote_files.is_url(self.root):
            contents = remote_files.read_objects([self.path(name) for name in names])
            return {name: contents[self.path(name)] for name in names if self.path(name) in contents}
        return {name: data for name in names if (data := _read_sidecar(self.path(name))) is not None}


def list_folder_shards(root: str, options: CorpusOptions) -> list[FolderShard]:
    """Cut a folder into virtual shards of `shard_size` whole keys each, in natural order."""
    keys: dict[str, list[FolderFile]] = {}
    for file in _list_folder_files(root):
        split = split_key(file.name)
        if split is not None and _is_corpus_file(split[1]):
            keys.setdefault(split[0], []).append(file)
    if not any(_get_last_extension(file.name) not in SIDECARS for files in keys.values() for file in files):
        return []
    ordered = sorted(keys, key=natural_sort_key)
    cuts = [ordered[start : start + options.shard_size] for start in range(0, len(ordered), options.shard_size)]
    names = make_shard_names([f"{root.rpartition('/')[2]}-{number:06d}" for number in range(len(cuts))])
    return [
        FolderShard(name, root, tuple(file for key in cut for file in sorted(keys[key], key=lambda f: f.name)), options)
        for name, cut in zip(names, cuts, strict=True)
    ]


def group_files(names: Iterable[str]) -> list[tuple[str, int, list[str]]]:
    """Group files into (key, occurrence, files of the key)."""
    sets: dict[str, list[str]] = {}
    for name in names:
        sets.setdefault(_strip_all_extensions(name), []).append(name)
    return [group for files in sets.values() for group in _group_by_medium(files)]


def _group_by_medium(files: list[str]) -> list[tuple[str, int, list[str]]]:
    media = [name for name in files if _get_last_extension(name) not in SIDECARS]
    stems = {strip_extension(name) for name in media}
    keys: dict[str, list[str]] = {key: [] for key in sorted(stems, key=natural_sort_key)}
    for name in files:
        key = strip_extension(name) if name in media else _find_owner_key(_strip_sidecar_extension(name), stems, media)
        keys.setdefault(key, []).append(name)
    return [group for key, key_files in keys.items() for group in _number_occurrences(key, key_files)]


def _strip_sidecar_extension(name: str) -> str:
    """Strip the extension, and the language of a subtitle: `a.en.vtt` -> `a`."""
    stem = strip_extension(name)
    return _LANGUAGE.sub("", stem) if _get_last_extension(name) in SUBTITLES else stem


def _find_owner_key(stem: str, stems: set[str], media: list[str]) -> str:
    """Return the key of a sidecar: `a` and `a.jpg` belong to `a.jpg`; `a` belongs to `a.1.jpg` if no other fits."""
    if stem in stems:
        return stem
    if stem in media:
        return strip_extension(stem)
    longer = [key for key in stems if key.startswith(f"{stem}.")]
    return longer[0] if len(longer) == 1 else stem


def _strip_all_extensions(name: str) -> str:
    return name[: len(name) - len(_get_full_extension(name)) - 1]


def _get_full_extension(name: str) -> str:
    """Return the part of the last name after its first dot."""
    return name.rpartition("/")[2].partition(".")[2].lower()


def _number_occurrences(key: str, files: list[str]) -> list[tuple[str, int, list[str]]]:
    """Give the sidecars to the first medium (video before image); each further medium repeats the key."""
    media = [name for name in files if guess_media_kind(name) is not None]
    ranked = sorted(media, key=lambda name: (guess_media_kind(name) == "image", name))
    first = [name for name in files if name not in ranked[1:]]
    return [(key, 0, first), *((key, number, [name]) for number, name in enumerate(ranked[1:], start=1))]


def _list_folder_files(root: str) -> Iterator[FolderFile]:
    if remote_files.is_url(root):
        for url, info in remote_files.list_objects(root).items():
            name = url.removeprefix(root).lstrip("/")
            digest = remote_files.format_store_digest(info) or str(info.get("mtime", ""))
            yield FolderFile(name, int(info.get("size") or 0), digest)
        return
    for top, folders, names in os.walk(root):
        folders[:] = [folder for folder in folders if not folder.startswith(".")]
        below = os.path.relpath(top, root)
        yield from (FolderFile(name if below == "." else f"{below}/{name}") for name in names)


def _is_corpus_file(extension: str) -> bool:
    return guess_media_kind(extension) is not None or _get_last_extension(extension) in SIDECARS | FOREIGN


def _get_last_extension(name: str) -> str:
    return name.rpartition(".")[2].lower()


def _stamp_file(path: str) -> str:
    try:
        status = os.stat(path)
    except OSError:
        return "gone"
    return f"{status.st_size} {status.st_mtime_ns}"


def _read_sidecar(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None
