"""A folder of media with sidecars, `cat.jpg` beside `cat.txt`, `cat.json` or `cat.vtt`, cut into virtual shards.

A key is the path of the medium below the folder up to its last dot, always: `clip.0001.mp4` is `clip.0001`, alone or
not. A sidecar is named like the medium, with its extension or without (`a.jpg.txt`, `a.txt`); `a.jpg` beside `a.png` is
a repeated key. Hidden files, and files that are neither media nor sidecars, are not part of the corpus.
"""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from auditor.corpus import remote_files
from auditor.corpus.file_names import FOREIGN, SUBTITLES, kind_of, natural, shard_names, split_key, stem_of
from auditor.corpus.read_medium import media_reader
from auditor.corpus.sample import Sample
from auditor.corpus.sample_files import Part, build_sample, sample_problems
from auditor.corpus.shard import CorpusOptions, OpenShard

_LANGUAGE = re.compile(r"\.[a-z]{2,3}([-_]\w+)*$", re.IGNORECASE)
SIDECARS = frozenset(["txt", "json", *SUBTITLES])


@dataclass(frozen=True, slots=True)
class File:
    """A file below the root. What a remote store said of it when it was listed; a local file is asked when needed."""

    name: str
    size: int = -1
    digest: str = ""


@dataclass(frozen=True, slots=True)
class FolderShard:
    """Some keys of a folder, with all of their files."""

    name: str
    root: str
    files: tuple[File, ...]
    options: CorpusOptions

    def fingerprint(self) -> str:
        """Of names, sizes and times of all files and the content of the sidecars."""
        digest = hashlib.blake2b(digest_size=16)
        sidecars = self.sidecars()
        for file in self.files:
            digest.update(repr((file.name, file.size, file.digest)).encode("utf-8", "surrogatepass"))
            digest.update(b"" if remote_files.is_url(self.root) else _stamp(self.path(file.name)).encode())
            digest.update(sidecars.get(file.name, b""))
        return digest.hexdigest()

    @contextmanager
    def open(self) -> Iterator[OpenShard]:
        sidecars = self.sidecars()
        parts = {part.name: part for file in self.files if (part := self.part(file)) is not None}

        def read(part: Part) -> bytes:
            return sidecars.get(part.name, b"")

        samples: list[Sample] = []
        for key, occurrence, names in group_files(file.name for file in self.files):
            mine = {_extension(name): parts[name] for name in names if name in parts}
            samples.append(build_sample(self.name, key, occurrence, mine, read, self.options))
        yield OpenShard(samples, sample_problems(samples), media_reader)

    def path(self, name: str) -> str:
        return f"{self.root.rstrip('/')}/{name}"

    def part(self, file: File) -> Part | None:
        """None for a file that is gone: its sample is then without it."""
        size = file.size
        if not remote_files.is_url(self.root):
            try:
                size = os.stat(self.path(file.name)).st_size
            except OSError:
                return None
        return Part(file.name, self.path(file.name), 0, size)

    def sidecars(self) -> dict[str, bytes]:
        """Name -> content of the sidecars that can be read; remote ones are asked for together."""
        names = [file.name for file in self.files if _last(file.name) in SIDECARS]
        if remote_files.is_url(self.root):
            found = remote_files.read_many([self.path(name) for name in names])
            return {name: found[self.path(name)] for name in names if self.path(name) in found}
        return {name: data for name in names if (data := _content(self.path(name))) is not None}


def list_folder(root: str, options: CorpusOptions) -> list[FolderShard]:
    """The virtual shards of a folder: whole keys, `shard_size` of them each, in natural order."""
    keys: dict[str, list[File]] = {}
    for file in _files(root):
        split = split_key(file.name)
        if split is not None and _belongs(split[1]):
            keys.setdefault(split[0], []).append(file)
    if not any(_last(file.name) not in SIDECARS for files in keys.values() for file in files):
        return []
    ordered = sorted(keys, key=natural)
    cuts = [ordered[start : start + options.shard_size] for start in range(0, len(ordered), options.shard_size)]
    names = shard_names([f"{root.rpartition('/')[2]}-{number:06d}" for number in range(len(cuts))])
    return [
        FolderShard(name, root, tuple(file for key in cut for file in sorted(keys[key], key=lambda f: f.name)), options)
        for name, cut in zip(names, cuts, strict=True)
    ]


def group_files(names: Iterable[str]) -> list[tuple[str, int, list[str]]]:
    """(key, occurrence, its files) for all files that agree up to the first dot, and for several such sets."""
    sets: dict[str, list[str]] = {}
    for name in names:
        sets.setdefault(_before_first_dot(name), []).append(name)
    return [group for files in sets.values() for group in _group(files)]


def _group(files: list[str]) -> list[tuple[str, int, list[str]]]:
    media = [name for name in files if _last(name) not in SIDECARS]
    stems = {stem_of(name) for name in media}
    keys: dict[str, list[str]] = {key: [] for key in sorted(stems, key=natural)}
    for name in files:
        key = stem_of(name) if name in media else _owner(_sidecar_stem(name), stems, media)
        keys.setdefault(key, []).append(name)
    return [
        group
        for key, mine in keys.items()
        for group in _occurrences(key, mine, [name for name in mine if kind_of(name) is not None])
    ]


def _sidecar_stem(name: str) -> str:
    """Without the language of a subtitle: `a.en.vtt` -> `a`."""
    stem = stem_of(name)
    return _LANGUAGE.sub("", stem) if _last(name) in SUBTITLES else stem


def _owner(stem: str, stems: set[str], media: list[str]) -> str:
    """The key that a sidecar belongs to: `a` or `a.jpg` of `a.jpg`; `a` of `a.1.jpg` if that is all there is."""
    if stem in stems:
        return stem
    if stem in media:
        return stem_of(stem)
    longer = [key for key in stems if key.startswith(f"{stem}.")]
    return longer[0] if len(longer) == 1 else stem


def _before_first_dot(name: str) -> str:
    return name[: len(name) - len(_extension(name)) - 1]


def _extension(name: str) -> str:
    """All that follows the first dot of the last name."""
    return name.rpartition("/")[2].partition(".")[2].lower()


def _occurrences(key: str, files: list[str], media: list[str]) -> list[tuple[str, int, list[str]]]:
    """The first medium (video before image) keeps the sidecars; each further one repeats the key."""
    ranked = sorted(media, key=lambda name: (kind_of(name) == "image", name))
    first = [name for name in files if name not in ranked[1:]]
    return [(key, 0, first), *((key, number, [name]) for number, name in enumerate(ranked[1:], start=1))]


def _files(root: str) -> Iterator[File]:
    if remote_files.is_url(root):
        for url, info in remote_files.listing(root).items():
            name = url.removeprefix(root).lstrip("/")
            yield File(name, int(info.get("size") or 0), remote_files.digest_of(info) or str(info.get("mtime", "")))
        return
    for top, folders, names in os.walk(root):
        folders[:] = [folder for folder in folders if not folder.startswith(".")]
        below = os.path.relpath(top, root)
        yield from (File(name if below == "." else f"{below}/{name}") for name in names)


def _belongs(extension: str) -> bool:
    return kind_of(extension) is not None or _last(extension) in SIDECARS | FOREIGN


def _last(name: str) -> str:
    return name.rpartition(".")[2].lower()


def _stamp(path: str) -> str:
    try:
        status = os.stat(path)
    except OSError:
        return "gone"
    return f"{status.st_size} {status.st_mtime_ns}"


def _content(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None
