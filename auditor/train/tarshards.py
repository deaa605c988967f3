"""WebDataset tar shards for training: which there are, how many pairs they hold, and their samples as a stream.

A sample is the run of files of one key: a medium (image or video) and its captions, either `.txt` with one caption a
line or `.json` with a list `captions` (or one `caption`). Anything that fsspec opens will do (`s3://`, `gs://`, ...).
"""

import glob
import json
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, cast

import fsspec
from braceexpand import braceexpand
from webdataset.tariterators import base_plus_ext, tar_file_iterator

from model.errors import ModelError

Kind = Literal["image", "video"]
IMAGES = frozenset({"jpg", "jpeg", "png", "webp", "gif", "bmp", "tif", "tiff"})
VIDEOS = frozenset({"mp4", "webm", "mkv", "avi", "mov", "m4v", "mpg", "mpeg", "3gp"})
TEXTS = frozenset({"txt", "json"})


class ShardError(ModelError):
    """A shard list or a shard that cannot be trained on."""


@dataclass(frozen=True, slots=True)
class TarSample:
    """A medium with its captions, not decoded. `media` is None once its pixels are kept in memory."""

    shard: int
    ordinal: int  # among the samples of its shard
    key: str
    captions: tuple[str, ...]
    kind: Kind
    media: bytes | None

    @property
    def number(self) -> int:
        """One number for (shard, ordinal)."""
        return self.shard << 32 | self.ordinal


@dataclass(frozen=True, slots=True)
class ShardCount:
    """What a look at the headers and captions of a shard tells."""

    samples: int
    captions: int
    most_captions: int  # of one sample
    problem: str | None = None  # a truncated tail, say


@dataclass(frozen=True, slots=True)
class Slice:
    """Every `parts`-th sample of a shard, from `part` on: what one reader reads of it."""

    shard: int
    part: int = 0
    parts: int = 1


def list_shards(spec: str) -> list[str]:
    """The tar files a spec names: a folder, a glob, braces, or several of these with commas."""
    found = [url for part in split_commas(spec) for pattern in braceexpand(part) for url in expand(pattern)]
    if not found:
        raise ShardError(f"no tar shards at {spec!r}: name a folder of .tar files, a glob or braces")
    return found


def split_commas(spec: str) -> list[str]:
    """Split at commas outside braces."""
    parts, depth = [""], 0
    for character in spec:
        depth += (character == "{") - (character == "}")
        if character == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def expand(pattern: str) -> list[str]:
    if "://" in pattern:
        return expand_remote(pattern)
    if Path(pattern).is_dir():
        return sorted(str(path) for path in Path(pattern).glob("*.tar") if path.is_file())
    if glob.has_magic(pattern) and not Path(pattern).exists():
        return sorted(path for path in glob.glob(pattern) if Path(path).is_file())
    if not Path(pattern).is_file():
        raise ShardError(f"no shard at {pattern}")
    return [pattern]


def expand_remote(pattern: str) -> list[str]:
    try:
        fs, path = fsspec.core.url_to_fs(pattern)
        if glob.has_magic(path):
            names = fs.glob(path)
        elif path.endswith(".tar"):
            return [pattern]
        else:
            names = [name for name in fs.ls(path, detail=False) if name.endswith(".tar")]
    except (OSError, ImportError, ValueError) as error:
        raise ShardError(f"cannot list {pattern}: {error}") from error
    return sorted(fs.unstrip_protocol(name) for name in names)


def suffix_of(name: str) -> tuple[str | None, str]:
    """Key and lower-case suffix of a member; no key for files that belong to no sample."""
    key, suffix = base_plus_ext(name.removeprefix("./"))
    return key, (suffix or "").lower()


def open_shard(url: str) -> IO[bytes]:
    return cast(IO[bytes], fsspec.open(url, "rb").open())


def count_shard(url: str) -> ShardCount:
    """Count the pairs of a shard from its headers and captions; media are skipped over, not read."""
    problems: list[str] = []
    try:
        with open_shard(url) as stream, tarfile.open(fileobj=stream, mode="r:*") as tar:
            sizes = [len(captions) for _, _, captions in grouped(header_files(tar, problems))]
    except tarfile.ReadError as error:
        raise ShardError(f"{url} is not a tar shard") from error
    except OSError as error:
        raise ShardError(f"cannot read {url}: {error.strerror or error}") from error
    if not sizes:
        raise ShardError(f"{url} holds no pairs: a sample is a medium and a .txt or .json of captions with one name")
    problem = f"{url} {problems[0]}" if problems else None
    return ShardCount(len(sizes), sum(sizes), max(sizes), problem)


def ends_well(tar: tarfile.TarFile) -> bool:
    """tarfile takes a broken header for the end of the archive; the true end is a block of zeros, or nothing."""
    assert tar.fileobj is not None
    tar.fileobj.seek(tar.offset)
    return not any(tar.fileobj.read(tarfile.BLOCKSIZE))


def header_files(tar: tarfile.TarFile, problems: list[str]) -> Iterator[tuple[str, bytes]]:
    """Names of the members, with the content of captions only; a tail that is cut off becomes a problem."""
    try:
        for member in tar:
            if member.isreg():
                text = tar.extractfile(member) if suffix_of(member.name)[1] in TEXTS else None
                yield member.name, text.read() if text else b""
            tar.members.clear()  # type: ignore[attr-defined]  # a list of a million headers is of no use
        if not ends_well(tar):
            problems.append("is cut off or damaged: what follows its last readable file is lost")
    except tarfile.ReadError:
        problems.append("is cut off in the middle of a file: the rest is lost")


def stream_files(stream: IO[bytes]) -> Iterator[tuple[str, bytes]]:
    """Names and contents as far as they go; `count_shard` has reported a tail that is cut off."""
    try:
        for file in tar_file_iterator(stream):
            yield file["fname"], file["data"]
    except tarfile.ReadError:
        return


def grouped(files: Iterator[tuple[str, bytes]]) -> Iterator[tuple[str, tuple[Kind, bytes], list[str]]]:
    """Runs of one key as (key, (kind, medium), captions); what has no medium or no caption is left out.

    A key that comes again is another sample: of doubled files inside one run the first counts.
    """
    current: str | None = None
    parts: dict[str, bytes] = {}
    for name, data in files:
        key, suffix = suffix_of(name)
        if key is None:
            continue
        if key != current:
            if current is not None and (sample := complete(current, parts)):
                yield sample
            current, parts = key, {}
        parts.setdefault(suffix, data)
    if current is not None and (sample := complete(current, parts)):
        yield sample


def complete(key: str, parts: Mapping[str, bytes]) -> tuple[str, tuple[Kind, bytes], list[str]] | None:
    # A picture beside a video is its poster.
    suffix = next((s for kind in (VIDEOS, IMAGES) for s in parts if s in kind), None)
    media = (kind_of(suffix), parts[suffix]) if suffix else None
    captions = captions_of(parts)
    return (key, media, captions) if media and captions else None


def kind_of(suffix: str) -> Kind:
    return "video" if suffix in VIDEOS else "image"


def captions_of(parts: Mapping[str, bytes]) -> list[str]:
    """The captions of a sample; `.txt` before `.json`."""
    lines = parts.get("txt", b"").decode("utf-8", errors="replace").splitlines()
    captions = [line.strip() for line in lines if line.strip()]
    if captions or "json" not in parts:
        return captions
    try:
        record = json.loads(parts["json"])
    except ValueError:
        return []
    if not isinstance(record, dict):
        return []
    listed = record.get("captions", record.get("caption"))
    listed = listed if isinstance(listed, list) else [listed]
    return [caption.strip() for caption in listed if isinstance(caption, str) and caption.strip()]


def read_slice(urls: list[str], piece: Slice) -> Iterator[TarSample]:
    """The samples of a slice in the order of the tar."""
    url = urls[piece.shard]
    try:
        with open_shard(url) as stream:
            for ordinal, (key, (kind, media), captions) in enumerate(grouped(stream_files(stream))):
                if ordinal % piece.parts == piece.part:
                    yield TarSample(piece.shard, ordinal, key, tuple(captions), kind, media)
    except OSError as error:
        raise ShardError(f"cannot read {url}: {error.strerror or error}") from error
