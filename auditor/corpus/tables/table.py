"""Tables with a column of media and a column of captions: CSV, TSV, JSON lines, Parquet.

Columns are found by the names people give them (`image`, `file_name`, `url`, ...; `caption`, `text`, ...) or named in
`CorpusOptions`. Paths are relative to the table. The rows are cut into virtual shards in their own order.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from auditor.corpus.captions import captions_of, safe_text
from auditor.corpus.shard import CorpusError, CorpusOptions
from auditor.corpus.tables.entries import Entry
from auditor.sample import Media

FORMS = {"csv": "csv", "tsv": "tsv", "jsonl": "jsonl", "ndjson": "jsonl", "parquet": "parquet"}
MEDIA_NAMES = (
    *("image", "video", "media", "img", "jpg", "jpeg", "png", "webp", "mp4", "image_path", "video_path", "media_path"),
    *("img_path", "image_file", "video_file", "file_name", "filename", "file_path", "filepath", "file", "path"),
    *("image_url", "video_url", "media_url", "contenturl", "url"),
)
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

    @property
    def names(self) -> list[str]:
        return [name for name in (self.media, self.caption, self.key, self.uid) if name is not None]


def form_of(path: str) -> str | None:
    """`csv`, `tsv`, `jsonl` or `parquet` by the extension; None for what is no table."""
    return FORMS.get(path.rpartition(".")[2].lower())


def choose_columns(table: str, columns: Sequence[str], options: CorpusOptions) -> Columns:
    """The columns as given, else by their usual names; what is missing is told together with what there is."""
    there = f"{table} has the columns {', '.join(map(repr, columns[:30]))}"
    for wanted in (options.media_column, options.caption_column, options.key_column):
        if wanted is not None and wanted not in columns:
            raise CorpusError(f"no column {wanted!r}: {there}")
    media = options.media_column or _usual(MEDIA_NAMES, columns)
    if media is None:
        raise CorpusError(f"which column holds the media? {there}; name it with --media-column")
    caption = options.caption_column or _usual(CAPTION_NAMES, [name for name in columns if name != media])
    if caption is None:
        raise CorpusError(f"which column holds the captions? {there}; name it with --caption-column")
    return Columns(media, caption, options.key_column or _usual(KEY_NAMES, columns), _usual(("uid",), columns))


def _usual(names: Sequence[str], columns: Sequence[str]) -> str | None:
    lower = {column.lower(): column for column in reversed(columns)}
    return next((lower[name] for name in names if name in lower), None)


def entry_of(row: int, fields: dict[str, Any], columns: Columns, cell: Media | None = None) -> Entry:
    """A row of a table as an entry. Of Hugging Face's struct of bytes and path only the path is looked at."""
    value = fields.get(columns.media)
    if isinstance(value, dict):
        value = value.get("path")
    key = fields.get(columns.key) if columns.key is not None else None
    uid = fields.get(columns.uid) if columns.uid is not None else None
    return Entry(
        row=row,
        media=safe_text(value).strip() if isinstance(value, str) else "",
        captions=captions_of(fields.get(columns.caption)),
        key=None if key is None or key == "" else safe_text(str(key)),
        uid=uid.lower() if isinstance(uid, str) and _UID.fullmatch(uid) else None,
        cell=cell,
    )
