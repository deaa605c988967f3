"""Media with equal bytes in a corpus of any size: eight bytes per medium are held at once, not their names.

The first pass collects 64 bits of every digest and keeps those that occur twice; the second fetches names only for
media with one of these, and compares whole digests.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from auditor.score.pair_sample import Each, groups, in_turn
from auditor.store.embeddings import file_name
from auditor.store.folder import Folder

Marks = npt.NDArray[np.int64]


def exact_duplicates(folder: Folder, shards: Sequence[str], media: int, each: Each = in_turn) -> dict[str, str]:
    """uid of each medium that repeats an earlier one -> uid of the first with the same bytes."""
    repeated = repeated_marks(folder, shards, media, each)
    if not len(repeated):
        return {}
    first: dict[str, str] = {}
    found: dict[str, str] = {}
    for named in each(partial(_named, folder, repeated), shards):
        for uid, digest in named:
            earlier = first.setdefault(digest, uid)
            if earlier != uid:
                found[uid] = earlier
    return found


def repeated_marks(folder: Folder, shards: Sequence[str], media: int, each: Each) -> Marks:
    """The marks that more than one medium has, sorted."""
    marks = np.empty(media, np.int64)
    end = 0
    for some in each(partial(_marks, folder), shards):
        marks[end : end + len(some)] = some
        end += len(some)
    marks = marks[:end]
    marks.sort()
    return np.unique(marks[1:][marks[1:] == marks[:-1]])


def encoded_media(facts: pa.Table) -> pa.Table:
    """The first row of each medium that was encoded."""
    return facts.filter(pc.and_(pc.equal(facts["status"], "ok"), pc.equal(facts["caption_index"], 0)))


def _read(folder: Folder, shard: str) -> tuple[pa.Table, Marks]:
    media = encoded_media(folder.read_table(file_name(shard), ["uid", "media_digest", "status", "caption_index"]))
    return media, groups(media["media_digest"].to_pylist())


def _marks(folder: Folder, shard: str) -> Marks:
    return _read(folder, shard)[1]


def _named(folder: Folder, repeated: Marks, shard: str) -> list[tuple[str, str]]:
    media, marks = _read(folder, shard)
    near = np.minimum(np.searchsorted(repeated, marks), len(repeated) - 1)
    chosen = media.filter(pa.array(repeated[near] == marks))
    return list(zip(chosen["uid"].to_pylist(), chosen["media_digest"].to_pylist(), strict=True))
