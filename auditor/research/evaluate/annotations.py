"""The contents of a benchmark's annotation files: media, splits and captions; and the media files of its source folder.

Annotations are untrusted. A file name in them is only looked up among the files of the source folder, so it cannot
point outside it. Entries that cannot be used are listed by name, not dropped.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from auditor.corpus.caption_text import decode_text, split_captions
from model.model_errors import ModelError

SPLITS = ("train", "val", "test", "all")  # all: the source has no splits


class BenchmarkError(ModelError):
    """Benchmark files that are missing or have the wrong content."""


Names = dict[str, list[str]]  # split -> ids
Caption = tuple[str, str]  # id and text, each empty if it is missing


@dataclass(frozen=True, slots=True)
class BenchmarkEntry:
    id: str
    split: str
    filename: str
    captions: Sequence[Caption]

    def texts(self) -> list[str]:
        return [text for _, text in self.captions if text]

    def caption_ids(self) -> list[str]:
        """The ids of the captions that are not empty; none if any caption has no id."""
        return [number for number, text in self.captions if text] if all(number for number, _ in self.captions) else []


@dataclass(slots=True)
class BenchmarkListing:
    """All entries of a benchmark, and the ids of the media that could not become entries."""

    entries: list[BenchmarkEntry] = field(default_factory=list)
    unknown_split: Names = field(default_factory=dict)
    unannotated: Names = field(default_factory=dict)  # in a split list, without annotation
    caption_missing: Names = field(default_factory=dict)  # some captions are empty, others are not
    unlisted: list[str] = field(default_factory=list)  # annotated, but in no split list

    def add(self, entry: BenchmarkEntry) -> None:
        if entry.split not in SPLITS:
            add_name(self.unknown_split, entry.split, entry.id)
            return
        self.entries.append(entry)
        if 0 < len(entry.texts()) < len(entry.captions):
            add_name(self.caption_missing, entry.split, entry.id)

    def add_split(
        self, split: str, ids: Iterable[str], filenames: Mapping[str, str], captions: Mapping[str, Sequence[Caption]]
    ) -> None:
        """Add the media of a split list; those without a file name are not annotated."""
        for number in ids:
            if number in filenames:
                self.add(BenchmarkEntry(number, split, filenames[number], captions.get(number, ())))
            else:
                add_name(self.unannotated, split, number)


def add_name(names: Names, split: str, identifier: str) -> None:
    names.setdefault(split, []).append(identifier)


class MediaFolder:
    def __init__(self, root: Path, extensions: frozenset[str]):
        self.by_name: dict[str, list[Path]] = {}
        self.by_stem: dict[str, list[Path]] = {}
        for folder, _, names in os.walk(root):
            for name in names:
                if name.rpartition(".")[2].lower() in extensions:
                    path = Path(folder) / name
                    self.by_name.setdefault(name, []).append(path)
                    self.by_stem.setdefault(name.split(".")[0], []).append(path)

    def find(self, filename: str) -> Path | None:
        """Find a file by name, then by name without suffixes (DiDeMo's .mov is often re-encoded as .mov.mp4)."""
        parts = Path(filename).parts
        name = parts[-1] if parts else ""
        paths = self.by_name.get(name) or self.by_stem.get(name.split(".")[0]) or []
        # Prefer the file whose folders match the annotation, then the first by name, so that the choice is stable.
        return min(paths, key=lambda path: (path.parts[-len(parts) :] != parts, str(path)), default=None)


def find_first_file(root: Path, *names: str) -> Path | None:
    """The first of these files that exists in the root or one folder below it."""
    paths = (path for name in names for path in (root / name, *sorted(root.glob(f"*/{name}"))))
    return next((path for path in paths if path.is_file()), None)


def require_file(root: Path, *names: str) -> Path:
    path = find_first_file(root, *names)
    if path is None:
        raise BenchmarkError(f"{root} has no {' or '.join(names)} (looked there and one folder below)")
    return path


@contextmanager
def open_json(path: Path, layout: str) -> Iterator[Any]:
    """Yield the content of a JSON file; an error in the context means that it does not have this layout."""
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise BenchmarkError(f"{path} is not JSON: {error}") from None
    try:
        yield content
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise BenchmarkError(f"{path} is not {layout}: {error!r}") from None


def load_lines(path: Path) -> list[str]:
    """The lines of a file, decoded as captions are, without blank lines."""
    return list(split_captions(decode_text(path.read_bytes()), "lines"))


def flatten_caption(caption: Any) -> str:
    """A caption as one line, because shards store one caption per line; empty if the value is not text."""
    return " ".join(caption.split()) if isinstance(caption, str) else ""
