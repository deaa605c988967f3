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
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from auditor.corpus.raw_samples import KeptShard, read_kept
from auditor.errors import AuditorError
from auditor.keep.drift import Shifts, shifts
from auditor.keep.effects import Clause, Effects, all_of, clauses, reason_sql, rule_effects
from auditor.query.rules import Rules, Threshold
from auditor.query.sandbox import Limits
from auditor.store.audit_files import view_sql

if TYPE_CHECKING:
    from auditor.keep.export import Exported
    from auditor.query.audit import Audit

Keys = npt.NDArray[np.uint64]


class Subset:
    """The usable rows of an audit that meet all rules."""

    def __init__(self, audit: "Audit", rules: Rules) -> None:
        self.audit, self.rules = audit, rules
        self.clauses: list[Clause] = clauses(audit, rules)
        self.condition = all_of(self.clauses)

    @property
    def source(self) -> str:
        return self.audit.stored_table(self.condition)  # an export reads it in a database of its own

    @cached_property
    def count(self) -> int:
        """Rows kept."""
        found: int = self.audit.database.rows(f"SELECT count(*) AS n FROM {self.source} WHERE {self.condition}")[0]["n"]
        return found

    def __len__(self) -> int:
        return self.count

    def column(self, name: str) -> pa.ChunkedArray:
        """One column of the kept rows."""
        sql = f"SELECT {self.audit.column(name)} FROM {self.source} WHERE {self.condition}"
        return self.audit.database.run(sql).column(0)

    @property
    def uids(self) -> pa.ChunkedArray:
        return self.column("uid")

    @property
    def keys(self) -> pa.ChunkedArray:
        return self.column("key")

    @property
    def reasons(self) -> str:
        return reason_sql(self.clauses)

    def effects(self) -> Effects:
        return rule_effects(self.audit, self.rules)

    def shifts(self) -> Shifts:
        return shifts(self.audit, self.rules)

    def by_shard(self) -> list[tuple[str, int]]:
        """Shards of the audit in order, with how many samples of each are kept (a sample: one key, any caption)."""
        found = self.audit.database.rows(
            "SELECT shard, count(*) AS n FROM (SELECT DISTINCT shard, key, media_path, media_offset "
            f"FROM {self.source} WHERE {self.condition}) GROUP BY shard ORDER BY shard"
        )
        return [(row["shard"], row["n"]) for row in found]

    def shard(self, shard: str) -> KeptShard:
        """The kept samples of one shard, in the order they stand in the corpus; reads one file of the audit."""
        return kept_shard(self.audit, self.condition, shard)

    def samples(self) -> Iterator[dict[str, Any]]:
        """Kept samples as WebDataset gives them: __key__, __url__ and the original bytes by extension."""
        for shard, _ in self.by_shard():
            yield from read_kept(self.shard(shard))

    def write(self, target: str | Path, *, force: bool = False, shard_size: int = 10_000) -> "Exported":
        """Write kept.npy, kept.parquet, kept.txt or a folder of shards: see auditor.keep.export."""
        from auditor.keep.export import export

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
        audit = self.audit
        reader = ShardReader(audit.path, audit.moved_to, audit.thresholds, audit.limits, self.condition)
        # in a list of its own, a list of names is the first stage
        return wds.DataPipeline([shards], wds.split_by_node, wds.split_by_worker, reader)

    def predicate(self) -> "Predicate":
        """For `select()` of a WebDataset pipeline of one's own: True for the samples to keep."""
        found = self.audit.database.run(
            f"SELECT media_path, list(DISTINCT md5_number_lower(key)) FILTER ({self.condition}) AS kept "
            f"FROM {self.source} WHERE media_path IS NOT NULL GROUP BY media_path"
        )
        shards: dict[str, Keys] = {}
        for path, kept in zip(found["media_path"].to_pylist(), found["kept"], strict=True):
            values = kept.values.to_numpy() if kept.is_valid else np.empty(0, np.uint64)
            shards[relative(path.split("#")[0], self.audit.old_root)] = np.sort(values)
        return Predicate(shards)


def kept_shard(audit: "Audit", condition: str, shard: str) -> KeptShard:
    view = view_sql(audit.files.shard(shard), audit.thresholds)
    table = audit.database.run(
        "SELECT key, media_path, media_offset, any_value(media_size) AS media_size, "
        "list(caption ORDER BY caption_index) AS captions, list(uid ORDER BY caption_index) AS uids "
        f"FROM (SELECT * FROM ({view}) LEFT JOIN verdicts USING (uid, caption_index)) AS samples "
        f"WHERE {condition} GROUP BY key, media_path, media_offset "
        "ORDER BY media_path, media_offset, key"
    )
    return KeptShard(shard, table, audit.moved_to, audit.old_root)


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
        from auditor.query.audit import Audit

        with Audit(self.path, self.corpus, thresholds=self.thresholds, limits=self.limits) as audit:
            for shard in shards:
                yield from read_kept(kept_shard(audit, self.condition, shard))


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
