"""Makes the uids of an audit distinct, although a corpus with uids of its own may repeat one.

The first row keeps its uid. Each other row gets a uid computed from its position, and the shard's report counts them.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from auditor.audit_folder.arrow_schema import EMBEDDINGS_STORAGE
from auditor.audit_folder.checksum import CHECKSUM_KEY
from auditor.audit_folder.embeddings import name_embeddings_file
from auditor.audit_folder.folder import Folder
from auditor.corpus.corpus_files import digest
from auditor.sweep.sweep_events import ShardReport
from auditor.workers.process_pool import Engine

UidHashes = npt.NDArray[np.uint64]


class DistinctUids:
    """Replaces repeated uids in the tables of one shard, which come one after another."""

    def __init__(self, shard: str, used_uids: Sequence[str] = ()) -> None:
        self.shard = shard
        self.used_uids = set(used_uids)
        self.rows = 0
        self.changed = 0

    def separate(self, table: pa.Table) -> pa.Table:
        """The table with new uids in the rows whose uids were used before."""
        column = table.schema.get_field_index("uid")
        uids: list[str] = table.column(column).to_pylist()
        for number, uid in enumerate(uids):
            if uid in self.used_uids:
                self.changed += 1
                uids[number] = digest(f"{uid} {self.shard} {self.rows + number}".encode())
            self.used_uids.add(uids[number])
        self.rows += len(uids)
        return table.set_column(column, table.schema.field(column), pa.array(uids, pa.string()))

    def describe_changes(self, owner: str) -> tuple[str, ...]:
        """Notes for the shard's report; `owner` names the rows that had the uids first."""
        if not self.changed:
            return ()
        return (f"{self.changed:,} of its rows had the uid of {owner}, and have another one here",)


def separate_shards(folder: Folder, shards: Sequence[str], engine: Engine) -> dict[str, ShardReport]:
    """Rewrite the files of shards that repeat uids of shards before them; return their new reports by shard."""
    hashes = list(engine.each(partial(read_uid_hashes, folder), shards)) if len(shards) > 1 else []
    values, counts = np.unique(np.concatenate([np.zeros(0, np.uint64), *hashes]), return_counts=True)
    repeated = values[counts > 1]
    used_uids: set[str] = set()
    reports = {}
    for shard, shard_hashes in zip(shards, hashes, strict=False):
        if np.isin(shard_hashes, repeated).any():
            uids = set(folder.read_table(name_embeddings_file(shard), ["uid"]).column(0).to_pylist())
            if not uids.isdisjoint(used_uids):
                reports[shard] = separate_shard(folder, shard, sorted(used_uids & uids))
            used_uids |= uids
    return reports


def read_uid_hashes(folder: Folder, shard: str) -> UidHashes:
    uids = folder.read_table(name_embeddings_file(shard), ["uid"]).column(0).to_pylist()
    halves = np.frombuffer(bytes.fromhex("".join(uids)), np.uint64).reshape(-1, 2)
    return np.asarray(halves[:, 0] ^ halves[:, 1])


def separate_shard(folder: Folder, shard: str, used_uids: Sequence[str]) -> ShardReport:
    name = name_embeddings_file(shard)
    metadata, distinct = folder.table_metadata(name), DistinctUids(shard, used_uids)
    table = distinct.separate(folder.read_table(name))
    report = ShardReport(**json.loads(metadata["report"]))
    report = replace(report, problems=(*report.problems, *distinct.describe_changes("a row of an earlier shard")))
    metadata = {**metadata, "report": json.dumps(asdict(report))}
    metadata.pop(CHECKSUM_KEY, None)
    folder.write_table(name, table, metadata, EMBEDDINGS_STORAGE)
    return report
