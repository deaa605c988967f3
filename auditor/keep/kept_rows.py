"""The usable rows of an audit that meet all rules, as SQL: counted, by shard, and with the reason of those removed."""

from functools import cached_property

import pyarrow as pa

from auditor.corpus.raw_samples import KeptShard
from auditor.keep.effects import Clause, all_of, clauses, reason_sql
from auditor.query.database import AuditDatabase
from auditor.query.rules import Rules


class KeptRows:
    """What rules keep of an audit."""

    def __init__(self, database: AuditDatabase, rules: Rules) -> None:
        self.database, self.rules = database, rules
        self.clauses: list[Clause] = clauses(database, rules)
        self.condition = all_of(self.clauses)

    @property
    def source(self) -> str:
        return self.database.stored_table(self.condition)  # an export reads it in a sandbox of its own

    @cached_property
    def count(self) -> int:
        """Rows kept."""
        found: int = self.database.rows(f"SELECT count(*) AS n FROM {self.source} WHERE {self.condition}")[0]["n"]
        return found

    def __len__(self) -> int:
        return self.count

    def column(self, name: str) -> pa.ChunkedArray:
        """One column of the kept rows."""
        sql = f"SELECT {self.database.column(name)} FROM {self.source} WHERE {self.condition}"
        return self.database.run(sql).column(0)

    @property
    def uids(self) -> pa.ChunkedArray:
        return self.column("uid")

    @property
    def keys(self) -> pa.ChunkedArray:
        return self.column("key")

    @property
    def reasons(self) -> str:
        """SQL of why a row is not kept."""
        return reason_sql(self.clauses)

    def by_shard(self) -> list[tuple[str, int]]:
        """Shards of the audit in order, with how many samples of each are kept (a sample: one key, any caption)."""
        found = self.database.rows(
            "SELECT shard, count(*) AS n FROM (SELECT DISTINCT shard, key, media_path, media_offset "
            f"FROM {self.source} WHERE {self.condition}) GROUP BY shard ORDER BY shard"
        )
        return [(row["shard"], row["n"]) for row in found]

    def shard(self, shard: str) -> KeptShard:
        """The kept samples of one shard, in the order they stand in the corpus; reads one file of the audit."""
        return kept_shard(self.database, self.condition, shard)


def kept_shard(database: AuditDatabase, condition: str, shard: str) -> KeptShard:
    view = database.view(database.files.shard(shard))
    table = database.run(
        "SELECT key, media_path, media_offset, any_value(media_size) AS media_size, "
        "list(caption ORDER BY caption_index) AS captions, list(uid ORDER BY caption_index) AS uids "
        f"FROM (SELECT * FROM ({view}) LEFT JOIN verdicts USING (uid, caption_index)) AS samples "
        f"WHERE {condition} GROUP BY key, media_path, media_offset "
        "ORDER BY media_path, media_offset, key"
    )
    return KeptShard(shard, table, database.moved_to, database.old_root)
