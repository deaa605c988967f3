"""What your own WebDataset pipeline needs to keep what rules keep: a `select` for samples, a `map` for captions.

Shards are found by their names, however a loader spells their URLs; keys are held as 64-bit numbers. Both can be
pickled, so that loader workers get them.
"""

import hashlib
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from auditor.corpus.rewrite_captions import keep_captions
from auditor.corpus.shard import CorpusOptions
from auditor.errors import AuditorError
from auditor.keep.kept_rows import KeptRows, reading_options

Keys = npt.NDArray[np.uint64]
T = TypeVar("T")


class UnknownShardError(AuditorError):
    """A loader reads a shard the audit knows nothing of: to drop it in silence would lose data."""


class ByUrl(Generic[T]):
    """Something for each shard of an audit, found by any URL of the shard."""

    def __init__(self, shards: dict[str, T]) -> None:
        self.shards = shards
        self._by_url: dict[str, T] = {}

    def find(self, url: str) -> T:
        """Of the shard whose path is the longest tail of the URL, or of a word of a `pipe:` command, the last first."""
        if url not in self._by_url:
            self._by_url[url] = self._search(url)
        return self._by_url[url]

    def _search(self, url: str) -> T:
        for word in (url, *reversed(url.split())):
            names = word.strip("'\"").split("?")[0].split("/")
            for start in range(len(names)):
                found = self.shards.get("/".join(names[start:]))
                if found is not None:
                    return found
        raise UnknownShardError(f"the audit has no shard {url}; audit it first, or leave it out of the loader")


class Predicate(ByUrl[Keys]):
    """Keep a WebDataset sample? For `.select()`; a sample is kept whole when any of its captions is."""

    def __call__(self, sample: dict[str, Any]) -> bool:
        keys = self.find(str(sample["__url__"]))
        return place_of(keys, key_number(sample["__key__"])) is not None

    def __repr__(self) -> str:
        return f"Predicate({sum(map(len, self.shards.values())):,} samples to keep in {len(self.shards):,} shards)"


@dataclass(frozen=True, slots=True)
class KeptNumbers:
    """The kept captions of one shard: `numbers[starts[i]:starts[i + 1]]` of the sample `keys[i]`, none meaning all."""

    keys: Keys
    starts: npt.NDArray[np.int64]
    numbers: npt.NDArray[np.int32]


class CaptionFilter(ByUrl[KeptNumbers]):
    """A WebDataset sample with its kept captions only, or None where none is kept. For `.map()`, which drops None."""

    def __init__(self, shards: dict[str, KeptNumbers], options: CorpusOptions) -> None:
        super().__init__(shards)
        self.options = options

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any] | None:
        kept = self.find(str(sample["__url__"]))
        place = place_of(kept.keys, key_number(sample["__key__"]))
        if place is None:
            return None
        numbers = kept.numbers[kept.starts[place] : kept.starts[place + 1]].tolist()
        return keep_captions(sample, numbers, self.options) if numbers else sample

    def __repr__(self) -> str:
        samples = sum(len(kept.keys) for kept in self.shards.values())
        return f"CaptionFilter({samples:,} samples to keep in {len(self.shards):,} shards)"


def make_predicate(kept: KeptRows) -> Predicate:
    found = kept.database.run(
        "SELECT media_path, list(DISTINCT number) FILTER (is_kept) AS numbers FROM "
        f"(SELECT media_path, md5_number_lower(key) AS number, {kept.condition} AS is_kept "
        f"FROM {kept.source} WHERE media_path IS NOT NULL) GROUP BY media_path"
    )
    shards: dict[str, Keys] = {}
    for path, numbers in zip(found["media_path"].to_pylist(), found["numbers"], strict=True):
        values = numbers.values.to_numpy() if numbers.is_valid else np.empty(0, np.uint64)
        shards[shard_path(kept, path)] = np.sort(values)
    return Predicate(shards)


def make_caption_filter(kept: KeptRows) -> CaptionFilter:
    """Samples that keep all of their captions take eight bytes each, others four more for each caption."""
    samples = (
        "SELECT media_path, md5_number_lower(key) AS number, "
        "CASE WHEN bool_and(is_kept) THEN [] "
        "ELSE list(caption_index ORDER BY caption_index) FILTER (is_kept) END AS n "
        f"FROM (SELECT *, {kept.condition} AS is_kept FROM {kept.source} WHERE media_path IS NOT NULL) "
        "GROUP BY media_path, media_offset, key HAVING bool_or(is_kept)"
    )
    found = kept.database.run(
        f"SELECT media_path, list(number ORDER BY number) AS keys, list(len(n) ORDER BY number) AS lengths, "
        f"flatten(list(n ORDER BY number)) AS numbers FROM ({samples}) GROUP BY media_path"
    )
    shards = {
        shard_path(kept, row["media_path"]): KeptNumbers(
            np.array(row["keys"], np.uint64),
            np.concatenate([[0], np.cumsum(np.array(row["lengths"], np.int64))]),
            np.array(row["numbers"], np.int32),
        )
        for row in found.to_pylist()
    }
    nothing = KeptNumbers(np.empty(0, np.uint64), np.zeros(1, np.int64), np.empty(0, np.int32))
    paths = kept.database.rows("SELECT DISTINCT media_path FROM measured WHERE media_path IS NOT NULL")
    known = {shard_path(kept, row["media_path"]): nothing for row in paths}
    return CaptionFilter({**known, **shards}, reading_options(kept.database))


def shard_path(kept: KeptRows, path: str) -> str:
    """The path of a shard below the root of its corpus."""
    return path.split("#")[0].removeprefix((kept.database.old_root or "").rstrip("/")).lstrip("/")


def place_of(keys: Keys, number: np.uint64) -> int | None:
    place = int(np.searchsorted(keys, number))
    return place if place < len(keys) and keys[place] == number else None


def key_number(key: str) -> np.uint64:
    """The same 64 bits as DuckDB's md5_number_lower(key)."""
    digest = hashlib.md5(key.encode(), usedforsecurity=False).digest()
    return np.uint64(int.from_bytes(digest[8:], "little"))
