"""Write shards in which captions are paired with the media and spans they belong to.

Every shard that a repair touches is rewritten with all its usable samples. A medium whose captions move away is left
out if it receives none, because its captions were wrong. The corpus itself is never modified.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from auditor.audit_folder.folder import Folder
from auditor.audit_folder.lock import hold_folder_lock
from auditor.corpus.caption_text import decode_text, parse_record
from auditor.corpus.corpus_spec import is_folder_spec
from auditor.corpus.raw_samples import OWN_FIELDS, KeptShard, build_timed_members, read_kept_samples
from auditor.corpus.rewrite_captions import place_captions
from auditor.corpus.shard import DEFAULT_OPTIONS, CorpusOptions
from auditor.corpus.shard_writer import PortableTar
from auditor.faults import shifted_spans
from auditor.faults.corpus_window import FaultsError
from auditor.faults.repair import Repair, build_repair_table
from auditor.keep.caption_changes import CaptionChanges, read_caption_changes
from auditor.keep.export_target import (
    PLAN,
    check_export_folder,
    fingerprint_export,
    prepare_export,
    read_export_plan,
    stamp_media_files,
)
from auditor.keep.kept_rows import CAPTION_COLUMNS, fetch_kept_shard
from auditor.query.database import AuditDatabase
from auditor.query.row_queries import read_rows_by_uid
from auditor.query.rules import Rules
from auditor.query.sandbox import quote_literal

REPAIRS = "repairs.parquet"
MovedCaption = Mapping[str, Any]  # uid, caption, caption_source, start, end


@dataclass(frozen=True, slots=True)
class RepairResult:
    """The shards and samples written, captions moved, media left without a caption, spans shifted, captions edited."""

    target: str
    shards: int
    samples: int
    moved: int
    left_out: int
    shifted: int = 0
    edited: int = 0


def apply_repairs(
    database: AuditDatabase, repairs: Sequence[Repair], target: str, *, no_edits: bool = False
) -> RepairResult:
    """Write new shards to `target`, which must not be the corpus, and the list of repairs to repairs.parquet.

    Captions that a person has edited stay where they are and are written as edited, unless `no_edits`. After an
    interruption, the same call resumes.
    """
    check_repair_target(database, target)
    folder = Folder(target)
    changes = read_caption_changes(database, Rules(no_edits=no_edits))
    edits = changes.edits.to_pylist() if changes.edits is not None else []
    repairs = leave_edited_captions(repairs, edits)
    places = {repair.shard for repair in repairs} | {repair.new_shard for repair in repairs}
    shards = sorted(places | {edit["shard"] for edit in edits})
    check_repair_media(database, shards)
    moving = [repair for repair in repairs if repair.pattern != shifted_spans.PATTERN]
    columns = 'caption, caption_source, "start", "end"'
    moves = CaptionMoves(moving, read_rows_by_uid(database, (repair.uid for repair in moving), columns))
    samples = left_out = edited = 0
    with hold_folder_lock(folder):
        folder.sweep_temporary("")
        description = describe_repairs(database, repairs, shards, changes)
        prepare_export(folder, description, force=False)
        written_shards = set(folder.names("", ".tar"))
        for shard in shards:
            shard_rows = shifted_spans.apply_spans(
                fetch_kept_shard(database, shifted_spans.build_repair_condition(repairs), shard, changes), repairs
            )
            changed = moves.captions(shard_rows)
            if shard not in written_shards:
                with folder.writing(f"{shard}.tar") as path:
                    write_repaired_shard(path, shard_rows, changed)
            empty_count = sum(not captions for captions in changed.values())
            samples, left_out = samples + len(shard_rows) - empty_count, left_out + empty_count
            edited += pc.list_flatten(shard_rows.table["changes"]).drop_null().length()
        folder.write_table(REPAIRS, build_repair_table(repairs))
        folder.write_json(PLAN, {**description, "state": "complete"})
    return RepairResult(target, len(shards), samples, len(moving), left_out, len(repairs) - len(moving), edited)


def leave_edited_captions(repairs: Sequence[Repair], edits: Sequence[Mapping[str, Any]]) -> list[Repair]:
    """The repairs without moves of captions that a person has edited to describe their medium."""
    rows = {(edit["uid"], edit["caption_index"]) for edit in edits}
    return [
        repair
        for repair in repairs
        if repair.pattern == shifted_spans.PATTERN or (repair.uid, repair.caption_index) not in rows
    ]


class CaptionMoves:
    """The numbers of the captions that leave each sample (shard and key), and the captions that arrive."""

    def __init__(self, repairs: Sequence[Repair], captions: Mapping[tuple[str, int], MovedCaption]) -> None:
        self.gone: dict[tuple[str, str], set[int]] = defaultdict(set)
        self.arrived: dict[tuple[str, str], list[MovedCaption]] = defaultdict(list)
        for repair in repairs:
            self.gone[repair.shard, repair.key].add(repair.caption_index)
            self.arrived[repair.new_shard, repair.new_key].append(captions[repair.uid, repair.caption_index])

    def captions(self, shard_rows: KeptShard) -> dict[str, list[MovedCaption]]:
        """The new captions of each sample of a shard whose captions change, by key.

        If only some captions of a sample move, the others stay: a person decided that they belong there. A caption
        that a person has edited stays, too.
        """
        captions_by_key = {}
        for row in shard_rows.table.select(["key", *CAPTION_COLUMNS]).to_pylist():
            place = shard_rows.name, row["key"]
            if place in self.gone or place in self.arrived:
                columns = zip(*(row[name] for name in CAPTION_COLUMNS), strict=True)
                stay = [
                    {"caption": caption, "caption_source": source, "uid": uid, "start": start, "end": end}
                    for caption, change, source, number, uid, start, end in columns
                    if change or number not in self.gone.get(place, {number})
                ]
                captions_by_key[row["key"]] = [*stay, *self.arrived.get(place, ())]
        return captions_by_key


def describe_repairs(
    database: AuditDatabase, repairs: Sequence[Repair], shards: Sequence[str], changes: CaptionChanges
) -> dict[str, Any]:
    """The export plan: the repairs and a fingerprint that includes the edits and the files read."""
    listed = quote_literal(list(shards))
    sql = f"SELECT DISTINCT media_path AS path FROM measured WHERE shard IN (SELECT unnest({listed}))"
    paths = [row["path"] for row in database.rows(sql)] if shards else []
    stamps = sorted(set(stamp_media_files(database, paths)))
    fingerprint = fingerprint_export([repair.to_dict() for repair in repairs], stamps, changes.identity)
    return {"audit": database.path, "repairs": len(repairs), "fingerprint": fingerprint}


def write_repaired_shard(path: Path, shard_rows: KeptShard, changed: Mapping[str, Sequence[MovedCaption]]) -> None:
    """Write the samples of a shard with their new captions, without samples that have none left."""
    with PortableTar(path) as tar:
        for sample in read_kept_samples(shard_rows):
            key = sample["__key__"]
            members = {extension: data for extension, data in sample.items() if extension not in OWN_FIELDS}
            if changed.get(key, True):
                tar.add(key, replace_captions(members, changed[key], shard_rows.options) if key in changed else members)


def replace_captions(
    members: Mapping[str, bytes], arrived: Sequence[MovedCaption], options: CorpusOptions = DEFAULT_OPTIONS
) -> dict[str, bytes]:
    """Replace the captions of a sample in its .txt and, if present, in its .json; timed captions keep their spans.

    A caption with a source goes to the file or field of its source.
    """
    captions = [caption["caption"] for caption in arrived]
    sources = [caption.get("caption_source") for caption in arrived]
    if any(caption["start"] is not None for caption in arrived):
        columns = {f"{name}s": [caption[name] for caption in arrived] for name in ("caption", "start", "end", "uid")}
        return build_timed_members({**columns, "sources": sources}, members, options)
    if any(sources) or options.caption_fields:
        placed: dict[str, bytes] = place_captions(members, captions, sources, options)
        return placed
    out = {**members, "txt": "\n".join(captions).encode()}
    record = parse_record(decode_text(members["json"], options.encoding)) if "json" in members else None
    if record is not None:
        caption_fields = {"caption": captions[0], "captions": captions}
        record |= {field: value for field, value in caption_fields.items() if field in record}
        out["json"] = json.dumps(record, ensure_ascii=False).encode()
    return out


def check_repair_media(database: AuditDatabase, shards: Sequence[str]) -> None:
    """Refuse audits of stored embeddings, which have no media to write into shards."""
    sql = (
        "SELECT count(*) FROM measured WHERE status = 'ok' AND media_path IS NULL "
        f"AND shard IN (SELECT unnest({quote_literal(list(shards))}))"
    )
    if count := database.value(sql) if shards else 0:
        raise FaultsError(
            f"{count:,} rows of the shards to repair have embeddings but no media: "
            "write only the list of repairs, without --apply"
        )


def write_repair_list(target: str, repairs: Sequence[Repair]) -> None:
    Folder(target).write_table(REPAIRS, build_repair_table(repairs))


def check_repair_target(database: AuditDatabase, target: str) -> None:
    """Refuse a folder that is not empty or lies in the corpus, where repaired shards would be mistaken for its own."""
    folder = Folder(target)
    corpus = database.places.moved_to or database.places.old_root
    if corpus is None:
        raise FaultsError(f"{database.path} does not name its corpus; name it with --corpus")
    corpus_folder = Folder(corpus)
    same_storage = folder.fs.protocol == corpus_folder.fs.protocol
    target_root, corpus_root = f"{folder.root.rstrip('/')}/", f"{corpus_folder.root.rstrip('/')}/"
    spec = str(database.manifest.get("corpus", {}).get("spec") or "")
    # next to explicitly listed shards is outside
    is_inside = target_root.startswith(corpus_root) and (is_folder_spec(spec) or "**" in spec)
    if same_storage and (target_root == corpus_root or is_inside):
        raise FaultsError(f"{target} is the corpus or a folder in it; write repaired shards to a separate folder")
    check_export_folder(folder)
    if read_export_plan(folder).get("state") == "complete":
        raise FaultsError(f"{target} holds a finished export; choose another folder")
