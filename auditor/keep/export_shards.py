"""Write the kept samples of a corpus as new WebDataset shards: streamed, balanced and resumable.

The audit alone determines the shard of every sample before the first byte is written, and a shard gets its name only
when it is complete. So after an interruption the same command resumes with the first missing shard.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from auditor.audit_folder.folder import Folder
from auditor.audit_folder.lock import hold_folder_lock
from auditor.corpus.raw_samples import OWN_FIELDS, read_kept_samples
from auditor.corpus.shard_writer import PortableTar
from auditor.errors import explain_interrupt
from auditor.keep.export_target import (
    PLAN,
    SAME,
    ExportError,
    ExportResult,
    Progress,
    check_export_folder,
    copy_to_parquet,
    fingerprint_export,
    prepare_export,
    read_export_plan,
    stamp_media_files,
)
from auditor.keep.kept_rows import KeptRows

REMOVED = "removed.parquet"
REMOVED_COLUMNS = (
    'uid, key, caption_index, shard, kind, caption, caption_source, "start", "end", status, error_message, similarity, '
    "uncertainty_visual, uncertainty_text, p_mismatch, duplicate_of"
)


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """Sample i of `total` goes to shard i * shards // total; sizes differ by at most one."""

    total: int
    shards: int

    def shard_of(self, sample: int) -> int:
        return sample * self.shards // self.total

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
        previous = read_export_plan(folder) if part else {}
        if previous.get("state") != "complete" or any(previous.get(key) != description[key] for key in SAME):
            folder.sweep_temporary("")
            prepare_export(folder, description, force, (REMOVED,))
            write_missing_shards(subset, folder, plan, sources, progress)
            if describe_export(subset, sources, shard_size) != description:
                raise ExportError(
                    f"the corpus changed while it was read, so {folder.url} is not finished; --force starts over"
                )
            if not part:
                write_removed_rows(subset, folder)
            folder.write_json(PLAN, {**description, "state": "complete", "samples": plan.total, "shards": plan.shards})
    return ExportResult(folder.url, "webdataset", plan.total, plan.shards, subset.count, subset.change_counts)


def write_removed_rows(subset: KeptRows, folder: Folder) -> None:
    removed = f"SELECT {REMOVED_COLUMNS}, {subset.reasons} AS reason FROM reviewed AS samples"
    copy_to_parquet(subset, folder, REMOVED, f"{removed} WHERE NOT coalesce({subset.condition}, FALSE)")


def explain_resume(folder: Folder, plan: ShardPlan) -> str:
    count = len(folder.names("", ".tar"))
    return f"{count:,} of {plan.shards:,} shards are written; run the same command again to resume"


def describe_export(subset: KeptRows, sources: list[tuple[str, int]], shard_size: int) -> dict[str, Any]:
    rows = subset.count, subset.digest_rows()  # the same rules choose other rows once the audit is scored again
    contents = subset.condition, sources, rows, stamp_corpus_files(subset), subset.changes.identity
    return {
        "audit": subset.database.path,
        "rules": subset.rules.to_dict(),
        "shard_size": shard_size,
        "fingerprint": fingerprint_export(*contents),
    }


def stamp_corpus_files(subset: KeptRows) -> list[tuple[str, int, int]]:
    """The size and modification time of every local file that is read."""
    # cells of a table share the table's file; file names may contain a # of their own
    cell = "regexp_replace(media_path, '#column=[^&#]*&row=[0-9]+$', '')"
    batches = subset.stream(f"SELECT DISTINCT {cell} AS path FROM {subset.from_clause} ORDER BY path")
    return [stamp for batch in batches for stamp in stamp_media_files(subset.database, batch.column(0).to_pylist())]


def write_missing_shards(
    subset: KeptRows, folder: Folder, plan: ShardPlan, sources: list[tuple[str, int]], progress: Progress | None
) -> None:
    """Read the corpus once; sources whose samples are all in finished shards are not opened."""
    written = {int(name) for name in folder.names("", ".tar") if name.isdecimal()}
    samples = read_missing_samples(subset, plan, sources, written)
    for shard, shard_samples in groupby(samples, lambda sample: plan.shard_of(sample[0])):
        with folder.writing(plan.name(shard)) as path, PortableTar(path) as tar:
            for _, sample in shard_samples:
                members = {extension: data for extension, data in sample.items() if extension not in OWN_FIELDS}
                tar.add(sample["__key__"], members)
                if progress:
                    progress(1)


def read_missing_samples(
    subset: KeptRows, plan: ShardPlan, sources: list[tuple[str, int]], written: set[int]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the samples that are in no written shard, each with its number."""
    start = 0
    for shard, count in sources:
        numbers = range(start, start + count)
        for is_written, group in groupby(numbers, lambda number: plan.shard_of(number) in written):
            if not is_written:
                missing = list(group)
                rows = subset.shard(shard).slice(missing[0] - start, missing[-1] + 1 - start)
                yield from zip(missing, read_kept_samples(rows), strict=True)
        start += count
