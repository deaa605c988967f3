"""The interface of a corpus: shards that can be named, fingerprinted, sent to a worker and opened.

A `Shard` is small and picklable and reads nothing until it is opened. An `OpenShard` lists every key of the shard once,
in a fixed order, and reads the bytes of one medium at a time.
"""

import codecs
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from auditor.corpus.sample import Media, Sample
from auditor.errors import AuditorError
from auditor.schema.setting import setting


class CorpusError(AuditorError):
    """The whole corpus cannot be read: a wrong path, an empty folder, an unknown form."""


class ShardError(CorpusError):
    """One shard cannot be read. The message names the shard."""

    def __init__(self, shard: str, message: str) -> None:
        super().__init__(f"{shard}: {message}")
        self.shard = shard
        self.reason = message

    def __reduce__(self) -> tuple[type["ShardError"], tuple[str, str]]:  # Ray workers send it back
        return ShardError, (self.shard, self.reason)


@contextmanager
def convert_shard_errors(shard: str, path: str) -> Iterator[None]:
    try:
        yield
    except ShardError:
        raise
    except FileNotFoundError as error:
        raise ShardError(shard, f"{path} does not exist") from error
    except (OSError, CorpusError, pa.ArrowException, ValueError, OverflowError, MemoryError) as error:
        raise ShardError(shard, str(error) if isinstance(error, CorpusError) else f"{path}: {error}") from error


@dataclass(frozen=True, slots=True)
class CorpusOptions:
    """Options for what the corpus itself does not specify."""

    captions: Literal["lines", "whole"] = setting(
        "lines", "Read a .txt file as one caption per line, or as one caption."
    )
    media_column: str | None = setting(None, "Column of a table that holds paths or bytes of media.", advanced=False)
    caption_column: tuple[str, ...] = setting(
        (),
        "Column of a table that holds captions; several, such as alt,raw,refined, are the sources of captions.",
        advanced=False,
    )
    caption_fields: tuple[str, ...] = setting(
        (),
        "Fields of .json files that hold captions, in place of caption and captions; txt and NAME.txt name files. "
        "Several are the sources of captions.",
    )
    key_column: str | None = setting(None, "Column of a table that holds keys.")
    start_column: str | None = setting(
        None,
        "Column of a table with the start of each caption's span, in seconds or HH:MM:SS.mmm; without --end-column, a "
        "column with lists of [start, end].",
    )
    end_column: str | None = setting(None, "Column of a table with the end of each caption's span.")
    encoding: str | None = setting(None, "Encoding of captions without a byte order mark [default: detected].")
    delimiter: str | None = setting(None, "Delimiter of a CSV file [default: detected].")
    header: bool | None = setting(
        None,
        "Whether a CSV file begins with column names [default: detected]. Columns without names are called 1, 2, ...",
    )
    carry: tuple[str, ...] = setting(
        (), "Columns of a table, or fields of .json files, to copy into the audit, such as url,license."
    )
    features: str | None = setting(
        None, "Features of DataComp's metadata to use: l14 (the default) or b32.", metavar="NAME"
    )
    visual_column: str | None = setting(
        None,
        "Column of a Parquet table that holds embeddings of the media; a member of DataComp's .npz, or a folder "
        "of clip-retrieval's .npy files.",
    )
    text_column: tuple[str, ...] = setting(
        (), "Column of embeddings of the captions, like --visual-column; one for each --caption-column."
    )
    media_root: tuple[str, ...] = setting(
        (), "Folders or URLs outside a table's own folder from which its media may be read, such as /data/photos."
    )
    follow_links: bool = setting(False, "Follow symbolic links that lead out of the corpus.")
    max_caption_bytes: int = setting(16 * 2**20, "Largest size of a caption file, in bytes.")
    shard_size: int = setting(1000, "Media per shard, if the corpus is not in shards.")

    def __post_init__(self) -> None:
        if self.delimiter in ("tab", "\\t"):
            object.__setattr__(self, "delimiter", "\t")
        if self.captions not in ("lines", "whole"):
            raise CorpusError(f"captions must be 'lines' or 'whole', not {self.captions!r}")
        for name in ("carry", "media_root", "caption_column", "caption_fields", "text_column"):
            names = getattr(self, name) or ()
            object.__setattr__(self, name, tuple(map(str.strip, names.split(",")) if isinstance(names, str) else names))
        for name in ("caption_column", "caption_fields", "text_column"):
            if len(set(getattr(self, name))) < len(getattr(self, name)):
                raise CorpusError(f"{name} names {max(getattr(self, name), key=getattr(self, name).count)!r} twice")
        if self.delimiter is not None and len(self.delimiter) != 1:
            raise CorpusError(f"delimiter must be one character, not {self.delimiter!r}")
        try:
            codecs.lookup(self.encoding or "utf-8")
        except LookupError:
            choices = "common ones are utf-8, cp1252, utf-16, gb18030"
            raise CorpusError(f"there is no encoding {self.encoding!r}; {choices}") from None
        if self.shard_size < 1:
            raise CorpusError(f"shard_size must be at least 1, not {self.shard_size}")


DEFAULT_OPTIONS = CorpusOptions()
OWN_WORDS = ("media_root", "follow_links")  # what only the user's own command may say, not the manifest of an audit


def load_saved_options(saved: Mapping[str, Any]) -> CorpusOptions:
    """Return the options that the manifest of an audit holds (`corpus`), without those that open other places."""
    names = {field.name for field in fields(CorpusOptions)}.difference(OWN_WORDS)
    return CorpusOptions(**{name: saved[name] for name in names if saved.get(name) is not None})


@dataclass(frozen=True, slots=True)
class OpenShard:
    """The content of a shard. `problems` are defects of no single sample (a bad header at some offset, ...)."""

    samples: list[Sample]
    problems: list[str]
    read: Callable[[Media], bytes] = field(repr=False)  # raises `auditor.corpus.read_medium.MediaError`
    old_row_mask: npt.NDArray[np.bool_] | None = None  # (rows,) of the whole shard, if only those not marked are open


@runtime_checkable
class Shard(Protocol):
    """A part of a corpus: the unit of work, retry and resume."""

    @property
    def name(self) -> str:
        """A name that is unique in the corpus and safe as a file name."""

    def fingerprint(self) -> str:
        """Return a value that changes with the content. Reads as little as possible. Raises ShardError."""

    def open(self) -> AbstractContextManager[OpenShard]:
        """Index the shard; temporary copies are deleted when the context ends."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """A list of shards. `root` is the folder or URL that contains all of them."""

    spec: str
    root: str
    shards: Sequence[Shard]
