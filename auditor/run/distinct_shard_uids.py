"""No two shards share a uid: after the sweep, where the corpus gave a name in two of them, the first one keeps it."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from auditor.audit_folder.arrow_schema import EMBEDDINGS_STORAGE
from auditor.audit_folder.checksum import KEY
from auditor.audit_folder.embeddings import file_name
from auditor.audit_folder.folder import Folder
from auditor.score.pair_sample import Each
from auditor.sweep.distinct_uids import DistinctUids
from auditor.sweep.embeddings_writer import ShardReport

Marks = npt.NDArray[np.uint64]


def separate_shards(folder: Folder, shards: Sequence[str], each: Each) -> dict[str, ShardReport]:
    """Write the files of shards anew that have uids of shards before them; their reports by shard."""
    if len(shards) < 2:
        return {}
    marks = list(each(partial(read_marks, folder), shards))
    every, counts = np.unique(np.concatenate(marks), return_counts=True)
    repeated = every[counts > 1]
    if not len(repeated):
        return {}
    seen: set[str] = set()
    changed = {}
    for shard, mine in zip(shards, marks, strict=True):
        if np.isin(mine, repeated).any():
            taken, report = separate(folder, shard, seen)
            seen |= taken
            if report is not None:
                changed[shard] = report
    return changed


def read_marks(folder: Folder, shard: str) -> Marks:
    """64 bits of every uid of a shard."""
    return marks_of(folder.read_table(file_name(shard), ["uid"]).column(0).to_pylist())


def marks_of(uids: Sequence[str]) -> Marks:
    halves = np.frombuffer(bytes.fromhex("".join(uids)), np.uint64).reshape(-1, 2)
    return np.asarray(halves[:, 0] ^ halves[:, 1])


def separate(folder: Folder, shard: str, seen: set[str]) -> tuple[set[str], ShardReport | None]:
    """The uids of a shard, and its report where some of them had to change."""
    name = file_name(shard)
    uids = set(folder.read_table(name, ["uid"]).column(0).to_pylist())
    if uids.isdisjoint(seen):
        return uids, None
    table, stored = folder.read_table(name), folder.table_metadata(name)
    distinct = DistinctUids(shard, sorted(seen & uids))
    table = distinct.separate(table)
    report = ShardReport(**json.loads(stored["report"]))
    report = replace(report, problems=(*report.problems, *distinct.problems("a row of an earlier shard")))
    notes = {**stored, "report": json.dumps(asdict(report))}
    folder.write_table(name, table, {key: text for key, text in notes.items() if key != KEY}, EMBEDDINGS_STORAGE)
    return uids, report
