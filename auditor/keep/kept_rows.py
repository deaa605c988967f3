"""The usable rows of an audit that meet all rules: their SQL, counts, shards, and the reasons of removed rows."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cached_property

import pyarrow as pa

from auditor.corpus.raw_samples import KeptShard
from auditor.corpus.shard import CorpusOptions, load_saved_options
from auditor.errors import AuditorError
from auditor.keep.caption_changes import CaptionChanges, read_caption_changes
from auditor.keep.rule_effects import build_clauses, build_reason_sql, conjoin_clauses
from auditor.query.database import AuditDatabase
from auditor.query.row_queries import count_matching_media
from auditor.query.rules import Rules
from auditor.query.sandbox import Sandbox

MEDIUM = "shard, key, media_path, media_offset"
CAPTION_COLUMNS = {  # of a KeptShard: lists of the kept captions, and the SQL of their items
    "captions": "exported",
    "changes": "nullif(exported, caption)",  # the captions that differ from the audited ones
    "sources": "caption_source",
    "numbers": "caption_index",
    "uids": "uid",
    "starts": '"start"',
    "ends": '"end"',
}


class KeptRows:
    """The rows of an audit that rules, and further clauses by name, keep."""

    def __init__(self, database: AuditDatabase, rules: Rules, **clauses: str) -> None:
        self.database, self.rules = database, rules
        self.changes = read_caption_changes(database, rules)  # an edit that is made later is for the next export
        self.clauses = {**build_clauses(database, rules, self.changes), **clauses}
        self.condition = conjoin_clauses(self.clauses)
        # a view that exists in every sandbox, because exports open one of their own; further conditions may follow
        self.from_clause = f"{database.stored_table(self.condition)} WHERE {self.condition}"

    @cached_property
    def count(self) -> int:
        """Number of rows kept: pairs of a medium and a caption."""
        return self.count_where("TRUE")

    @cached_property
    def media(self) -> int:
        """Number of media kept with at least one caption."""
        return count_matching_media(self.database, self.condition)

    @cached_property
    def unscored(self) -> int:
        return self.count_where("p_mismatch IS NULL") if self.usable_unscored else 0

    @cached_property
    def usable_unscored(self) -> int:
        """Number of usable rows without p_mismatch, kept or not."""
        sql = "SELECT count(*) AS n FROM measured WHERE status = 'ok' AND p_mismatch IS NULL"
        return int(self.database.rows(sql)[0]["n"])

    @cached_property
    def sources(self) -> dict[str, int]:
        """Number of kept captions of each source, the largest first; empty if the corpus has one source."""
        count_all = f"SELECT count(caption_source) FROM {self.database.table('caption_source')}"
        if not self.database.cached("captions with a source", lambda: self.database.value(count_all)):
            return {}
        rows = self.database.rows(
            f"SELECT caption_source AS source, count(*) AS n FROM {self.from_clause} AND caption_source IS NOT NULL "
            "GROUP BY source ORDER BY n DESC, source"
        )
        return {row["source"]: row["n"] for row in rows}

    def describe_sources(self) -> str:
        """Say how many captions of each source are kept; empty if the corpus has one source."""
        counts = ", ".join(f"{source} {count:,}" for source, count in self.sources.items())
        return f"sources of the kept captions: {counts}" if counts else ""

    def count_where(self, condition: str) -> int:
        return int(self.database.rows(f"SELECT count(*) AS n FROM {self.from_clause} AND {condition}")[0]["n"])

    def __len__(self) -> int:
        return self.count

    def digest_rows(self) -> int:
        """A number that changes with the kept rows and the captions that are written."""
        values = ["uid", "caption_index", *([self.changes.caption] if self.changes else [])]
        sql = f"SELECT bit_xor(hash({', '.join(values)})) AS digest FROM {self.from_clause}"
        return int(self.database.rows(sql)[0]["digest"] or 0)

    def open_sandbox(self, *writable: str) -> closing[Sandbox]:
        """A sandbox without a time limit, for exports; a COPY can write to the paths in `writable`."""
        limits = replace(self.database.limits, seconds=None)
        sandbox = self.database.open_sandbox(writable, limits, self.condition)
        self.changes.define(sandbox)
        return closing(sandbox)

    def stream(self, sql: str, batch: int = 100_000) -> Iterator[pa.RecordBatch]:
        """Yield the result of SQL in batches, without a time limit."""
        with self.open_sandbox() as sandbox:
            yield from sandbox.stream(sql, batch)

    @property
    def columns(self) -> list[str]:
        """All columns of an export."""
        return self.changes.columns(self.database.columns)

    def select_sql(self, columns: Sequence[str]) -> str:
        names = [self.changes.select(column) or self.database.column(column, "columns") for column in columns]
        return f"SELECT {', '.join(names)} FROM reviewed AS samples WHERE {self.condition}"

    @cached_property
    def change_counts(self) -> dict[str, int]:
        """How many kept captions are edited by hand, lose parts, or lose their preamble; empty if none can change."""
        return self.changes.count(self.database, self.from_clause)

    def list_kinds(self) -> list[str]:
        rows = self.database.rows(f"SELECT DISTINCT kind FROM {self.from_clause} ORDER BY kind")
        return [row["kind"] for row in rows]

    def column(self, name: str) -> pa.ChunkedArray:
        return self.database.run(f"SELECT {self.database.column(name)} FROM {self.from_clause}").column(0)

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
        media = f"SELECT DISTINCT {MEDIUM} FROM {self.from_clause}"
        rows = self.database.rows(f"SELECT shard, count(*) AS n FROM ({media}) GROUP BY shard ORDER BY shard")
        return [(row["shard"], row["n"]) for row in rows]

    def with_media(self) -> list[tuple[str, int]]:
        """`by_shard`, or an error if kept rows have no media."""
        if without := self.count_where("media_path IS NULL"):
            raise AuditorError(
                f"{without:,} of the kept rows have embeddings but no media: write .npy, .parquet or .txt instead"
            )
        return self.by_shard()

    def shard(self, shard: str) -> KeptShard:
        """The kept samples of one shard in corpus order; reads one file of the audit."""
        return fetch_kept_shard(self.database, self.condition, shard, self.changes)


def fetch_kept_shard(database: AuditDatabase, condition: str, shard: str, changes: CaptionChanges) -> KeptShard:
    """Fetch the kept samples of a shard; `measured`, `extended` and `reviewed` are limited to its rows."""
    captions = ", ".join(
        f"list({column} ORDER BY caption_index) FILTER (is_kept) AS {name}" for name, column in CAPTION_COLUMNS.items()
    )
    swept = bool((database.manifest.get("model") or {}).get("spec"))  # stored embeddings bring digests of their own
    digest = "any_value(media_digest)" if swept else "CAST(NULL AS VARCHAR)"
    shard_view = database.view(database.files.shard(shard), extended=database.reads_extra_columns(condition))
    table = database.run(
        f"WITH measured AS ({shard_view}), "
        "extended AS (SELECT * FROM measured), "
        "reviewed AS (SELECT * FROM measured LEFT JOIN verdicts USING (uid, caption_index)), "
        f"decided AS (SELECT *, coalesce({condition}, FALSE) AS is_kept, {changes.caption} AS exported "
        "FROM reviewed AS samples) "
        f"SELECT key, media_path, media_offset, any_value(media_size) AS media_size, "
        f'{digest} AS media_digest, {captions}, count(*) AS "of" '
        "FROM decided GROUP BY key, media_path, media_offset HAVING bool_or(is_kept) "
        "ORDER BY media_path, media_offset, key"
    )
    return KeptShard(shard, table, database.places, load_corpus_options(database))


def load_corpus_options(database: AuditDatabase) -> CorpusOptions:
    places = database.places
    options = load_saved_options(database.manifest.get("corpus", {}))
    return replace(options, media_root=places.roots[1:], follow_links=places.follow_links)
