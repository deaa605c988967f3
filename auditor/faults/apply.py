"""Write shards in which the captions stand with the media, and the spans, they belong to.

Every shard that a repair touches is written anew, with all its usable samples. A medium whose captions belong elsewhere
and that got none in return is left out: what it had was wrong. The corpus itself is never written to.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from auditor.corpus.captions import parse_record
from auditor.corpus.names import portable_key
from auditor.corpus.raw_samples import KeptShard, read_kept
from auditor.corpus.write import add_sample, new_tar
from auditor.faults import spans
from auditor.faults.passage import FaultsError
from auditor.faults.repair import Repair, to_table
from auditor.keep.kept_rows import kept_shard
from auditor.query.database import AuditDatabase
from auditor.query.sandbox import literal
from auditor.store.folder import Folder

REPAIRS = "repairs.parquet"
AT_ONCE = 5000  # uids in one query


@dataclass(frozen=True, slots=True)
class Applied:
    """What was written: shards, samples in them, captions that moved, media left without a caption, shifted spans."""

    target: str
    shards: int
    samples: int
    moved: int
    left_out: int
    shifted: int = 0


def apply_repairs(database: AuditDatabase, repairs: Sequence[Repair], target: str) -> Applied:
    """New shards in `target`, which must not be the corpus, and repairs.parquet with what was done."""
    refuse_target(database, target)
    folder = Folder(target)
    moves = [one for one in repairs if one.pattern != spans.PATTERN]
    captions = captions_of(database, moves)
    gone = {(one.shard, one.key) for one in moves}
    arrived: dict[tuple[str, str], list[str]] = defaultdict(list)
    for one in moves:
        arrived[one.new_shard, one.new_key].append(captions[one.uid, one.caption_index])
    samples = left_out = 0
    shards = sorted({one.shard for one in repairs} | {one.new_shard for one in repairs})
    for shard in shards:
        kept = spans.with_spans(kept_shard(database, spans.condition(repairs), shard), repairs)
        with folder.writing(f"{shard}.tar") as path:
            written = write_repaired(path, kept, gone, arrived)
        samples += written
        left_out += len(kept) - written
    write_list(target, repairs)
    return Applied(target, len(shards), samples, len(moves), left_out, len(repairs) - len(moves))


def write_repaired(
    path: Path, kept: KeptShard, gone: set[tuple[str, str]], arrived: Mapping[tuple[str, str], list[str]]
) -> int:
    """The samples of a shard with their new captions; returns how many there are."""
    count = 0
    with new_tar(path) as tar:
        for sample in read_kept(kept):
            place = kept.name, sample["__key__"]
            if place in gone and place not in arrived:
                continue
            members = {extension: data for extension, data in sample.items() if not extension.startswith("__")}
            if place in arrived:
                members = with_captions(members, arrived[place])
            add_sample(tar, portable_key(sample["__key__"]), members)
            count += 1
    return count


def with_captions(members: Mapping[str, bytes], captions: Sequence[str]) -> dict[str, bytes]:
    """The members of a sample with other captions, in its .txt and, where it has them there, in its .json."""
    out = {**members, "txt": "\n".join(captions).encode()}
    record = parse_record(members["json"]) if "json" in members else None
    if record is not None:
        given: dict[str, Any] = {"caption": captions[0], "captions": list(captions)}
        record |= {field: value for field, value in given.items() if field in record}
        out["json"] = json.dumps(record, ensure_ascii=False).encode()
    return out


def captions_of(database: AuditDatabase, repairs: Sequence[Repair]) -> dict[tuple[str, int], str]:
    """The texts that move, by uid and number."""
    found: dict[tuple[str, int], str] = {}
    for start in range(0, len(repairs), AT_ONCE):
        wanted = literal([repair.uid for repair in repairs[start : start + AT_ONCE]])
        sql = f"SELECT uid, caption_index, caption FROM measured WHERE uid IN (SELECT unnest({wanted}))"
        found |= {(row["uid"], row["caption_index"]): row["caption"] for row in database.rows(sql)}
    return found


def write_list(target: str, repairs: Sequence[Repair]) -> None:
    Folder(target).write_table(REPAIRS, to_table(repairs))


def refuse_target(database: AuditDatabase, target: str) -> None:
    """A folder that holds something, or that is the corpus: repaired shards there would be mistaken for its own."""
    folder = Folder(target)
    corpus = database.moved_to or database.old_root
    if corpus is None:
        raise FaultsError(f"{database.path} does not say where its corpus is; name it with --corpus")
    theirs = Folder(corpus)
    same = folder.fs.protocol == theirs.fs.protocol
    if same and f"{folder.root.rstrip('/')}/".startswith(f"{theirs.root.rstrip('/')}/"):
        raise FaultsError(f"{target} is the corpus or a folder of it; repaired shards need a folder of their own")
    if folder.exists() and folder.fs.ls(folder.root):
        raise FaultsError(f"{target} exists and is not empty; choose another folder")
