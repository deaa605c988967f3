"""Read the kept samples of a corpus with all their files and only the kept captions, as they are to be written.

A sample of a tar has all members of its key, byte for byte except for dropped and changed captions. A sample of a
folder or a table has the medium and the kept captions. Timed captions are written to the .json, in place of subtitles.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa

from auditor.corpus.caption_text import decode_text, parse_record, split_lines
from auditor.corpus.corpus_files import digest
from auditor.corpus.file_names import escape_name, guess_media_kind, resolve_stored_path, sniff_extension
from auditor.corpus.read_medium import NOWHERE, MediaPlaces, read_media, strip_fragment
from auditor.corpus.rewrite_captions import (
    CorpusChangedError,
    build_source_field,
    build_timed_record,
    drop_caption_fields,
    keep_captions,
)
from auditor.corpus.sample_files import SampleFile
from auditor.corpus.shard import DEFAULT_OPTIONS, CorpusError, CorpusOptions
from auditor.corpus.tar_archive import OpenTar, is_tar, open_tar
from auditor.corpus.tar_index import NotATarError
from auditor.corpus.tar_shard import group_tar_members

OWN_FIELDS = frozenset({"__key__", "__url__"})  # of a WebDataset sample; no member can have these names


@dataclass(frozen=True)
class KeptShard:
    """The kept samples of one shard, one row each.

    Columns: key, media_path, media_offset, media_size and media_digest (null: not compared); captions, changes
    (the caption if it differs from the corpus's, else null), sources, numbers, uids, starts and ends of the kept
    captions; `of`, the number of all captions of the sample.
    """

    name: str
    table: pa.Table
    places: MediaPlaces = NOWHERE
    options: CorpusOptions = DEFAULT_OPTIONS

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def slice(self, start: int, stop: int) -> "KeptShard":
        return replace(self, table=self.table.slice(start, stop - start))


def read_kept_samples(shard: KeptShard) -> Iterator[dict[str, Any]]:
    """Yield the samples of a shard in order: __key__, __url__ and bytes by extension."""
    for path, group in groupby(shard.table.to_pylist(), key=itemgetter("media_path")):
        if is_tar(strip_fragment(path)):
            yield from read_tar_samples(strip_fragment(shard.places.locate(path)), list(group), shard.options)
        else:
            yield from (read_single_sample(shard, row) for row in group)


def read_tar_samples(path: str, rows: list[dict[str, Any]], options: CorpusOptions) -> Iterator[dict[str, Any]]:
    """Yield all members of each sample. The offset of the medium distinguishes samples with a repeated key."""
    with reopen_tar(path) as tar:
        groups = group_sound_members(tar, path)
        by_offset = {(key, part.offset): parts for key, parts in groups for part in parts}
        for row in rows:
            parts = by_offset.get((row["key"], row["media_offset"]))
            if parts is None:
                place = f"{path} has no sample {row['key']} where the audit saw it"
                raise CorpusChangedError(f"{place}: the corpus has changed; audit it again")
            contents = {part.offset: tar.read(part.offset, part.size) for part in parts}
            check_digest(row, contents[row["media_offset"]])
            members = {part.name.rpartition("/")[2].partition(".")[2]: contents[part.offset] for part in parts}
            sample = {  # last, so that a member named x.__key__ cannot replace it
                **(build_timed_members(row, members, options) if has_spans(row) else members),
                "__key__": row["key"],
                "__url__": path,
            }
            changes = {number: text for number, text in zip(row["numbers"], row["changes"], strict=True) if text}
            is_written = has_spans(row) or (len(row["numbers"]) == row["of"] and not changes)
            yield sample if is_written else keep_captions(sample, row["numbers"], options, changes)


def check_digest(row: Mapping[str, Any], data: bytes) -> None:
    """Raise CorpusChangedError if the medium is not the one that was audited."""
    if row["media_digest"] and digest(data) != row["media_digest"]:
        raise CorpusChangedError(f"the medium of {row['key']} is not the one that was audited: audit the corpus again")


def has_spans(row: dict[str, Any]) -> bool:
    return any(start is not None for start in row["starts"])


def build_timed_members(
    row: Mapping[str, Any], members: Mapping[str, bytes], options: CorpusOptions = DEFAULT_OPTIONS
) -> dict[str, bytes]:
    """Return the medium and a .json with the kept `captions` of the whole video and `segments` with their spans."""
    texts = [decode_text(data, options.encoding) for name, data in members.items() if name.lower().endswith("json")]
    records = list(map(parse_record, texts[:1]))
    captions = list(zip(row["captions"], row["starts"], row["ends"], row["uids"], row["sources"], strict=True))
    captions.sort(key=lambda caption: caption[1] is not None)  # as they are read
    timed = [{"start": a, "end": b, "caption": text, "uid": uid} for text, a, b, uid, _ in captions if a is not None]
    whole = [text for text, start, *_ in captions if start is None]
    fields = drop_caption_fields((records and records[0]) or {}, options.caption_fields)
    record = build_timed_record(fields, whole, timed) | build_source_field([source for *_, source in captions])
    media = {name: data for name, data in members.items() if guess_media_kind(name) is not None}
    return {**media, "json": json.dumps(record, ensure_ascii=False).encode()}


def group_sound_members(tar: OpenTar, path: str) -> list[tuple[str, list[SampleFile]]]:
    try:
        index = tar.index()
    except NotATarError:
        raise CorpusChangedError(f"{path} is no longer a tar") from None
    groups = group_tar_members(index, path).items()
    return [(escape_name(key), [part for part in parts.values() if part.defect is None]) for (key, _), parts in groups]


@contextmanager
def reopen_tar(path: str) -> Iterator[OpenTar]:
    """Open the tar of an audit. A damaged end matters only if a sample lies there."""
    with ExitStack() as stack:
        try:
            tar = stack.enter_context(open_tar(resolve_stored_path(path)))
        except (OSError, CorpusError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            remedy = "if the corpus has moved, name its new folder with --corpus NEW_ROOT"
            raise CorpusChangedError(f"{path} cannot be read ({why}); {remedy}") from None
        yield tar


def read_single_sample(shard: KeptShard, row: dict[str, Any]) -> dict[str, Any]:
    """Return a sample of a folder or table: its medium and its kept captions."""
    path = row["media_path"]
    place = shard.places.locate(path)
    data = read_media(place, row["media_offset"], row["media_size"])
    check_digest(row, data)
    names = {"__key__": row["key"], "__url__": place}
    medium = {find_media_extension(path, data): data}
    if has_spans(row):
        source = {"json": json.dumps({"key": row["key"], "source": path}, ensure_ascii=False).encode()}
        return {**names, **build_timed_members(row, {**medium, **source})}
    record = {
        "key": row["key"],
        "uid": row["uids"][0],
        "captions": row["captions"],
        "source": path,
        **build_source_field(row["sources"]),
    }
    return {
        **names,
        **medium,
        "txt": "\n".join(" ".join(split_lines(caption)) for caption in row["captions"]).encode(),
        "json": json.dumps(record, ensure_ascii=False).encode(),
    }


def find_media_extension(path: str, data: bytes) -> str:
    """Find the extension by name, else (a cell of a table, a URL without one) by the first bytes."""
    name = strip_fragment(path).split("?")[0].rpartition(".")[2].lower()
    if "#" not in path and guess_media_kind(name) is not None:
        return name
    return sniff_extension(data) or "bin"
