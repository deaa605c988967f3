"""Write the kept samples of a corpus as new WebDataset shards, streamed, balanced, and resumable after a kill.

Which sample goes into which shard is decided before the first byte is written, from the audit alone, and a shard
appears under its name only when it is whole. So after a kill the same command goes on with the first one missing.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from auditor.audit_folder.folder import Folder
from auditor.audit_folder.lock import exclusive
from auditor.corpus.raw_samples import OWN_FIELDS, read_kept
from auditor.corpus.read_medium import moved, without_fragment
from auditor.corpus.shard_writer import PortableTar
from auditor.errors import explain_interrupt
from auditor.keep.export_plan import PLAN, SAME, prepare, read_plan, refuse_before_lock, stamp
from auditor.keep.export_target import Exported, ExportError, Progress, copy_parquet, patient_sandbox
from auditor.keep.kept_rows import KeptRows

REMOVED = "removed.parquet"
REMOVED_COLUMNS = (
    'uid, key, caption_index, shard, kind, caption, "start", "end", status, error_message, similarity, '
    "uncertainty_visual, uncertainty_text, p_mismatch, duplicate_of"
)


@dataclass(frozen=True, slots=True)
class Plan:
    """Sample i of `total` goes into shard i * shards // total: sizes differ by one at most."""

    total: int
    shards: int

    def shard_of(self, sample: int) -> int:
        return sample * self.shards // self.total

    def first(self, shard: int) -> int:
        return -(-shard * self.total // self.shards)

    def name(self, shard: int) -> str:
        return f"{shard:0{max(5, len(str(self.shards - 1)))}d}.tar"


def export_shards(
    kept: KeptRows,
    folder: Folder,
    *,
    shard_size: int,
    force: bool = False,
    progress: Progress | None = None,
    part: bool = False,
) -> Exported:
    """New shards in `folder`, and removed.parquet with the reason of every row that is not kept.

    As `part` of a larger export they are shards alone, and where they are complete already that is not refused.
    """
    if shard_size < 1:
        raise ExportError("--shard-size must be at least 1")
    sources = kept.with_media()
    total = sum(count for _, count in sources)
    plan = Plan(total, -(-total // shard_size))
    refuse_before_lock(folder)
    with exclusive(folder), explain_interrupt(lambda: how_to_resume(folder, plan)):
        description = describe(kept, sources, shard_size)
        if not part or not is_complete(folder, description):
            folder.sweep_temporary("")
            prepare(folder, description, force, (REMOVED,))
            done = {int(name) for name in folder.names("", ".tar") if name.isdecimal()}
            write_missing(kept, folder, plan, sources, done, progress)
            if describe(kept, sources, shard_size) != description:
                raise ExportError(
                    f"the corpus has changed while it was read, so {folder.url} is not finished; --force starts anew"
                )
            if not part:
                write_removed(kept, folder)
            folder.write_json(PLAN, {**description, "state": "complete", "samples": plan.total, "shards": plan.shards})
    return Exported(folder.url, "webdataset", plan.total, plan.shards, kept.count)


def write_removed(kept: KeptRows, folder: Folder) -> None:
    """The rows that are not kept, each with its reason."""
    removed = f"SELECT {REMOVED_COLUMNS}, {kept.reasons} AS reason FROM reviewed AS samples"
    copy_parquet(kept, folder, REMOVED, f"{removed} WHERE NOT coalesce({kept.condition}, FALSE)")


def is_complete(folder: Folder, description: dict[str, Any]) -> bool:
    """Whether this very export is there, whole."""
    earlier = read_plan(folder)
    return earlier.get("state") == "complete" and all(earlier.get(key) == description[key] for key in SAME)


def how_to_resume(folder: Folder, plan: Plan) -> str:
    done = len(folder.names("", ".tar"))
    return f"{done:,} of {plan.shards:,} shards are written and stay so: the same command again goes on from there"


def describe(kept: KeptRows, sources: list[tuple[str, int]], shard_size: int) -> dict[str, Any]:
    """What this export is, so that another one is never mixed into it."""
    content = json.dumps([kept.condition, sources, kept.count, stamps(kept)]).encode()
    return {
        "audit": kept.database.path,
        "rules": kept.rules.to_dict(),
        "shard_size": shard_size,
        "fingerprint": hashlib.blake2b(content, digest_size=16).hexdigest(),
    }


def stamps(kept: KeptRows) -> list[tuple[str, int, int]]:
    """Size and time of every local file that is read: a corpus that changes in between gives another export."""
    # of cells of a table, one for the table; a name of a file may have a # of its own
    cell = "regexp_replace(media_path, '#column=[^&#]*&row=[0-9]+$', '')"
    sql = f"SELECT DISTINCT {cell} AS path FROM {kept.source} WHERE {kept.condition} ORDER BY path"
    root, old_root = kept.database.moved_to, kept.database.old_root
    found = []
    with patient_sandbox(kept) as sandbox:
        for batch in sandbox.stream(sql):
            paths = [without_fragment(path) for path in batch.column(0).to_pylist() if path]
            now = [moved(path, root, old_root) if root else path for path in paths]
            found += [stamp(path) for path in now if "://" not in path]
    return found


def write_missing(
    kept: KeptRows,
    folder: Folder,
    plan: Plan,
    sources: list[tuple[str, int]],
    done: set[int],
    progress: Progress | None,
) -> None:
    """Walk the corpus once; sources whose samples are all in finished shards are not even opened."""
    with ShardWriter(folder, plan) as writer:
        for index, sample in missing_samples(kept, plan, sources, done):
            writer.write(plan.shard_of(index), sample)
            if progress:
                progress(1)


def missing_samples(
    kept: KeptRows, plan: Plan, sources: list[tuple[str, int]], done: set[int]
) -> Iterator[tuple[int, dict[str, Any]]]:
    start = 0
    for shard, count in sources:
        wanted = [i for i in range(start, start + count) if plan.shard_of(i) not in done]
        if wanted:
            rows = kept.shard(shard)
            # finished shards are whole stretches, so what is missing of a source is read stretch by stretch
            for first, last in stretches(wanted):
                samples = read_kept(rows.slice(first - start, last + 1 - start))
                yield from zip(range(first, last + 1), samples, strict=True)
        start += count


def stretches(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """[1, 2, 3, 7, 8] -> (1, 3), (7, 8)"""
    first = last = numbers[0]
    for number in numbers[1:]:
        if number != last + 1:
            yield first, last
            first = number
        last = number
    yield first, last


class ShardWriter:
    """Writes samples to the shard of their number; a shard is published when the next one begins."""

    def __init__(self, folder: Folder, plan: Plan) -> None:
        self.folder, self.plan = folder, plan
        self.current: int | None = None
        self.tar: PortableTar | None = None
        self.open_file = ExitStack()

    def __enter__(self) -> "ShardWriter":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.finish(kind, error, trace)

    def finish(self, kind: Any = None, error: Any = None, trace: Any = None) -> None:
        """Close the tar and give the file its name; after an error the unfinished file is thrown away."""
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
