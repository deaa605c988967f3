"""The part of a corpus that rules keep: counted, listed, or read straight from the corpus while training.

Nothing has to be rewritten. In a loader of one's own, with open_clip's data format (jpg and txt in WebDataset shards)::

    import webdataset as wds
    from auditor import Audit

    keep = Audit("audit/").keep(max_p_mismatch=0.1, max_uncertainty_text=0.8).predicate()
    data = wds.WebDataset("shards/{00000..00099}.tar", shardshuffle=100).select(keep)
    data = data.decode("pilrgb").rename(image="jpg;png;jpeg;webp", text="txt").to_tuple("image", "text")

In open_clip's own training script the same `wds.select(keep)` goes before `wds.select(filter_no_caption_or_no_image)`.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from auditor.corpus.raw_samples import read_kept
from auditor.errors import AuditorError
from auditor.keep.drift import Drift, find_drift
from auditor.keep.effects import Effects, rule_effects
from auditor.keep.export import export
from auditor.keep.kept_rows import KeptRows, kept_shard
from auditor.keep.target import Exported
from auditor.query.database import AuditDatabase
from auditor.query.rules import Threshold
from auditor.query.sandbox import Limits

Keys = npt.NDArray[np.uint64]


class Subset(KeptRows):
    """The usable rows of an audit that meet all rules, to be written or read."""

    def effects(self) -> Effects:
        return rule_effects(self.database, self.rules)

    def drift(self) -> Drift:
        return find_drift(self.database, self.rules)

    def samples(self) -> Iterator[dict[str, Any]]:
        """Kept samples as WebDataset gives them: __key__, __url__ and the original bytes by extension."""
        for shard, _ in self.by_shard():
            yield from read_kept(self.shard(shard))

    def write(self, target: str | Path, *, force: bool = False, shard_size: int = 10_000) -> Exported:
        """Write kept.npy, kept.parquet, kept.txt or a folder of shards: see auditor.keep.export."""
        return export(self, target, force=force, shard_size=shard_size)

    def webdataset(self) -> Any:
        """Kept samples straight from the corpus: a WebDataset pipeline where that is installed, else a generator.

        The pipeline divides the shards between nodes and workers and takes .shuffle, .decode, .to_tuple and so on.
        """
        try:
            import webdataset as wds
        except ModuleNotFoundError:
            return self.samples()
        shards = [shard for shard, _ in self.by_shard()]
        if not shards:
            raise AuditorError("no sample meets the rules; there is nothing to read")
        of = self.database
        reader = ShardReader(of.path, of.moved_to, of.thresholds, of.limits, self.condition)
        # in a list of its own, a list of names is the first stage
        return wds.DataPipeline([shards], wds.split_by_node, wds.split_by_worker, reader)

    def predicate(self) -> "Predicate":
        """For `select()` of a WebDataset pipeline of one's own: True for the samples to keep."""
        found = self.database.run(
            f"SELECT media_path, list(DISTINCT md5_number_lower(key)) FILTER ({self.condition}) AS kept "
            f"FROM {self.source} WHERE media_path IS NOT NULL GROUP BY media_path"
        )
        shards: dict[str, Keys] = {}
        for path, kept in zip(found["media_path"].to_pylist(), found["kept"], strict=True):
            values = kept.values.to_numpy() if kept.is_valid else np.empty(0, np.uint64)
            shards[relative(path.split("#")[0], self.database.old_root)] = np.sort(values)
        return Predicate(shards)


@dataclass(frozen=True)
class ShardReader:
    """The stage of a pipeline that turns names of shards into samples.

    Can be pickled: each worker opens the audit for itself, and holds the rows of one shard at a time.
    """

    path: str
    corpus: str | None
    thresholds: Mapping[str, Threshold]
    limits: Limits
    condition: str  # as the rules meant it when the pipeline was made, with the cut of keep_top

    def __call__(self, shards: Iterator[str]) -> Iterator[dict[str, Any]]:
        with AuditDatabase(self.path, self.corpus, thresholds=self.thresholds, limits=self.limits) as database:
            for shard in shards:
                yield from read_kept(kept_shard(database, self.condition, shard))


def relative(path: str, root: str | None) -> str:
    return path.removeprefix((root or "").rstrip("/")).lstrip("/")


class UnknownShardError(AuditorError):
    """A loader reads a shard the audit knows nothing of: to drop it in silence would lose data."""


class Predicate:
    """Keep a WebDataset sample? By the name of its shard, however its URL is spelled, and its key. Can be pickled."""

    def __init__(self, shards: dict[str, Keys]) -> None:
        self.shards = shards
        self._by_url: dict[str, Keys] = {}

    def __call__(self, sample: dict[str, Any]) -> bool:
        url = str(sample["__url__"])
        if url not in self._by_url:
            self._by_url[url] = self.find(url)
        keys = self._by_url[url]
        number = key_number(sample["__key__"])
        place = int(np.searchsorted(keys, number))
        return place < len(keys) and bool(keys[place] == number)

    def find(self, url: str) -> Keys:
        """The shard whose path is the longest tail of the URL (or of a word of a `pipe:` command, the last first)."""
        for word in (url, *reversed(url.split())):
            names = word.strip("'\"").split("?")[0].split("/")
            for start in range(len(names)):
                found = self.shards.get("/".join(names[start:]))
                if found is not None:
                    return found
        raise UnknownShardError(f"the audit has no shard {url}; audit it first, or leave it out of the loader")


def key_number(key: str) -> np.uint64:
    """The same 64 bits as DuckDB's md5_number_lower(key)."""
    digest = hashlib.md5(key.encode(), usedforsecurity=False).digest()
    return np.uint64(int.from_bytes(digest[8:], "little"))
