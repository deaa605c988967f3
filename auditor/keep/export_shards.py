"""Write the kept samples of a corpus as new WebDataset shards: streamed, balanced and resumable.

The audit alone determines the shard of every sample before the first byte is written, and a shard gets its name only
when it is complete. So after an interruption the same command resumes with the first missing shard.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from auditor.audit_folder.folder import Folder
from auditor.audit_folder.lock import hold_folder_lock
from auditor.corpus.raw_samples import OWN_FIELDS, read_kept_samples
from auditor.corpus.read_medium import relocate_path, strip_fragment
from auditor.corpus.shard_writer import PortableTar
from auditor.errors import explain_interrupt
from auditor.keep.export_plan import PLAN, SAME, check_export_folder, prepare_export, read_export_plan, stamp_file
from auditor.keep.export_target import ExportError, ExportResult, Progress, copy_to_parquet, open_unlimited_sandbox
from auditor.keep.kept_rows import KeptRows

REMOVED = "removed.parquet"
REMOVED_COLUMNS = (
    'uid, key, caption_index, shard, kind, caption, "start", "end", status, error_message, similarity, '
    "uncertainty_visual, uncertainty_text, p_mismatch, duplicate_of"
)


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """Sample i of `total` goes to shard i * shards // total; sizes differ by at most one."""

    total: int
    shards: int

    def shard_of(self, sample: int) -> int:
        return sample * self.shards // self.total

    def first(self, shard: int) -> int:
        return -(-shard * self.total // self.shards)

    def name(self, shard: int) -> str:
        return f"{shard:0{max(5, len(str(self.shards - 1)))}d}.tar"


def export_shards(
    subset: KeptRows,
    folder: Folder,
    *,
    shard_size: int,
    force: bool = False,
    progress: Progress | None = None,
    part: bool = False,
) -> ExportResult:
    """Write shards to `folder`, and removed.parquet with the reason for every row that is not kept.

    As `part` of a larger export, only shards are written, and a complete folder is accepted.
    """
    if shard_size < 1:
        raise ExportError("--shard-size must be at least 1")
    sources = subset.with_media()
    total = sum(count for _, count in sources)
    plan = ShardPlan(total, -(-total // shard_size))
    check_export_folder(folder)
    with hold_folder_lock(folder), explain_interrupt(lambda: explain_resume(folder, plan)):
        description = describe_export(subset, sources, shard_size)
        if not part or not is_export_complete(folder, description):
            folder.sweep_temporary("")
            prepare_export(folder, description, force, (REMOVED,))
            written = {int(name) for name in folder.names("", ".tar") if name.isdecimal()}
            write_missing_shards(subset, folder, plan, sources, written, progress)
            if describe_export(subset, sources, shard_size) != description:
                raise ExportError(
                    f"the corpus changed while it was read, so {folder.url} is not finished; --force starts over"
                )
            if not part:
                write_removed_rows(subset, folder)
            folder.write_json(PLAN, {**description, "state": "complete", "samples": plan.total, "shards": plan.shards})
    return ExportResult(folder.url, "webdataset", plan.total, plan.shards, subset.count)


def write_removed_rows(subset: KeptRows, folder: Folder) -> None:
    """Write the rows that are not kept, each with its reason."""
    removed = f"SELECT {REMOVED_COLUMNS}, {subset.reasons} AS reason FROM reviewed AS samples"
    copy_to_parquet(subset, folder, REMOVED, f"{removed} WHERE NOT coalesce({subset.condition}, FALSE)")


def is_export_complete(folder: Folder, description: dict[str, Any]) -> bool:
    """Whether this export is already complete."""
    plan = read_export_plan(folder)
    return plan.get("state") == "complete" and all(plan.get(key) == description[key] for key in SAME)


def explain_resume(folder: Folder, plan: ShardPlan) -> str:
    count = len(folder.names("", ".tar"))
    return f"{count:,} of {plan.shards:,} shards are written; run the same command again to resume"


def describe_export(subset: KeptRows, sources: list[tuple[str, int]], shard_size: int) -> dict[str, Any]:
    """The plan of this export, with a fingerprint that distinguishes it from others."""
    content = json.dumps([subset.condition, sources, subset.count, stamp_corpus_files(subset)]).encode()
    return {
        "audit": subset.database.path,
        "rules": subset.rules.to_dict(),
        "shard_size": shard_size,
        "fingerprint": hashlib.blake2b(content, digest_size=16).hexdigest(),
    }


def stamp_corpus_files(subset: KeptRows) -> list[tuple[str, int, int]]:
    """The size and modification time of every local file that is read."""
    # cells of a table share the table's file; file names may contain a # of their own
    cell = "regexp_replace(media_path, '#column=[^&#]*&row=[0-9]+$', '')"
    sql = f"SELECT DISTINCT {cell} AS path FROM {subset.source} WHERE {subset.condition} ORDER BY path"
    root, old_root = subset.database.moved_to, subset.database.old_root
    stamps = []
    with open_unlimited_sandbox(subset) as sandbox:
        for batch in sandbox.stream(sql):
            paths = [strip_fragment(path) for path in batch.column(0).to_pylist() if path]
            local_paths = [relocate_path(path, root, old_root) if root else path for path in paths]
            stamps += [stamp_file(path) for path in local_paths if "://" not in path]
    return stamps


def write_missing_shards(
    subset: KeptRows,
    folder: Folder,
    plan: ShardPlan,
    sources: list[tuple[str, int]],
    written: set[int],
    progress: Progress | None,
) -> None:
    """Read the corpus once; sources whose samples are all in finished shards are not opened."""
    with ShardSequenceWriter(folder, plan) as writer:
        for index, sample in read_missing_samples(subset, plan, sources, written):
            writer.write(plan.shard_of(index), sample)
            if progress:
                progress(1)


def read_missing_samples(
    subset: KeptRows, plan: ShardPlan, sources: list[tuple[str, int]], written: set[int]
) -> Iterator[tuple[int, dict[str, Any]]]:
    start = 0
    for shard, count in sources:
        missing = [i for i in range(start, start + count) if plan.shard_of(i) not in written]
        if missing:
            rows = subset.shard(shard)
            # finished shards are contiguous, so the missing samples of a source are read range by range
            for first, last in find_ranges(missing):
                samples = read_kept_samples(rows.slice(first - start, last + 1 - start))
                yield from zip(range(first, last + 1), samples, strict=True)
        start += count


def find_ranges(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """[1, 2, 3, 7, 8] -> (1, 3), (7, 8)"""
    first = last = numbers[0]
    for number in numbers[1:]:
        if number != last + 1:
            yield first, last
            first = number
        last = number
    yield first, last


class ShardSequenceWriter:
    """Writes samples to consecutive shards; a shard gets its name when the next one begins."""

    def __init__(self, folder: Folder, plan: ShardPlan) -> None:
        self.folder, self.plan = folder, plan
        self.current: int | None = None
        self.tar: PortableTar | None = None
        self.open_file = ExitStack()

    def __enter__(self) -> "ShardSequenceWriter":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.finish(kind, error, trace)

    def finish(self, kind: Any = None, error: Any = None, trace: Any = None) -> None:
        """Close the tar and give the file its name; after an error, delete the unfinished file."""
        if self.tar is not None:
            self.tar.close()
            self.tar = None
        self.open_file.__exit__(kind, error, trace)
        self.open_file = ExitStack()

    def write(self, shard: int, sample: dict[str, Any]) -> None:
        if shard != self.current:
            self.finish()
            path = self.open_file.enter_context(self.folder.writing(self.plan.name(shard)))
            self.tar = PortableTar(path)
            self.current = shard
        assert self.tar is not None
        members = {extension: data for extension, data in sample.items() if extension not in OWN_FIELDS}
        self.tar.add(sample["__key__"], members)
