"""Folders that appear whole or not at all: written under another name beside the old one, then put in its place.

A full folder cannot be replaced in one step. The new one is renamed to `.NAME.MARK.new` when it is complete, the old
one is moved aside, the new one takes its place; a kill between two of these steps leaves at least one whole folder,
which `recover` puts back.
"""

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def written_whole(folder: Path) -> Iterator[Path]:
    """A draft folder that takes the place of `folder` when all is written, and vanishes when something fails."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    mark = uuid.uuid4().hex[:8]
    draft, new, old = (folder.with_name(f".{folder.name}.{mark}.{what}") for what in ("draft", "new", "old"))
    draft.mkdir()
    try:
        yield draft
        draft.rename(new)
        if folder.exists():
            folder.rename(old)
        new.rename(folder)
    finally:
        if old.exists() and not folder.exists():
            old.rename(folder)
        for leftover in (draft, new, old):
            shutil.rmtree(leftover, ignore_errors=True)


def recover(folder: Path) -> None:
    """Put back what a kill left beside `folder`, the new one if it was complete, and remove the rest."""
    for what in ("new", "old"):
        for whole in sorted(folder.parent.glob(f".{folder.name}.*.{what}")):
            if not folder.exists():
                whole.rename(folder)
    for what in ("draft", "new", "old"):
        for leftover in folder.parent.glob(f".{folder.name}.*.{what}"):
            shutil.rmtree(leftover, ignore_errors=True)
