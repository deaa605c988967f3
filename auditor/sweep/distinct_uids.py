"""No two rows of a shard share a uid, though a corpus that names its rows itself may give a name twice.

The first row keeps the name; the others get one of where they stand, and the shard's problems say how many they are.
"""

from collections.abc import Sequence

import pyarrow as pa

from auditor.sweep.sample_rows import digest


class DistinctUids:
    """The uids of a shard as its rows come, piece by piece."""

    def __init__(self, shard: str, taken: Sequence[str] = ()) -> None:
        self.shard = shard
        self.seen = set(taken)
        self.rows = 0
        self.changed = 0

    def separate(self, table: pa.Table) -> pa.Table:
        """The rows with other uids where theirs were seen before."""
        place = table.schema.get_field_index("uid")
        uids: list[str] = table.column(place).to_pylist()
        before = self.changed
        distinct = [self.own(uid, self.rows + number) for number, uid in enumerate(uids)]
        self.rows += len(uids)
        if self.changed == before:
            return table
        return table.set_column(place, table.schema.field(place), pa.array(distinct, pa.string()))

    def own(self, uid: str, row: int) -> str:
        if uid in self.seen:
            self.changed += 1
            uid = digest(f"{uid} {self.shard} {row}".encode())
        self.seen.add(uid)
        return uid

    def problems(self, of: str) -> tuple[str, ...]:
        """`of`: whose uid they had."""
        if not self.changed:
            return ()
        return (f"{self.changed:,} of its rows had the uid of {of}, and have another one here",)
