"""What a benchmark's annotation files say, before anything is packed: which medium, which split, which captions.

Annotations are untrusted: a file name in them is only ever looked up among the files that were found under the source
folder, so it cannot point outside of it, and everything that does not fit is kept by name instead of dropped.
"""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from auditor.corpus.caption_text import decode_text, split_captions
from model.model_errors import ModelError

SPLITS = ("train", "val", "test", "all")  # all: the source knows no splits


class BenchmarkError(ModelError):
    """Benchmark files that are missing or are not what their name says."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One medium of a benchmark as annotated."""

    id: str
    split: str
    filename: str
    captions: tuple[str, ...]
    caption_ids: tuple[str, ...] = ()  # one for each caption, or none at all

    def texts(self) -> tuple[list[str], list[str]]:
        """The captions that are not empty and the ids of just these."""
        kept = [number for number, caption in enumerate(self.captions) if caption]
        ids = self.caption_ids if len(self.caption_ids) == len(self.captions) and all(self.caption_ids) else ()
        return [self.captions[number] for number in kept], [ids[number] for number in kept] if ids else []


Names = dict[str, list[str]]  # split -> ids


@dataclass(slots=True)
class Listing:
    """All entries, and what could not become one."""

    benchmark: str
    entries: list[Entry] = field(default_factory=list)
    unknown_split: Names = field(default_factory=dict)
    unannotated: Names = field(default_factory=dict)  # in a split list, without annotation
    caption_missing: Names = field(default_factory=dict)  # some captions are empty, others are there
    unlisted: list[str] = field(default_factory=list)  # annotated, but no split list wants them

    def add(self, entry: Entry) -> None:
        if entry.split not in SPLITS:
            note(self.unknown_split, entry.split, entry.id)
            return
        self.entries.append(entry)
        if any(entry.captions) and not all(entry.captions):
            note(self.caption_missing, entry.split, entry.id)


def note(names: Names, split: str, identifier: str) -> None:
    names.setdefault(split, []).append(identifier)


class MediaFolder:
    """The media files under a folder, found by name wherever they lie."""

    def __init__(self, root: Path, extensions: frozenset[str]):
        self.root = root
        self.by_name: dict[str, list[Path]] = {}
        self.by_stem: dict[str, list[Path]] = {}
        for folder, _, names in os.walk(root):
            for name in names:
                if name.rpartition(".")[2].lower() in extensions:
                    path = Path(folder) / name
                    self.by_name.setdefault(name, []).append(path)
                    self.by_stem.setdefault(name.split(".")[0], []).append(path)

    def find(self, filename: str) -> Path | None:
        """By name, then by the name without its suffixes (DiDeMo's .mov is often re-encoded as .mov.mp4)."""
        parts = Path(filename).parts
        name = parts[-1] if parts else ""
        found = self.by_name.get(name) or self.by_stem.get(name.split(".")[0]) or []
        # The one whose folders agree with the annotation wins; then the first by name, so that the choice is stable.
        return min(found, key=lambda path: (path.parts[-len(parts) :] != parts, str(path)), default=None)


def first_existing(root: Path, names: Iterable[str]) -> Path | None:
    """The first of these files found at the root or one folder below it."""
    for name in names:
        for path in (root / name, *sorted(root.glob(f"*/{name}"))):
            if path.is_file():
                return path
    return None


def require(root: Path, *names: str) -> Path:
    path = first_existing(root, names)
    if path is None:
        raise BenchmarkError(f"{root} has no {' or '.join(names)} (looked there and one folder below)")
    return path


def load_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise BenchmarkError(f"{path} is not JSON: {error}") from None


def load_lines(path: Path) -> list[str]:
    """The lines of a file as the auditor reads captions, without the blank ones."""
    return list(split_captions(decode_text(path.read_bytes()), "lines"))


def one_line(caption: Any) -> str:
    """A caption as one line, because shards keep one caption per line; empty for a null or what else is no text."""
    return " ".join(caption.split()) if isinstance(caption, str) else ""
