"""Read chosen samples back out of a corpus with all their files, and with the captions that were chosen.

From a tar come all members of the sample's key (the medium, txt, json, whatever there is), byte for byte but for
captions that are left out; from a folder or a table, which has no members, the medium and the kept captions. A video
with timed captions comes with those that are kept in its .json, in place of its subtitles.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from auditor.corpus.caption_text import parse_record, split_lines
from auditor.corpus.file_names import as_text, kind_of, real_path
from auditor.corpus.read_medium import moved, read_media, without_fragment
from auditor.corpus.rewrite_captions import CorpusChangedError, keep_captions, other_fields
from auditor.corpus.sample_files import Part
from auditor.corpus.shard import DEFAULTS, CorpusError, CorpusOptions
from auditor.corpus.tar_archive import OpenTar, is_tar, open_tar
from auditor.corpus.tar_index import NotATarError
from auditor.corpus.tar_shard import group_members

MAGIC = {b"\xff\xd8\xff": "jpg", b"\x89PNG": "png", b"GIF8": "gif", b"BM": "bmp", b"\x1a\x45\xdf\xa3": "webm"}


OWN_FIELDS = frozenset({"__key__", "__url__"})  # of a sample as WebDataset has it; members cannot be called so


@dataclass(frozen=True)
class KeptShard:
    """The kept samples of one shard: columns key, media_path, media_offset, media_size, and of the kept captions
    captions, numbers, uids, starts and ends; `of` is how many captions the sample has in all."""

    name: str
    table: pa.Table
    moved_to: str | None = None
    old_root: str | None = None
    options: CorpusOptions = DEFAULTS

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def place(self, path: str) -> str:
        return moved(path, self.moved_to, self.old_root) if self.moved_to else path

    def slice(self, start: int, stop: int) -> "KeptShard":
        return replace(self, table=self.table.slice(start, stop - start))


def read_kept(shard: KeptShard) -> Iterator[dict[str, Any]]:
    """The samples of a shard, in order: __key__, __url__ and bytes by extension."""
    rows = shard.table.to_pylist()
    start = 0
    while start < len(rows):
        path = rows[start]["media_path"]
        stop = start
        while stop < len(rows) and rows[stop]["media_path"] == path:
            stop += 1
        if is_tar(without_fragment(path)):
            yield from read_from_tar(without_fragment(shard.place(path)), rows[start:stop], shard.options)
        else:
            yield from (read_alone(shard, row) for row in rows[start:stop])
        start = stop


def read_from_tar(path: str, rows: list[dict[str, Any]], options: CorpusOptions) -> Iterator[dict[str, Any]]:
    """All members of each sample. A repeated key is told apart by where its medium stands."""
    with reopened(path) as tar:
        groups = tar_groups(tar, path)
        by_offset = {(key, part.offset): parts for key, parts in groups for part in parts}
        for row in rows:
            parts = by_offset.get((row["key"], row["media_offset"]))
            if parts is None:
                raise CorpusChangedError(
                    f"{path} has no sample {row['key']} where the audit saw it: the corpus has changed; audit it again"
                )
            members = {extension(part): tar.read(part.offset, part.size) for part in parts}
            sample = {  # last, so that no member called x.__key__ renames it
                **(with_segments(row, members) if is_timed(row) else members),
                "__key__": row["key"],
                "__url__": path,
            }
            whole = is_timed(row) or len(row["numbers"]) == row["of"]
            yield sample if whole else keep_captions(sample, row["numbers"], options)


def is_timed(row: dict[str, Any]) -> bool:
    return any(start is not None for start in row["starts"])


def with_segments(row: Mapping[str, Any], members: Mapping[str, bytes]) -> dict[str, bytes]:
    """The medium and a .json with what is kept: `captions` of the whole video, `segments` with their spans."""
    records = [parse_record(data) for name, data in members.items() if name.lower().endswith("json")][:1]
    kept = list(zip(row["captions"], row["starts"], row["ends"], row["uids"], strict=True))
    timed = [{"start": a, "end": b, "caption": text, "uid": uid} for text, a, b, uid in kept if a is not None]
    whole = [text for text, start, _, _ in kept if start is None]
    record = {**other_fields((records and records[0]) or {}), "captions": whole, "segments": timed}
    media = {name: data for name, data in members.items() if kind_of(name) is not None}
    return {**media, "json": json.dumps(record, ensure_ascii=False).encode()}


def extension(part: Part) -> str:
    return part.name.rpartition("/")[2].partition(".")[2]


def tar_groups(tar: OpenTar, path: str) -> list[tuple[str, list[Part]]]:
    try:
        index = tar.index()
    except NotATarError:
        raise CorpusChangedError(f"{path} is no longer a tar") from None
    groups = group_members(index, path).items()
    return [(as_text(key), [part for part in parts.values() if part.defect is None]) for (key, _), parts in groups]


@contextmanager
def reopened(path: str) -> Iterator[OpenTar]:
    """The tar of an audit; a damaged end is told when a sample of it is looked for."""
    with ExitStack() as stack:
        try:
            tar = stack.enter_context(open_tar(real_path(path)))
        except (OSError, CorpusError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise CorpusChangedError(
                f"{path} cannot be read ({why}); if the corpus has moved, say where with --corpus NEW_ROOT"
            ) from None
        yield tar


def read_alone(shard: KeptShard, row: dict[str, Any]) -> dict[str, Any]:
    """A sample of a folder or table: its medium and its kept captions."""
    path = row["media_path"]
    data = read_media(path, row["media_offset"], row["media_size"], root=shard.moved_to, old_root=shard.old_root)
    record = {"key": row["key"], "uid": row["uids"][0], "captions": row["captions"], "source": path}
    medium = {media_extension(path, data): data}
    if is_timed(row):
        source = {"json": json.dumps({"key": row["key"], "source": path}, ensure_ascii=False).encode()}
        return {"__key__": row["key"], "__url__": shard.place(path), **with_segments(row, {**medium, **source})}
    return {
        "__key__": row["key"],
        "__url__": shard.place(path),
        **medium,
        "txt": "\n".join(" ".join(split_lines(caption)) for caption in row["captions"]).encode(),
        "json": json.dumps(record, ensure_ascii=False).encode(),
    }


def media_extension(path: str, data: bytes) -> str:
    """By name, else (a cell of a table, an address without one) by the first bytes."""
    name = without_fragment(path).split("?")[0].rpartition(".")[2].lower()
    if "#" not in path and kind_of(name) is not None:
        return name
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "webp"
    if data[4:8] == b"ftyp":
        return "mp4"
    return next((found for magic, found in MAGIC.items() if data.startswith(magic)), "bin")
