"""Filters for your own WebDataset pipeline: a predicate for `select` and a caption filter for `map`.

Shards are found by name, however a loader spells their URLs; keys are stored as 64-bit hashes. Both filters can be
pickled for loader workers.
"""

import hashlib
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from auditor.corpus.rewrite_captions import keep_captions
from auditor.corpus.shard import CorpusOptions
from auditor.errors import AuditorError
from auditor.keep.kept_rows import KeptRows, load_corpus_options

Keys = npt.NDArray[np.uint64]
T = TypeVar("T")


class UnknownShardError(AuditorError):
    """A loader reads a shard that is not in the audit; dropping it silently would lose data."""


class UrlLookup(Generic[T]):
    """A value for each shard of an audit, found by any URL of the shard."""

    def __init__(self, shards: dict[str, T]) -> None:
        self.shards = shards
        self._by_url: dict[str, T] = {}

    def find(self, url: str) -> T:
        """The value of the shard whose path is the longest suffix of the URL, or of a word of a `pipe:` command."""
        if url not in self._by_url:
            self._by_url[url] = self._search(url)
        return self._by_url[url]

    def _search(self, url: str) -> T:
        for word in (url, *reversed(url.split())):
            names = word.strip("'\"").split("?")[0].split("/")
            for start in range(len(names)):
                value = self.shards.get("/".join(names[start:]))
                if value is not None:
                    return value
        raise UnknownShardError(f"the audit has no shard {url}; audit it first or remove it from the loader")


class Predicate(UrlLookup[Keys]):
    """Whether to keep a WebDataset sample, for `.select()`; a sample is kept whole if any of its captions is."""

    def __call__(self, sample: dict[str, Any]) -> bool:
        keys = self.find(str(sample["__url__"]))
        return find_key(keys, hash_key(sample["__key__"])) is not None

    def __repr__(self) -> str:
        return f"Predicate({sum(map(len, self.shards.values())):,} samples to keep in {len(self.shards):,} shards)"


@dataclass(frozen=True, slots=True)
class KeptCaptions:
    """The kept captions of one shard: `numbers[starts[i]:starts[i + 1]]` for sample `keys[i]`; empty means all.

    `changes` are their new texts, null for captions that stay as they are.
    """

    keys: Keys
    starts: npt.NDArray[np.int64]
    numbers: npt.NDArray[np.int32]
    changes: pa.Array

    def find(self, sample: int) -> tuple[list[int], dict[int, str]]:
        """The numbers of the kept captions of a sample, and their changes by number."""
        start, stop = self.starts[sample : sample + 2].tolist()
        numbers = self.numbers[start:stop].tolist()
        texts = self.changes.slice(start, stop - start).to_pylist() if len(self.changes) else []
        return numbers, {number: text for number, text in zip(numbers, texts, strict=False) if text}


class CaptionFilter(UrlLookup[KeptCaptions]):
    """Reduces a WebDataset sample to its kept captions, or to None if none is kept, for `.map()`, which drops None."""

    def __init__(self, shards: dict[str, KeptCaptions], options: CorpusOptions) -> None:
        super().__init__(shards)
        self.options = options

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any] | None:
        captions = self.find(str(sample["__url__"]))
        place = find_key(captions.keys, hash_key(sample["__key__"]))
        if place is None:
            return None
        numbers, changes = captions.find(place)
        return keep_captions(sample, numbers, self.options, changes) if numbers else sample

    def __repr__(self) -> str:
        samples = sum(len(captions.keys) for captions in self.shards.values())
        return f"CaptionFilter({samples:,} samples to keep in {len(self.shards):,} shards)"


def make_predicate(subset: KeptRows) -> Predicate:
    return Predicate({shard: captions.keys for shard, captions in make_caption_filter(subset).shards.items()})


def make_caption_filter(subset: KeptRows) -> CaptionFilter:
    """Samples that keep all captions as they are take eight bytes each, others four more for each kept caption.

    Changed captions are held in memory.
    """
    database, changed = subset.database, bool(subset.changes)
    text = f"nullif({subset.changes.caption}, samples.caption)" if changed else "NULL"
    columns = f"*, {subset.condition} AS is_kept, {text} AS text"
    rows = f"SELECT {columns} FROM {database.stored_table(subset.condition)} WHERE media_path IS NOT NULL"
    listed = "list({} ORDER BY caption_index) FILTER (is_kept)"
    samples = (  # n is NULL if no caption is kept
        "SELECT media_path, md5_number_lower(key) AS number, bool_and(is_kept AND text IS NULL) AS whole, "
        f"CASE WHEN whole THEN [] ELSE {listed.format('caption_index')} END AS n, "
        f"CASE WHEN whole THEN [] ELSE {listed.format('text')} END AS texts "
        f"FROM ({rows}) GROUP BY media_path, media_offset, key"
    )
    names = ("number", "len(n)", "n", *["texts"] * changed)
    keys, lengths, *lists = (f"list({x} ORDER BY number) FILTER (n IS NOT NULL)" for x in names)
    flat = ", ".join(f"flatten({items})" for items in lists)
    table = database.run(f"SELECT media_path, {keys}, {lengths}, {flat} FROM ({samples}) GROUP BY media_path")
    shards = {
        relative_shard_path(subset, path.as_py()): KeptCaptions(
            read_list(keys, np.uint64),
            np.append(0, np.cumsum(read_list(lengths, np.int64))),
            read_list(n, np.int32),
            pa.array(texts[0].as_py() if texts else [], pa.string()),  # a slice would be pickled with all shards
        )
        for path, keys, lengths, n, *texts in zip(*table.columns, strict=True)
    }
    return CaptionFilter(shards, load_corpus_options(database))


def read_list(values: pa.ListScalar, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    return np.asarray(values.values if values.is_valid else [], dtype)


def relative_shard_path(subset: KeptRows, path: str) -> str:
    """The path of a shard relative to the root of its corpus."""
    return path.split("#")[0].removeprefix((subset.database.places.old_root or "").rstrip("/")).lstrip("/")


def find_key(keys: Keys, number: np.uint64) -> int | None:
    place = int(np.searchsorted(keys, number))
    return place if place < len(keys) and keys[place] == number else None


def hash_key(key: str) -> np.uint64:
    """The same 64-bit hash as DuckDB's md5_number_lower(key)."""
    digest = hashlib.md5(key.encode(), usedforsecurity=False).digest()
    return np.uint64(int.from_bytes(digest[8:], "little"))
