"""Packs a benchmark's files into WebDataset shards, one set per split: `auditor pack coco --source DIR --out SHARDS`.

Media bytes are copied unchanged, captions become `.txt` with one caption per line, ids become `.json`. A kill leaves no
incomplete benchmark. Missing media are counted and named. If too many of a split are missing, nothing is written:
recall on half a test set is not the benchmark's recall.
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
from auditor.research.evaluate.annotations import (
    BenchmarkEntry,
    BenchmarkError,
    BenchmarkListing,
    MediaFolder,
    Names,
    add_name,
)
from auditor.research.evaluate.benchmark_readers import READERS
from auditor.research.retrieval.protocols import PROTOCOLS

INDEX = "benchmark.json"
LOSSES = {
    "missing_media": "without a media file",
    "without_caption": "without a caption",
    "repeated": "listed twice",
    "unannotated": "in the split list but not annotated",
}
Media = list[tuple[BenchmarkEntry, Path]]


@dataclass(frozen=True, slots=True)
class PackConfig:
    samples_per_shard: int = 1000
    bytes_per_shard: int = 1 << 29
    max_missing: float = 0.01  # share of the media of each split that may be missing


@dataclass(slots=True)
class PackReport:
    """The number of packed media and captions, and the ids of the media that could not be packed."""

    benchmark: str
    media: dict[str, int] = field(default_factory=dict)  # per split
    captions: dict[str, int] = field(default_factory=dict)
    shards: dict[str, int] = field(default_factory=dict)
    missing_media: Names = field(default_factory=dict)
    without_caption: Names = field(default_factory=dict)
    repeated: Names = field(default_factory=dict)
    unannotated: Names = field(default_factory=dict)
    unknown_split: Names = field(default_factory=dict)
    caption_missing: Names = field(default_factory=dict)  # some of their captions are empty, others are not
    unlisted: list[str] = field(default_factory=list)  # no loss: the benchmark itself leaves them out

    def lost(self) -> Counter[str]:
        """How many media of each split cannot be packed, without those of an unknown split."""
        return Counter(split for kind in LOSSES for split, ids in getattr(self, kind).items() for _ in ids)

    def problems(self) -> list[str]:
        lines = [
            _format_loss(f"of {split} {loss}", ids)
            for kind, loss in LOSSES.items()
            for split, ids in getattr(self, kind).items()
        ]
        return lines + [_format_loss(f"in the unknown split {name!r}", ids) for name, ids in self.unknown_split.items()]

    def notes(self) -> list[str]:
        lines = [_format_loss(f"of {s} lack some of their captions", ids) for s, ids in self.caption_missing.items()]
        return lines + ([_format_loss("annotated but in no split list", self.unlisted)] if self.unlisted else [])


def _format_loss(loss: str, ids: list[str]) -> str:
    return f"{len(ids):,} {loss} ({', '.join(ids[:3])}{', ...' if len(ids) > 3 else ''})"


def pack(benchmark: str, source: Path, out: Path, config: PackConfig | None = None) -> PackReport:
    config = config or PackConfig()
    if benchmark not in READERS:
        raise BenchmarkError(f"unknown benchmark {benchmark!r}; one of {', '.join(READERS)}")
    if not source.is_dir():
        raise BenchmarkError(f"{source} is not a folder")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BenchmarkError(f"{out} exists; choose a new folder")
    media, report = match_entries(benchmark, READERS[benchmark](source), source)
    check_losses(report, Counter(entry.split for entry, _ in media), config.max_missing)
    out.parent.mkdir(parents=True, exist_ok=True)
    with publish_folder(out) as folder:
        for split in sorted({entry.split for entry, _ in media}):
            _write_split(folder, split, [(e, p) for e, p in media if e.split == split], report, config)
        (folder / INDEX).write_text(json.dumps(asdict(report), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return report


def match_entries(benchmark: str, listing: BenchmarkListing, source: Path) -> tuple[Media, PackReport]:
    """Match each entry with its file; entries without a file, without a caption or with a used key are reported."""
    report = PackReport(
        benchmark,
        unannotated=listing.unannotated,
        unknown_split=listing.unknown_split,
        caption_missing=listing.caption_missing,
        unlisted=listing.unlisted,
    )
    folder = MediaFolder(source, VIDEOS if PROTOCOLS[benchmark].video else IMAGES)
    matches: dict[tuple[str, str], tuple[BenchmarkEntry, Path]] = {}
    for entry in listing.entries:
        path, key = folder.find(entry.filename), (entry.split, make_tar_key(entry.id))
        if path is None:
            add_name(report.missing_media, entry.split, entry.id)
        elif not entry.texts():
            add_name(report.without_caption, entry.split, entry.id)
        elif key in matches:
            add_name(report.repeated, entry.split, entry.id)
        else:
            matches[key] = entry, path
    return list(matches.values()), report


def check_losses(report: PackReport, packed: Counter[str], max_missing: float) -> None:
    """Check each split separately: a large train split must not hide the losses of the test split."""
    if not packed:
        reasons = "; ".join(report.problems() + report.notes())
        raise BenchmarkError(f"nothing to pack: {reasons or 'the annotations are empty'}")
    losses = {f"of {split}": (count, packed[split] + count) for split, count in report.lost().items()}
    unknown = sum(len(ids) for ids in report.unknown_split.values())
    losses["in all"] = (unknown, packed.total() + report.lost().total() + unknown)
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


def make_tar_key(identifier: str) -> str:
    """A key for a tar member, which may contain no slash and no dot (WebDataset splits names there)."""
    return re.sub(r"[^A-Za-z0-9_@=-]", "_", identifier)


@contextlib.contextmanager
def publish_folder(out: Path) -> Iterator[Path]:
    """Yield a temporary folder that is renamed to `out` when the context ends without an error."""
    prefix = f".{out.name}.part-"
    for abandoned in out.parent.glob(f"{prefix}*"):  # by runs that were killed
        with contextlib.suppress(OSError), lock_folder(abandoned):
            shutil.rmtree(abandoned)
    partial = Path(tempfile.mkdtemp(prefix=prefix, dir=out.parent))
    with lock_folder(partial):
        try:
            yield partial
            os.chmod(partial, 0o755)
            os.replace(partial, out)  # replaces an empty folder of that name
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise


@contextlib.contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Lock a folder while it is written; raises BlockingIOError if another process holds the lock."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def _write_split(folder: Path, split: str, media: Media, report: PackReport, config: PackConfig) -> None:
    for number, part in enumerate(_split_into_shards(media, config)):
        samples = ((make_tar_key(entry.id), _make_members(entry, path, report.benchmark)) for entry, path in part)
        write_shard(folder / f"{split}-{number:05d}.tar", samples)
        report.shards[split] = number + 1
    report.media[split] = len(media)
    report.captions[split] = sum(len(entry.texts()) for entry, _ in media)


def _split_into_shards(media: Media, config: PackConfig) -> Iterator[Media]:
    part: Media = []
    size = 0
    for entry, path in media:
        if part and (len(part) >= config.samples_per_shard or size >= config.bytes_per_shard):
            yield part
            part, size = [], 0
        part.append((entry, path))
        size += path.stat().st_size
    if part:
        yield part


def _make_members(entry: BenchmarkEntry, path: Path, benchmark: str) -> Members:
    ids: dict[str, Any] = {"id": entry.id, "benchmark": benchmark, "split": entry.split, "filename": path.name}
    if caption_ids := entry.caption_ids():
        ids["caption_ids"] = caption_ids
    return {
        path.suffix[1:].lower(): path,
        "txt": "\n".join(entry.texts()).encode(),
        "json": json.dumps(ids, ensure_ascii=False).encode(),
    }
