"""How often each caption occurs in the corpus, but for case, punctuation and digits: `caption_count`.

Captions are counted by their 64-bit hash, seventeen bytes a row while they are sorted; only those that occur more than
once are handed to the scorers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow.compute as pc

from auditor.audit_folder.embeddings import file_name
from auditor.audit_folder.folder import Folder
from auditor.score.pair_sample import Each, in_turn
from auditor.vectors import Ints


@dataclass(frozen=True, slots=True)
class CaptionCounts:
    """Hashes of the captions that occur more than once, increasing, and how often each does."""

    hashes: Ints
    counts: Ints

    def of(self, hashes: Ints) -> Ints:
        """How often captions with these hashes occur."""
        if not len(self.hashes):
            return np.ones(len(hashes), np.int64)
        place = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
        return np.where(self.hashes[place] == hashes, self.counts[place], 1)


def count_captions(folder: Folder, shards: Sequence[str], each: Each = in_turn) -> CaptionCounts:
    parts = list(each(partial(_hashes, folder), shards))
    return count_hashes(np.concatenate([np.zeros(0, np.int64), *parts]))


def count_hashes(hashes: Ints) -> CaptionCounts:
    """Sorts them where they are: of a billion rows every copy would be eight gigabytes."""
    hashes.sort()
    repeats = hashes[1:][hashes[1:] == hashes[:-1]]
    values, counts = np.unique(repeats, return_counts=True)
    return CaptionCounts(values, counts + 1)


def _hashes(folder: Folder, shard: str) -> Ints:
    """Of the usable rows of a shard; none in an audit that is older than the column."""
    if "caption_hash" not in folder.table_columns(file_name(shard)):
        return np.zeros(0, np.int64)
    table = folder.read_table(file_name(shard), ["caption_hash", "status"])
    usable = table.filter(pc.and_(pc.equal(table["status"], "ok"), pc.is_valid(table["caption_hash"])))
    return np.asarray(usable["caption_hash"].to_numpy(), np.int64)
