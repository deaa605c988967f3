"""A folder of media with sidecars, `cat.jpg` beside `cat.txt`, `cat.json` or `cat.vtt`, cut into virtual shards.

A key is the path of the medium below the folder, up to its last dot. A sidecar is named like the medium, with its
extension or without (`a.jpg.txt`, `a.txt`); `a.jpg` beside `a.png` repeats a key. Hidden files, and files that are
neither media nor sidecars, are not part of the corpus.
"""

import hashlib
import os
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from auditor.corpus.corpus_files import format_store_digest, is_below, is_url, list_files, read_files, stamp_file
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
from auditor.corpus.sample_files import TEXT_SOURCES, SampleFile, build_sample, complete_sources, describe_text_problems
from auditor.corpus.shard import CorpusOptions, OpenShard
from auditor.regular_files import check_regular
from auditor.schema import Status

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
        sidecars = self.read_sidecars()
        for file in self.files:
            digest.update(repr((file.name, file.size, file.digest)).encode("utf-8", "surrogatepass"))
            if not is_url(self.root):
                try:
                    digest.update((self.find_defect(file.name) or stamp_file(self.path(file.name))).encode())
                except OSError:
                    digest.update(b"gone")
            digest.update(sidecars.get(file.name, b""))
        return digest.hexdigest()

    @contextmanager
    def open(self) -> Iterator[OpenShard]:
        sidecars = self.read_sidecars()
        parts: dict[str, SampleFile] = {}
        for file in self.files:
            path = self.path(file.name)
            with suppress(FileNotFoundError):  # a file that is gone is no part of its sample
                parts[file.name] = SampleFile(file.name, path, 0, *self.inspect(file))

        def read(part: SampleFile) -> bytes:
            return sidecars.get(part.name, b"")

        samples: list[Sample] = []
        texts = self.options.caption_fields or TEXT_SOURCES
        for key, occurrence, names in group_files((file.name for file in self.files), texts):
            key_files = {_get_full_extension(name): parts[name] for name in names if name in parts}
            samples.append(build_sample(self.name, key, occurrence, key_files, read, self.options))
        samples = complete_sources(samples)
        yield OpenShard(samples, describe_text_problems(samples, self.options), read_medium_bytes)

    def inspect(self, file: FolderFile) -> tuple[int, str | None, Status]:
        """Return the size of a file, why it cannot be read, and the status of its sample in that case."""
        if is_url(self.root):
            return file.size, None, "corrupt"
        if defect := self.find_defect(file.name):
            return -1, defect, "outside"
        try:
            return check_regular(self.path(file.name)).st_size, None, "corrupt"
        except FileNotFoundError:
            raise
        except OSError as error:
            return -1, f"{file.name}: {error.strerror}", "corrupt"

    def find_defect(self, name: str) -> str | None:
        """Return why a file is not read although it may exist: it is a link out of the folder."""
        path = self.path(name)
        followed = self.options.follow_links or not os.path.islink(path) or is_below(path, self.root)
        return None if followed else f"{name} is a link out of the corpus; --follow-links follows it"

    def path(self, name: str) -> str:
        return f"{self.root.rstrip('/')}/{name}"

    def read_sidecars(self) -> dict[str, bytes]:
        """Return the content of each readable sidecar by name; remote ones are fetched together."""
        paths = {file.name: self.path(file.name) for file in self.files if _get_last_extension(file.name) in SIDECARS}
        if not is_url(self.root):
            paths = {name: path for name, path in paths.items() if not self.find_defect(name)}
        contents = read_files(list(paths.values()), self.options.max_caption_bytes)
        return {name: contents[path] for name, path in paths.items() if path in contents}


def list_folder_shards(root: str, options: CorpusOptions) -> list[FolderShard]:
    """Cut a folder into virtual shards of `shard_size` whole keys each, in natural order."""
    keys: dict[str, list[FolderFile]] = {}
    has_media = False
    for path, info in list_files(root).items():
        name = path.removeprefix(root).lstrip("/")
        last = _get_last_extension(name)
        is_medium = guess_media_kind(last) is not None or last in FOREIGN
        hidden = any(folder.startswith(".") for folder in name.split("/"))
        if not hidden and (is_medium or last in SIDECARS) and (split := split_key(name)):
            has_media |= is_medium
            digest = format_store_digest(info) or str(info.get("mtime", ""))
            keys.setdefault(split[0], []).append(FolderFile(name, int(info.get("size", -1) or 0), digest))
    if not has_media:
        return []
    ordered = sorted(keys, key=natural_sort_key)
    cuts = [ordered[start : start + options.shard_size] for start in range(0, len(ordered), options.shard_size)]
    names = make_shard_names([f"{root.rpartition('/')[2]}-{number:06d}" for number in range(len(cuts))])
    return [
        FolderShard(name, root, tuple(file for key in cut for file in sorted(keys[key], key=lambda f: f.name)), options)
        for name, cut in zip(names, cuts, strict=True)
    ]


def group_files(names: Iterable[str], texts: Collection[str] = TEXT_SOURCES) -> list[tuple[str, int, list[str]]]:
    """Group files into (key, occurrence, files of the key); `texts` are the extensions of captions of a source."""
    sets: dict[str, list[str]] = {}
    for name in names:
        stem = name[: len(name) - len(_get_full_extension(name)) - 1]
        sets.setdefault(stem, []).append(name)
    return [group for files in sets.values() for group in _group_by_medium(files, texts)]


def _group_by_medium(files: list[str], texts: Collection[str]) -> Iterator[tuple[str, int, list[str]]]:
    """Give the sidecars of a key to its first medium (video before image); each further medium repeats the key."""
    media = [name for name in files if _get_last_extension(name) not in SIDECARS]
    stems = {strip_extension(name) for name in media}
    keys: dict[str, list[str]] = {key: [] for key in sorted(stems, key=natural_sort_key)}
    for name in files:
        key = strip_extension(name) if name in media else _find_owner_key(name, stems, media, texts)
        keys.setdefault(key, []).append(name)
    for key, names in keys.items():
        kinds = {name: kind for name in names if (kind := guess_media_kind(name))}
        repeats = sorted(kinds, key=lambda name: (kinds[name] == "image", name))[1:]
        yield key, 0, [name for name in names if name not in repeats]
        yield from ((key, number, [name]) for number, name in enumerate(repeats, start=1))


def _find_owner_key(sidecar: str, stems: set[str], media: list[str], texts: Collection[str]) -> str:
    """Return the key of a sidecar: `a.txt`, `a.jpg.txt`, `a.alt.txt` and `a.en.vtt` belong to `a.jpg`.

    `a.txt` belongs to `a.1.jpg` if no other medium fits.
    """
    stem = strip_extension(sidecar)
    if _get_last_extension(sidecar) in SUBTITLES:
        stem = _LANGUAGE.sub("", stem)
    if stem in stems:
        return stem
    if stem in media:
        return strip_extension(stem)
    key, _, source = stem.rpartition(".")
    if key in stems and f"{source}.{_get_last_extension(sidecar)}" in texts:
        return key
    longer = [key for key in stems if key.startswith(f"{stem}.")]
    return longer[0] if len(longer) == 1 else stem


def _get_full_extension(name: str) -> str:
    """Return the part of the last name after its first dot."""
    return name.rpartition("/")[2].partition(".")[2].lower()


def _get_last_extension(name: str) -> str:
    return name.rpartition(".")[2].lower()
