"""The contract of a corpus: shards that can be named, fingerprinted, shipped to a worker and opened.

A `Shard` is light and picklable: it says where its bytes are and reads nothing until it is opened. An `OpenShard` knows
every key of the shard, each of them once, in a fixed order, and reads the bytes of one medium at a time.
"""

import codecs
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from auditor.corpus.sample import Media, Sample
from auditor.errors import AuditorError


class CorpusError(AuditorError):
    """The corpus as a whole cannot be read: a wrong path, nothing in it, an unknown form."""


class ShardError(CorpusError):
    """One shard cannot be read; the others may well be. The message names the shard."""

    def __init__(self, shard: str, message: str) -> None:
        super().__init__(f"{shard}: {message}")
        self.shard = shard
        self.reason = message

    def __reduce__(self) -> tuple[type["ShardError"], tuple[str, str]]:  # it travels back from Ray workers
        return ShardError, (self.shard, self.reason)


@dataclass(frozen=True, slots=True)
class CorpusOptions:
    """How to read what the corpus itself leaves open."""

    captions: Literal["lines", "whole"] = "lines"  # of a .txt: each line is a caption, or the whole text is one
    media_column: str | None = None  # of a table; guessed from usual names where None
    caption_column: str | None = None
    key_column: str | None = None
    start_column: str | None = None  # of spans, in seconds or HH:MM:SS.mmm; alone it lists [start, end] pairs
    end_column: str | None = None
    features: str | None = None  # of DataComp's metadata: b32 or l14
    visual_column: str | None = None  # of a table that holds embeddings
    text_column: str | None = None
    shard_size: int = 1000  # media per virtual shard of a folder, a table or COCO
    encoding: str | None = None  # of text that is not marked as Unicode; found out where None
    delimiter: str | None = None  # of a CSV; found out where None
    header: bool | None = None  # whether a CSV begins with names; found out where None
    carry: tuple[str, ...] = ()  # columns of a table, or fields of .json files, that are carried into the audit

    def __post_init__(self) -> None:
        if self.captions not in ("lines", "whole"):
            raise CorpusError(f"captions must be 'lines' or 'whole', not {self.captions!r}")
        object.__setattr__(self, "carry", tuple(self.carry))
        if self.delimiter is not None and len(self.delimiter) != 1:
            raise CorpusError(f"delimiter must be one character, not {self.delimiter!r}")
        if self.encoding is not None:
            _check_encoding(self.encoding)
        if self.shard_size < 1:
            raise CorpusError(f"shard_size must be at least 1, not {self.shard_size}")


def _check_encoding(encoding: str) -> None:
    try:
        codecs.lookup(encoding)
    except LookupError:
        raise CorpusError(f"there is no encoding {encoding!r}; usual ones are utf-8, cp1252, utf-16, gb18030") from None


DEFAULTS = CorpusOptions()


@dataclass(frozen=True, slots=True)
class OpenShard:
    """What is in a shard. `problems` are damages that belong to no single sample (a bad header at some offset, ...)."""

    samples: list[Sample]
    problems: list[str]
    read_bytes: Callable[[Media], bytes] = field(repr=False)

    def read(self, media: Media) -> bytes:
        """The bytes of a medium of this shard; `auditor.corpus.read_medium.MediaError` where they are gone."""
        return self.read_bytes(media)


@runtime_checkable
class Shard(Protocol):
    """A part of a corpus: the unit of work, retry and resume."""

    @property
    def name(self) -> str:
        """Unique in the corpus, and safe as a file name."""

    def fingerprint(self) -> str:
        """Changes when the content does; reads as little as it can. `ShardError` where the shard is gone."""

    def open(self) -> AbstractContextManager[OpenShard]:
        """Index the shard; what was fetched for it is deleted when the context ends."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """`root` is the folder or URL that all of it lies under: what moves when a corpus is moved."""

    spec: str
    root: str
    shards: Sequence[Shard]
