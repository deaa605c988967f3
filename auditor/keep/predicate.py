"""Filters for your own WebDataset pipeline: a predicate for `select` and a caption filter for `map`.

Shards are found by name, however a loader spells their URLs; keys are stored as 64-bit hashes. Both filters can be
pickled for loader workers.
"""

import hashlib
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

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
    """The kept captions of one shard: `numbers[starts[i]:starts[i + 1]]` for sample `keys[i]`; empty means all."""

    keys: Keys
    starts: npt.NDArray[np.int64]
    numbers: npt.NDArray[np.int32]


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
        numbers = captions.numbers[captions.starts[place] : captions.starts[place + 1]].tolist()
        return keep_captions(sample, numbers, self.options) if numbers else sample

    def __repr__(self) -> str:
        samples = sum(len(captions.keys) for captions in self.shards.values())
        return f"CaptionFilter({samples:,} samples to keep in {len(self.shards):,} shards)"


def make_predicate(subset: KeptRows) -> Predicate:
    table = subset.database.run(
        "SELECT media_path, list(DISTINCT number) FILTER (is_kept) AS numbers FROM "
        f"(SELECT media_path, md5_number_lower(key) AS number, {subset.condition} AS is_kept "
        f"FROM {subset.source} WHERE media_path IS NOT NULL) GROUP BY media_path"
    )
    shards: dict[str, Keys] = {}
    for path, numbers in zip(table["media_path"].to_pylist(), table["numbers"], strict=True):
        values = numbers.values.to_numpy() if numbers.is_valid else np.empty(0, np.uint64)
        shards[relative_shard_path(subset, path)] = np.sort(values)
    return Predicate(shards)


def make_caption_filter(subset: KeptRows) -> CaptionFilter:
    """Samples that keep all captions take eight bytes each, others four more for each kept caption."""
    samples = (
        "SELECT media_path, md5_number_lower(key) AS number, "
        "CASE WHEN bool_and(is_kept) THEN [] "
        "ELSE list(caption_index ORDER BY caption_index) FILTER (is_kept) END AS n "
        f"FROM (SELECT *, {subset.condition} AS is_kept FROM {subset.source} WHERE media_path IS NOT NULL) "
        "GROUP BY media_path, media_offset, key HAVING bool_or(is_kept)"
    )
    table = subset.database.run(
        f"SELECT media_path, list(number ORDER BY number) AS keys, list(len(n) ORDER BY number) AS lengths, "
        f"flatten(list(n ORDER BY number)) AS numbers FROM ({samples}) GROUP BY media_path"
    )
    shards = {
        relative_shard_path(subset, row["media_path"]): KeptCaptions(
            np.array(row["keys"], np.uint64),
            np.concatenate([[0], np.cumsum(np.array(row["lengths"], np.int64))]),
            np.array(row["numbers"], np.int32),
        )
        for row in table.to_pylist()
    }
    nothing = KeptCaptions(np.empty(0, np.uint64), np.zeros(1, np.int64), np.empty(0, np.int32))
    paths = subset.database.rows("SELECT DISTINCT media_path FROM measured WHERE media_path IS NOT NULL")
    empty_shards = {relative_shard_path(subset, row["media_path"]): nothing for row in paths}
    return CaptionFilter({**empty_shards, **shards}, load_corpus_options(subset.database))


def relative_shard_path(subset: KeptRows, path: str) -> str:
    """The path of a shard relative to the root of its corpus."""
    return path.split("#")[0].removeprefix((subset.database.old_root or "").rstrip("/")).lstrip("/")


def find_key(keys: Keys, number: np.uint64) -> int | None:
    place = int(np.searchsorted(keys, number))
    return place if place < len(keys) and keys[place] == number else None


def hash_key(key: str) -> np.uint64:
    """The same 64-bit hash as DuckDB's md5_number_lower(key)."""
    digest = hashlib.md5(key.encode(), usedforsecurity=False).digest()
    return np.uint64(int.from_bytes(digest[8:], "little"))
