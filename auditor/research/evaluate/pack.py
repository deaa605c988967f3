"""Packs a benchmark's files into WebDataset shards, one set per split: `auditor pack coco --source DIR --out SHARDS`.

Media bytes go in untouched, captions one per line as `.txt`, ids as `.json`. The shards are written beside the
destination and renamed when all are whole, so a kill leaves no half benchmark. What is missing is counted and named;
above a threshold in any split nothing is written, because recall on half a test set is not the benchmark's recall.
"""

import contextlib
import fcntl
import json
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from auditor.corpus.file_names import IMAGES, VIDEOS
from auditor.corpus.shard_writer import Members, write_shard
from auditor.research.evaluate import image_benchmarks, video_benchmarks
from auditor.research.evaluate.annotations import BenchmarkError, Entry, Listing, MediaFolder, Names, note

READERS = {
    "coco": image_benchmarks.read_coco,
    "flickr8k": image_benchmarks.read_flickr8k,
    "flickr30k": image_benchmarks.read_flickr30k,
    "msrvtt": video_benchmarks.read_msrvtt,
    "msvd": video_benchmarks.read_msvd,
    "didemo": video_benchmarks.read_didemo,
}
VIDEO_BENCHMARKS = ("msrvtt", "msvd", "didemo")
INDEX = "benchmark.json"


@dataclass(frozen=True, slots=True)
class PackConfig:
    samples_per_shard: int = 1000
    bytes_per_shard: int = 1 << 29
    max_missing: float = 0.01  # share of each split's media that may be left out


DEFAULT = PackConfig()


@dataclass(slots=True)
class PackReport:
    """What went in, and the names of what did not."""

    benchmark: str
    media: dict[str, int] = field(default_factory=dict)  # per split
    captions: dict[str, int] = field(default_factory=dict)
    shards: dict[str, int] = field(default_factory=dict)
    missing_media: Names = field(default_factory=dict)
    without_caption: Names = field(default_factory=dict)
    repeated: Names = field(default_factory=dict)
    unannotated: Names = field(default_factory=dict)
    unknown_split: Names = field(default_factory=dict)
    caption_missing: Names = field(default_factory=dict)  # some of their captions are empty, others are there
    unlisted: list[str] = field(default_factory=list)  # no loss: the benchmark itself leaves them out

    def lost(self) -> Counter[str]:
        """How many media of each split cannot be packed; those of an unknown split could be of any, so not here."""
        kinds = (self.missing_media, self.without_caption, self.repeated, self.unannotated)
        return Counter(split for kind in kinds for split, ids in kind.items() for _ in ids)

    def problems(self) -> list[str]:
        """One line for each kind of loss in each split, with its count and first names."""
        named = {
            "without a media file": self.missing_media,
            "without a caption": self.without_caption,
            "listed twice": self.repeated,
            "in the split list but not annotated": self.unannotated,
        }
        losses = [_line(f"of {split} {what}", ids) for what, kind in named.items() for split, ids in kind.items()]
        return losses + [_line(f"in the unknown split {name!r}", ids) for name, ids in self.unknown_split.items()]

    def notes(self) -> list[str]:
        """What loses no medium, and should still be known."""
        found = [_line(f"of {s} lack some of their captions", ids) for s, ids in self.caption_missing.items()]
        return found + ([_line("annotated but in no split list", self.unlisted)] if self.unlisted else [])


def _line(what: str, ids: list[str]) -> str:
    return f"{len(ids):,} {what} ({_some(ids)})"


def _some(ids: list[str], count: int = 3) -> str:
    return ", ".join(ids[:count]) + (", ..." if len(ids) > count else "")


def pack(benchmark: str, source: Path, out: Path, config: PackConfig = DEFAULT) -> PackReport:
    """Read the annotations, find the media, write the shards."""
    if benchmark not in READERS:
        raise BenchmarkError(f"unknown benchmark {benchmark!r}; one of {', '.join(READERS)}")
    if not source.is_dir():
        raise BenchmarkError(f"{source} is not a folder")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BenchmarkError(f"{out} exists; choose a new folder")
    listing = READERS[benchmark](source)
    found, report = locate(listing, source)
    check_losses(report, Counter(entry.split for entry, _ in found), config.max_missing)
    out.parent.mkdir(parents=True, exist_ok=True)
    with appearing(out) as folder:
        for split in sorted({entry.split for entry, _ in found}):
            _write_split(folder, split, [(e, p) for e, p in found if e.split == split], report, config)
        (folder / INDEX).write_text(json.dumps(asdict(report), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return report


def locate(listing: Listing, source: Path) -> tuple[list[tuple[Entry, Path]], PackReport]:
    """Pair each entry with its file; what has no file, no caption or a name already taken goes into the report."""
    report = PackReport(
        listing.benchmark,
        unannotated=listing.unannotated,
        unknown_split=listing.unknown_split,
        caption_missing=listing.caption_missing,
        unlisted=listing.unlisted,
    )
    media = MediaFolder(source, VIDEOS if listing.benchmark in VIDEO_BENCHMARKS else IMAGES)
    found: list[tuple[Entry, Path]] = []
    taken: set[tuple[str, str]] = set()
    for entry in listing.entries:
        path = media.find(entry.filename)
        if path is None:
            note(report.missing_media, entry.split, entry.id)
        elif not any(entry.captions):
            note(report.without_caption, entry.split, entry.id)
        elif (entry.split, key_of(entry.id)) in taken:
            note(report.repeated, entry.split, entry.id)
        else:
            taken.add((entry.split, key_of(entry.id)))
            found.append((entry, path))
    return found, report


def check_losses(report: PackReport, kept: Counter[str], max_missing: float) -> None:
    """Each split by itself: a large train split must not hide what the test split lacks."""
    if not kept:
        reasons = "; ".join(report.problems() + report.notes())
        raise BenchmarkError(f"nothing to pack: {reasons or 'the annotations are empty'}")
    losses = {f"of {split}": (count, kept[split] + count) for split, count in report.lost().items()}
    unknown = sum(len(ids) for ids in report.unknown_split.values())
    losses["in all"] = (unknown, kept.total() + report.lost().total() + unknown)
    refused = [
        f"{count:,} of the {total:,} entries {where} ({count / total:.1%})"
        for where, (count, total) in losses.items()
        if count > max_missing * total
    ]
    if refused:
        raise BenchmarkError(
            f"{', '.join(refused)} cannot be packed, allowed is {max_missing:.1%} of each split: "
            f"{'; '.join(report.problems())}. Complete the source or raise --max-missing"
        )


def key_of(identifier: str) -> str:
    """A tar member's key may hold no dot (WebDataset cuts there) and no slash."""
    return re.sub(r"[^A-Za-z0-9_@=-]", "_", identifier)


@contextlib.contextmanager
def appearing(out: Path) -> Iterator[Path]:
    """A folder that is written under another name and appears when everything in it is finished."""
    prefix = f".{out.name}.part-"
    sweep_abandoned_folders(out.parent, prefix)
    partial = Path(tempfile.mkdtemp(prefix=prefix, dir=out.parent))
    with held(partial):
        try:
            yield partial
            os.chmod(partial, 0o755)
            os.replace(partial, out)  # an empty folder of that name gives way
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Locked, so that others see that its writer is alive; BlockingIOError where it is."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def sweep_abandoned_folders(parent: Path, prefix: str) -> None:
    """Remove what runs that were killed left beside the folder."""
    for left in parent.glob(f"{prefix}*"):
        with contextlib.suppress(OSError), held(left):
            shutil.rmtree(left)


def _write_split(
    folder: Path, split: str, found: list[tuple[Entry, Path]], report: PackReport, config: PackConfig
) -> None:
    for number, part in enumerate(_shards(found, config)):
        samples = ((key_of(entry.id), _members(entry, path, report.benchmark)) for entry, path in part)
        write_shard(folder / f"{split}-{number:05d}.tar", samples)
        report.shards[split] = number + 1
    report.media[split] = len(found)
    report.captions[split] = sum(len(entry.texts()[0]) for entry, _ in found)


def _shards(found: list[tuple[Entry, Path]], config: PackConfig) -> Iterator[list[tuple[Entry, Path]]]:
    part: list[tuple[Entry, Path]] = []
    size = 0
    for entry, path in found:
        if part and (len(part) >= config.samples_per_shard or size >= config.bytes_per_shard):
            yield part
            part, size = [], 0
        part.append((entry, path))
        size += path.stat().st_size
    if part:
        yield part


def _members(entry: Entry, path: Path, benchmark: str) -> Members:
    captions, caption_ids = entry.texts()
    ids: dict[str, Any] = {"id": entry.id, "benchmark": benchmark, "split": entry.split, "filename": path.name}
    if caption_ids:
        ids["caption_ids"] = caption_ids
    return {
        path.suffix[1:].lower(): path,
        "txt": "\n".join(captions).encode(),
        "json": json.dumps(ids, ensure_ascii=False).encode(),
    }
