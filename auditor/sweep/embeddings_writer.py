"""Writes a shard's embeddings file piece by piece, counts its rows, and publishes it complete or not at all."""

import contextlib
import json
import time
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from auditor.audit_folder import arrow_schema, extra_columns
from auditor.audit_folder.checksum import CHECKSUM_KEY, EMPTY_CHECKSUM, write_checksum
from auditor.audit_folder.embeddings import name_embeddings_file
from auditor.audit_folder.folder import Folder, StorageError, describe_os_error
from auditor.corpus.shard import Shard
from auditor.errors import AuditorError
from auditor.sweep.distinct_uids import DistinctUids
from auditor.sweep.sweep_events import ShardReport, ShardStart, Watch, count_errors

READINGS = 3  # of a shard that changes while it is read, before it counts as failed
CHANGED = "it changed each time while it was read; wait until nobody writes it and run the same command again"


class CountError(AuditorError):
    """Fewer rows than keys: an audit must never accept that."""


class DiscardedError(Exception):
    """Passes through the writing context so that nothing is published."""


def find_finished_report(folder: Folder, shard: Shard, settings: str) -> ShardReport | None:
    """The report of a shard that was swept before, from the same content and with the same settings."""
    name = name_embeddings_file(shard.name)
    metadata = folder.table_metadata(name)
    try:
        if metadata.get("settings") != settings or metadata.get("fingerprint") != shard.fingerprint():
            return None
    except (AuditorError, OSError):  # the shard is gone; sweeping it reports that
        return None
    if folder.local and folder.is_sound(name) is False:  # an object store has its own checksums
        return None
    return ShardReport(**json.loads(metadata["report"]))


class EmbeddingsFile:
    """embeddings/<shard>.parquet while it grows; it is invisible until `publish`."""

    def __init__(self, folder: Folder, start: ShardStart, dim: int, settings: str):
        self.folder, self.start, self.settings = folder, start, settings
        self.start_time = time.monotonic()
        self.keys = 0
        self.carried: pa.Table | None = None  # columns of the corpus, one row for each row of the shard
        self.status: Counter[str] = Counter()
        self.new_rows: list[pa.Table] = []  # that `publish` writes, if an earlier sweep has written others
        self.old_rows = None if start.old_row_mask is None else folder.read_table(name_embeddings_file(start.shard))
        self.uids = DistinctUids(start.shard, self.old_rows["uid"].to_pylist() if self.old_rows else ())
        self.schema = arrow_schema.build_embeddings_schema(dim)
        with contextlib.ExitStack() as cleanup:  # an error in this block leaves no file behind
            self.path: Path = cleanup.enter_context(folder.writing(name_embeddings_file(start.shard)))
            cleanup.push(self._write_checksum)
            writer = pq.ParquetWriter(self.path, self.schema, **arrow_schema.EMBEDDINGS_STORAGE)
            self.writer = cleanup.enter_context(writer)
            self.cleanup = cleanup.pop_all()

    def write(self, table: pa.Table, keys: int, watch: Watch) -> None:
        self.count_rows(self.write_rows(table), keys, watch)

    def write_rows(self, table: pa.Table) -> pa.Table:
        """Write rows, and return them as they were written."""
        if self.start.own_uids:
            table = self.uids.separate(table)
        try:
            if self.start.old_row_mask is None:
                self.writer.write_table(table)
            else:
                self.new_rows.append(table)
        except OSError as error:
            raise StorageError(f"cannot write {self.path}: {describe_os_error(error)}") from error
        return table

    def count_rows(self, table: pa.Table, keys: int, watch: Watch) -> None:
        status = Counter(table.column("status").to_pylist())
        self.status.update(status)
        self.keys += keys
        watch(table.num_rows, count_errors(status))

    def publish(self) -> ShardReport:
        """Check the number of samples, then move the file into place."""
        if self.keys != self.start.keys:
            self.discard()
            raise CountError(f"shard {self.start.shard}: {self.start.keys} keys but {self.keys} samples accounted for")
        report = ShardReport(
            self.start.shard,
            self.keys,
            dict(self.status),
            (*self.start.problems, *self.uids.describe_changes("an earlier row of it")),
            time.monotonic() - self.start_time,
            own_uids=self.start.own_uids,
        )
        if self.start.old_row_mask is not None:
            report = self._add_old_rows(self.start.old_row_mask, report)
        metadata = {"fingerprint": self.start.fingerprint, "settings": self.settings}
        metadata |= {"report": json.dumps(asdict(report)), CHECKSUM_KEY: EMPTY_CHECKSUM}
        self.writer.add_key_value_metadata(metadata)
        extra_columns.remove_shard_columns(self.folder, self.start.shard)  # they belong to the rows of an earlier sweep
        if self.carried is not None:
            extra_columns.write_columns(self.folder, extra_columns.CARRIED, self.start.shard, self.carried)
        self.cleanup.close()
        return report

    def _add_old_rows(self, mask: npt.NDArray[np.bool_], report: ShardReport) -> ShardReport:
        """Write the old and the new rows in the order of the shard."""
        order = np.argsort(np.argsort(~mask, kind="stable"))
        table = pa.concat_tables([self.old_rows, *self.new_rows]).take(order)
        self.writer.write_table(table, row_group_size=1024)
        old = json.loads(self.folder.table_metadata(name_embeddings_file(report.shard))["report"])
        status, seconds = dict(Counter(table["status"].to_pylist())), report.seconds + old["seconds"]
        return replace(report, keys=report.keys + old["keys"], status=status, seconds=seconds)

    def _write_checksum(self, kind: type[BaseException] | None, *_: object) -> None:
        """Runs after the writer is closed and before the file gets its final name."""
        if kind is None:
            write_checksum(self.path)

    def discard(self) -> None:
        """Leave no file behind; no effect after `publish`."""
        self.cleanup.__exit__(DiscardedError, DiscardedError(), None)
