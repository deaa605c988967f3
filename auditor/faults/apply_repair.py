"""Write shards in which the captions stand with the media, and the spans, they belong to.

Every shard that a repair touches is written anew, with all its usable samples. A medium whose captions belong elsewhere
and that got none in return is left out: what it had was wrong. The corpus itself is never written to.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from auditor.audit_folder.folder import Folder
from auditor.audit_folder.lock import exclusive
from auditor.corpus.caption_text import parse_record
from auditor.corpus.corpus_spec import names_folder
from auditor.corpus.raw_samples import OWN_FIELDS, KeptShard, read_kept, with_segments
from auditor.corpus.read_medium import moved, without_fragment
from auditor.corpus.shard_writer import PortableTar
from auditor.faults import shifted_spans
from auditor.faults.corpus_window import FaultsError
from auditor.faults.repair import Repair, to_table
from auditor.keep.export_plan import PLAN, prepare, read_plan, refuse_before_lock, stamp
from auditor.keep.kept_rows import kept_shard
from auditor.query.database import AuditDatabase
from auditor.query.sandbox import literal

REPAIRS = "repairs.parquet"
AT_ONCE = 5000  # uids in one query
Caption = Mapping[str, Any]  # of one that moves: uid, caption, start, end


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
    """New shards in `target`, which must not be the corpus, and repairs.parquet with what was done.

    The same call again goes on with what a kill has left.
    """
    refuse_target(database, target)
    folder = Folder(target)
    shards = sorted({one.shard for one in repairs} | {one.new_shard for one in repairs})
    refuse_without_media(database, shards)
    moving = [one for one in repairs if one.pattern != shifted_spans.PATTERN]
    moves = Moves.of(moving, captions_of(database, moving))
    samples = left_out = 0
    with exclusive(folder):
        folder.sweep_temporary("")
        description = describe(database, repairs, shards)
        prepare(folder, description, force=False)
        done = set(folder.names("", ".tar"))
        for shard in shards:
            kept = shifted_spans.with_spans(kept_shard(database, shifted_spans.condition(repairs), shard), repairs)
            changed = moves.captions(kept)
            if shard not in done:
                with folder.writing(f"{shard}.tar") as path:
                    write_repaired(path, kept, changed)
            without = sum(not captions for captions in changed.values())
            samples, left_out = samples + len(kept) - without, left_out + without
        folder.write_table(REPAIRS, to_table(repairs))
        folder.write_json(PLAN, {**description, "state": "complete"})
    return Applied(target, len(shards), samples, len(moving), left_out, len(repairs) - len(moving))


@dataclass(frozen=True)
class Moves:
    """Which captions, by number, leave which samples (shard and key), and which captions come to which."""

    gone: dict[tuple[str, str], set[int]]
    arrived: dict[tuple[str, str], list[Caption]]

    @classmethod
    def of(cls, repairs: Sequence[Repair], captions: Mapping[tuple[str, int], Caption]) -> "Moves":
        gone: dict[tuple[str, str], set[int]] = defaultdict(set)
        arrived: dict[tuple[str, str], list[Caption]] = defaultdict(list)
        for one in repairs:
            gone[one.shard, one.key].add(one.caption_index)
            arrived[one.new_shard, one.new_key].append(captions[one.uid, one.caption_index])
        return cls(dict(gone), dict(arrived))

    def captions(self, kept: KeptShard) -> dict[str, list[Caption]]:
        """By key what samples of a shard have in the end, where that is not what they had.

        Of a sample some of whose captions move the others stay: a person has said that they belong there.
        """
        names = ("captions", "numbers", "uids", "starts", "ends")
        found = {}
        for row in kept.table.select(["key", *names]).to_pylist():
            place = kept.name, row["key"]
            given = zip(*(row[name] for name in names), strict=True) if place in self.gone else ()
            stay = [
                {"caption": caption, "uid": uid, "start": start, "end": end}
                for caption, number, uid, start, end in given
                if number not in self.gone[place]
            ]
            if place in self.gone or place in self.arrived:
                found[row["key"]] = [*stay, *self.arrived.get(place, ())]
        return found


def describe(database: AuditDatabase, repairs: Sequence[Repair], shards: Sequence[str]) -> dict[str, Any]:
    """What this export is: the repairs, and the files that are read."""
    sql = f"SELECT DISTINCT media_path AS path FROM measured WHERE shard IN (SELECT unnest({literal(list(shards))}))"
    found = {without_fragment(row["path"]) for row in database.rows(sql) if row["path"]} if shards else set()
    now = [moved(path, database.moved_to, database.old_root) if database.moved_to else path for path in sorted(found)]
    content = json.dumps([[one.to_dict() for one in repairs], [stamp(path) for path in now if "://" not in path]])
    fingerprint = hashlib.blake2b(content.encode(), digest_size=16).hexdigest()
    return {"audit": database.path, "repairs": len(repairs), "fingerprint": fingerprint}


def write_repaired(path: Path, kept: KeptShard, changed: Mapping[str, Sequence[Caption]]) -> None:
    """The samples of a shard with their new captions; without those that have none in the end."""
    with PortableTar(path) as tar:
        for sample in read_kept(kept):
            key = sample["__key__"]
            members = {extension: data for extension, data in sample.items() if extension not in OWN_FIELDS}
            if changed.get(key, True):
                tar.add(key, with_captions(members, changed[key]) if key in changed else members)


def with_captions(members: Mapping[str, bytes], arrived: Sequence[Caption]) -> dict[str, bytes]:
    """The members of a sample with other captions, in its .txt and, where it has them there, in its .json.

    Timed ones bring their spans with them.
    """
    if any(one["start"] is not None for one in arrived):
        columns = {f"{name}s": [one[name] for one in arrived] for name in ("caption", "start", "end", "uid")}
        return with_segments(columns, members)
    captions = [one["caption"] for one in arrived]
    out = {**members, "txt": "\n".join(captions).encode()}
    record = parse_record(members["json"]) if "json" in members else None
    if record is not None:
        given: dict[str, Any] = {"caption": captions[0], "captions": list(captions)}
        record |= {field: value for field, value in given.items() if field in record}
        out["json"] = json.dumps(record, ensure_ascii=False).encode()
    return out


def captions_of(database: AuditDatabase, repairs: Sequence[Repair]) -> dict[tuple[str, int], Caption]:
    """The captions that move, by uid and number."""
    found: dict[tuple[str, int], Caption] = {}
    for start in range(0, len(repairs), AT_ONCE):
        wanted = literal([repair.uid for repair in repairs[start : start + AT_ONCE]])
        columns = 'uid, caption_index, caption, "start", "end"'
        sql = f"SELECT {columns} FROM measured WHERE uid IN (SELECT unnest({wanted}))"
        found |= {(row["uid"], row["caption_index"]): row for row in database.rows(sql)}
    return found


def refuse_without_media(database: AuditDatabase, shards: Sequence[str]) -> None:
    """Audits of stored embeddings know of no media to write shards of."""
    sql = (
        "SELECT count(*) AS n FROM measured WHERE status = 'ok' AND media_path IS NULL "
        f"AND shard IN (SELECT unnest({literal(list(shards))}))"
    )
    without = database.rows(sql)[0]["n"] if shards else 0
    if without:
        raise FaultsError(
            f"{without:,} rows of the shards to repair have embeddings and no media that could be read: "
            "write the list of repairs instead, without --apply"
        )


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
    mine, root = f"{folder.root.rstrip('/')}/", f"{theirs.root.rstrip('/')}/"
    spec = str(database.manifest.get("corpus", {}).get("spec") or "")
    below = mine.startswith(root) and (names_folder(spec) or "**" in spec)  # beside shards that are listed is outside
    if same and (mine == root or below):
        raise FaultsError(f"{target} is the corpus or a folder of it; repaired shards need a folder of their own")
    refuse_before_lock(folder)
    if read_plan(folder).get("state") == "complete":
        raise FaultsError(f"{target} holds a finished export; choose another folder")
