"""Tables with a column of media and a column of captions: CSV, TSV, JSON lines, Parquet.

Columns are found by the names people give them (`image`, `file_name`, `url`, ...; `caption`, `text`, ...) or named in
`CorpusOptions`. Paths are relative to the table. The rows are cut into virtual shards in their own order.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from auditor.corpus.caption_text import carried_json, safe_text
from auditor.corpus.sample import Media, Span
from auditor.corpus.shard import CorpusError, CorpusOptions
from auditor.corpus.tables.entry_shard import Entry
from auditor.corpus.timed_captions import BOTH, ENDS, STARTS, cell_spans, is_listed, listed, timed_texts

FORMS = {"csv": "csv", "tsv": "tsv", "jsonl": "jsonl", "ndjson": "jsonl", "parquet": "parquet", "arrow": "parquet"}
MEDIA_NAMES = (
    *("image", "video", "media", "img", "jpg", "jpeg", "png", "webp", "mp4", "image_path", "video_path", "media_path"),
    *("img_path", "image_file", "video_file", "file_name", "filename", "file_path", "filepath", "file", "path"),
    *("image_url", "video_url", "media_url", "contenturl"),
)
ID_NAMES = ("videoid", "video_id", "youtubeid", "youtube_id", "vid", "video_name")
CAPTION_NAMES = (
    *("caption", "captions", "text", "texts", "txt", "title", "sentence", "sentences", "description", "alt_text"),
    *("alt", "prompt", "name", "raw", "comment"),
)
KEY_NAMES = ("key", "__key__")
_UID = re.compile(r"[0-9a-fA-F]{32}")


@dataclass(frozen=True, slots=True)
class Columns:
    """Which column is what; `key` and `uid` only where there is one."""

    media: str
    caption: str
    key: str | None
    uid: str | None
    start: str | None = None
    end: str | None = None
    carry: tuple[str, ...] = ()
    guessed: bool = False  # the column of spans was found by a name that others have, too: what is no list is no span

    @property
    def names(self) -> list[str]:
        every = (self.media, self.caption, self.key, self.uid, self.start, self.end, *self.carry)
        return list(dict.fromkeys(name for name in every if name is not None))


def form_of(path: str) -> str | None:
    """`csv`, `tsv`, `jsonl` or `parquet` (Arrow too) by the extension; None for what is no table."""
    return FORMS.get(path.rpartition(".")[2].lower())


def choose_columns(table: str, columns: Sequence[str], options: CorpusOptions) -> Columns:
    """The columns as given, else by their usual names; what is missing is told together with what there is."""
    there = f"{table} has the columns {', '.join(map(repr, columns[:30]))}"
    given = (options.media_column, options.caption_column, options.key_column)
    for wanted in (*given, options.start_column, options.end_column, *options.carry):
        if wanted is not None and wanted not in columns:
            raise CorpusError(f"no column {wanted!r}: {there}")
    start, end = _span_columns(columns, options)
    # beside spans an id stands for the video and the url is that of a page; elsewhere the url is the better one
    fallbacks = (*ID_NAMES, "url") if start else ("url", *ID_NAMES)
    media = options.media_column or usual((*MEDIA_NAMES, *fallbacks), columns)
    if media is None:
        raise CorpusError(f"which column holds the media? {there}; name it with --media-column")
    caption = options.caption_column or usual(CAPTION_NAMES, [name for name in columns if name != media])
    if caption is None:
        raise CorpusError(f"which column holds the captions? {there}; name it with --caption-column")
    key = options.key_column or usual(KEY_NAMES, columns)
    guessed = start is not None and end is None and options.start_column is None
    return Columns(media, caption, key, usual(("uid",), columns), start, end, options.carry, guessed)


def _span_columns(columns: Sequence[str], options: CorpusOptions) -> tuple[str | None, str | None]:
    """The columns of start and end; the first alone where it lists pairs of both."""
    start, end = options.start_column or usual(STARTS, columns), options.end_column or usual(ENDS, columns)
    if options.start_column or options.end_column:
        if start is None:
            raise CorpusError("--end-column needs --start-column")
        return start, end
    return (start, end) if start and end else (usual(BOTH, columns), None)


def usual(names: Sequence[str], columns: Sequence[str]) -> str | None:
    """The first of some usual names that a column has, however it is written: `video_id`, `Video ID`."""
    lower = {column.lower().replace(" ", "_").replace("-", "_"): column for column in reversed(columns)}
    return next((lower[name] for name in names if name in lower), None)


def entry_of(row: int, fields: dict[str, Any], columns: Columns, cell: Media | None = None) -> Entry:
    """A row of a table as an entry. Of Hugging Face's struct of bytes and path only the path is looked at."""
    value = fields.get(columns.media)
    if isinstance(value, dict):
        value = value.get("path")
    key = fields.get(columns.key) if columns.key is not None else None
    uid = fields.get(columns.uid) if columns.uid is not None else None
    said = _captions(fields, columns)
    captions = tuple(text for _, text, _ in said)
    carried = carried_json(fields, columns.carry)
    own = uid.lower() if isinstance(uid, str) and _UID.fullmatch(uid) else None
    return Entry(
        row=row,
        media=safe_text(str(value)).strip() if isinstance(value, str | int) else "",
        captions=captions,
        carried=(carried,) * max(1, len(captions)) if columns.carry else (),
        places=tuple((row, place) for place, _, _ in said),
        key=None if key is None or key == "" else str(key),
        uid=own,
        uids=tuple(own if number == 0 else None for number in range(len(captions))),
        cell=cell,
        spans=tuple(span for *_, span in said) if columns.start is not None else (),
    )


def _captions(fields: dict[str, Any], columns: Columns) -> list[tuple[int, str, Span | None]]:
    """(place in its cell, text, span) of each caption of a row; a row without times is about the whole video."""
    text, start = fields.get(columns.caption), fields.get(columns.start or "")
    end = fields.get(columns.end or "")
    if columns.start is None or (columns.guessed and not is_listed(start)):
        return timed_texts(text if isinstance(text, list | tuple) else [text], (None,))
    if start in (None, "") and end in (None, ""):
        return timed_texts(listed(text), (None,))
    return timed_texts(listed(text), cell_spans(start, "" if columns.end and end is None else end))
