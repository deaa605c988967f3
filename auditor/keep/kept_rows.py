"""The usable rows of an audit that meet all rules: their SQL, counts, shards, and the reasons of removed rows."""

from collections.abc import Sequence
from dataclasses import fields
from functools import cached_property

import pyarrow as pa

from auditor.corpus.raw_samples import KeptShard
from auditor.corpus.shard import CorpusOptions
from auditor.errors import AuditorError
from auditor.keep.rule_effects import RuleClause, build_clauses, build_reason_sql, conjoin_clauses
from auditor.query.database import AuditDatabase
from auditor.query.row_queries import count_matching_media
from auditor.query.rules import Rules

MEDIUM = "shard, key, media_path, media_offset"


class KeptRows:
    """The rows of an audit that rules keep."""

    def __init__(self, database: AuditDatabase, rules: Rules) -> None:
        self.database, self.rules = database, rules
        self.clauses: list[RuleClause] = build_clauses(database, rules)
        self.condition = conjoin_clauses(self.clauses)

    def narrow(self, clause: RuleClause) -> "KeptRows":
        """The kept rows that also meet another clause."""
        other = KeptRows(self.database, self.rules)
        other.clauses = [*self.clauses, clause]
        other.condition = conjoin_clauses(other.clauses)
        return other

    @property
    def source(self) -> str:
        return self.database.stored_table(self.condition)  # exports read it in a sandbox of their own

    @cached_property
    def count(self) -> int:
        """Number of rows kept: pairs of a medium and a caption."""
        return self._count(f"{self.source} WHERE {self.condition}")

    @cached_property
    def media(self) -> int:
        """Number of media kept with at least one caption."""
        return count_matching_media(self.database, self.condition)

    @cached_property
    def unscored(self) -> int:
        """Number of rows kept without p_mismatch."""
        return self._count(f"{self.source} WHERE {self.condition} AND p_mismatch IS NULL")

    @cached_property
    def usable_unscored(self) -> int:
        """Number of usable rows without p_mismatch, kept or not."""
        return self._count("measured WHERE status = 'ok' AND p_mismatch IS NULL")

    def _count(self, source: str) -> int:
        count: int = self.database.rows(f"SELECT count(*) AS n FROM {source}")[0]["n"]
        return count

    def __len__(self) -> int:
        return self.count

    def select_sql(self, columns: Sequence[str]) -> str:
        """SQL that selects columns of the kept rows."""
        names = ", ".join(self.database.column(column, "columns") for column in columns)
        return f"SELECT {names} FROM reviewed AS samples WHERE {self.condition}"

    def list_kinds(self) -> list[str]:
        """The kinds of media of the kept rows."""
        rows = self.database.rows(f"SELECT DISTINCT kind FROM {self.source} WHERE {self.condition} ORDER BY kind")
        return [row["kind"] for row in rows]

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
        """SQL expression of the reason why a row is not kept."""
        return build_reason_sql(self.clauses)

    def by_shard(self) -> list[tuple[str, int]]:
        """The shards of the audit in order, with the number of samples kept in each."""
        rows = self.database.rows(
            f"SELECT shard, count(*) AS n FROM (SELECT DISTINCT {MEDIUM} "
            f"FROM {self.source} WHERE {self.condition}) GROUP BY shard ORDER BY shard"
        )
        return [(row["shard"], row["n"]) for row in rows]

    def with_media(self) -> list[tuple[str, int]]:
        """`by_shard`, or an error if kept rows have no media."""
        without = self._count(f"{self.source} WHERE {self.condition} AND media_path IS NULL")
        if without:
            raise AuditorError(
                f"{without:,} of the kept rows have embeddings but no media: write .npy, .parquet or .txt instead"
            )
        return self.by_shard()

    def shard(self, shard: str) -> KeptShard:
        """The kept samples of one shard in corpus order; reads one file of the audit."""
        return fetch_kept_shard(self.database, self.condition, shard)


def fetch_kept_shard(database: AuditDatabase, condition: str, shard: str) -> KeptShard:
    """Fetch the kept samples of a shard; `measured`, `extended` and `reviewed` are limited to its rows."""
    captions = ", ".join(
        f"list({column} ORDER BY caption_index) FILTER (is_kept) AS {name}"
        for column, name in (
            ("caption", "captions"),
            ("caption_index", "numbers"),
            ("uid", "uids"),
            ('"start"', "starts"),
            ('"end"', "ends"),
        )
    )
    shard_view = database.view(database.files.shard(shard), extended=database.reads_extra_columns(condition))
    table = database.run(
        f"WITH measured AS ({shard_view}), "
        "extended AS (SELECT * FROM measured), "
        "reviewed AS (SELECT * FROM measured LEFT JOIN verdicts USING (uid, caption_index)), "
        f"decided AS (SELECT *, coalesce({condition}, FALSE) AS is_kept FROM reviewed AS samples) "
        f'SELECT key, media_path, media_offset, any_value(media_size) AS media_size, {captions}, count(*) AS "of" '
        "FROM decided GROUP BY key, media_path, media_offset HAVING bool_or(is_kept) "
        "ORDER BY media_path, media_offset, key"
    )
    return KeptShard(shard, table, database.moved_to, database.old_root, load_corpus_options(database))


def load_corpus_options(database: AuditDatabase) -> CorpusOptions:
    """The options with which the corpus was read when it was audited."""
    saved = database.manifest.get("corpus", {})
    names = {field.name for field in fields(CorpusOptions)}
    return CorpusOptions(**{name: value for name, value in saved.items() if name in names and value is not None})
