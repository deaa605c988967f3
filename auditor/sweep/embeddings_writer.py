"""A shard's embeddings file while it is written: piece by piece, counted, and published whole or not at all."""

import contextlib
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from auditor.audit_folder import arrow_schema, extra_columns
from auditor.audit_folder.checksum import KEY, UNSEALED, seal
from auditor.audit_folder.embeddings import file_name
from auditor.audit_folder.folder import Folder, StorageError, reason
from auditor.errors import AuditorError
from auditor.sweep.distinct_uids import DistinctUids

Watch = Callable[[int, int], None]
READINGS = 3  # of a shard that changes while it is read, before it counts as failed
CHANGED = "it changed each time while it was read; wait until nobody writes it and run the same command again"


class CountError(AuditorError):
    """Fewer rows than keys: the one thing an audit must never let pass."""


class DroppedError(Exception):
    """Goes through the writing context so that nothing is published."""


@dataclass(frozen=True, slots=True)
class ShardReport:
    """What became of a shard. `failure` is set where it could not be read; then nothing was written."""

    shard: str
    keys: int = 0
    status: dict[str, int] = field(default_factory=dict)  # rows by status
    problems: tuple[str, ...] = ()
    seconds: float = 0.0
    failure: str | None = None
    own_uids: bool = False  # whether the corpus names rows itself, and so may give a name twice

    @property
    def rows(self) -> int:
        return sum(self.status.values())


@dataclass(frozen=True, slots=True)
class Begin:
    """A shard was opened: what it is and how many samples must come out of it."""

    shard: str
    fingerprint: str
    keys: int
    problems: tuple[str, ...]
    own_uids: bool = False


def errors_in(status: Mapping[str, int]) -> int:
    """Rows that failed here; what was never downloaded is no sign of a wrong corpus or a broken decoder."""
    return sum(count for name, count in status.items() if name not in ("ok", "not_downloaded"))


class EmbeddingsFile:
    """embeddings/<shard>.parquet as it grows; nobody sees it before `publish`."""

    def __init__(self, folder: Folder, begin: Begin, dim: int, settings: str):
        self.folder, self.begin, self.settings = folder, begin, settings
        self.started = time.monotonic()
        self.keys = 0
        self.carried: pa.Table | None = None  # columns of the corpus, a row for each row of the shard
        self.status: Counter[str] = Counter()
        self.uids = DistinctUids(begin.shard)
        self.schema = arrow_schema.embeddings(dim)
        with contextlib.ExitStack() as cleanup:  # what fails in here leaves nothing, in the words of `writing`
            self.path: Path = cleanup.enter_context(folder.writing(file_name(begin.shard)))
            cleanup.push(self._seal)
            writer = pq.ParquetWriter(self.path, self.schema, **arrow_schema.EMBEDDINGS_STORAGE)
            self.writer = cleanup.enter_context(writer)
            self.cleanup = cleanup.pop_all()

    def write(self, table: pa.Table, keys: int, watch: Watch) -> None:
        """Rows of `keys` samples with their vectors."""
        if self.begin.own_uids:
            table = self.uids.separate(table)
        try:
            self.writer.write_table(table)
        except OSError as error:
            raise StorageError(f"cannot write {self.path}: {reason(error)}") from error
        found = Counter(table.column("status").to_pylist())
        self.status.update(found)
        self.keys += keys
        watch(table.num_rows, errors_in(found))

    def publish(self) -> ShardReport:
        """Check the count, then put the file in its place."""
        if self.keys != self.begin.keys:
            self.discard()
            raise CountError(f"shard {self.begin.shard}: {self.begin.keys} keys but {self.keys} samples accounted for")
        report = ShardReport(
            self.begin.shard,
            self.keys,
            dict(self.status),
            (*self.begin.problems, *self.uids.problems("an earlier row of it")),
            time.monotonic() - self.started,
            own_uids=self.begin.own_uids,
        )
        self.writer.add_key_value_metadata(
            {
                "fingerprint": self.begin.fingerprint,
                "settings": self.settings,
                "report": json.dumps(asdict(report)),
                KEY: UNSEALED,
            }
        )
        extra_columns.remove_shard(self.folder, self.begin.shard)  # what stood beside the rows of an earlier sweep
        if self.carried is not None:
            extra_columns.write_columns(self.folder, extra_columns.CARRIED, self.begin.shard, self.carried)
        self.cleanup.close()
        return report

    def _seal(self, kind: type[BaseException] | None, *_: object) -> None:
        """Between the writer's end and the file's new name."""
        if kind is None:
            seal(self.path)

    def discard(self) -> None:
        """Leave nothing behind; no effect on a file that was published."""
        dropped = DroppedError()
        self.cleanup.__exit__(DroppedError, dropped, None)
