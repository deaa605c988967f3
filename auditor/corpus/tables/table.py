"""Tables with a column of media and a column of captions: CSV, TSV, JSON lines, Parquet.

Columns are found by their usual names or named in `CorpusOptions`. Paths are relative to the table.
"""

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from auditor.corpus.caption_text import dump_carried_fields, parse_uid, replace_unsafe
from auditor.corpus.file_names import guess_media_kind
from auditor.corpus.sample import Kind, Span
from auditor.corpus.shard import CorpusError, CorpusOptions
from auditor.corpus.tables.entry_shard import TableEntry
from auditor.corpus.timed_captions import looks_like_list, pair_texts_with_spans, parse_cell_spans, parse_list_cell

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
STARTS = (
    *("start", "start_time", "start_timestamp", "start_sec", "start_seconds", "begin", "clip_start", "t_start"),
    *("starts", "captions_starts"),
)
ENDS = (
    *("end", "end_time", "end_timestamp", "end_sec", "end_seconds", "stop", "clip_end", "t_end"),
    *("ends", "captions_ends"),
)
MAX_SHARD_TEXT = 2**28  # characters of a shard's captions: a few kilobytes of Parquet can expand to terabytes
PAIR_LISTS = ("timestamp", "timestamps", "clips", "segments", "spans")  # lists of [start, end]


@dataclass(frozen=True, slots=True)
class TableColumns:
    """The columns that have a role; `key` and `uid` are optional."""

    media: str
    captions: tuple[str, ...]  # one for each source
    key: str | None
    uid: str | None
    start: str | None = None
    end: str | None = None
    carry: tuple[str, ...] = ()
    guessed: bool = False  # the column of spans has an ambiguous name: only lists are spans

    @property
    def names(self) -> list[str]:
        columns = (self.media, *self.captions, self.key, self.uid, self.start, self.end, *self.carry)
        return list(dict.fromkeys(name for name in columns if name is not None))

    @property
    def default_kind(self) -> Kind:
        """The kind of a medium if neither its bytes nor its name shows it."""
        name = self.media.lower()
        return "video" if "video" in name or guess_media_kind(name) == "video" else "image"


def find_table_form(path: str) -> str | None:
    """Return `csv`, `tsv`, `jsonl` or `parquet` (also for Arrow) by the extension, or None if it is no table."""
    return FORMS.get(path.rpartition(".")[2].lower())


def choose_columns(table: str, columns: Sequence[str], options: CorpusOptions) -> TableColumns:
    """Choose the columns by the options, else by usual names. Raises CorpusError with the columns of the table."""
    columns_text = f"{table} has the columns {', '.join(map(repr, columns[:30]))}"
    captions = choose_named_columns(columns, options.caption_column)
    roles = (options.media_column, *captions, options.key_column)
    for column in (*roles, options.start_column, options.end_column, *options.carry):
        if column is not None and column not in columns:
            similar = difflib.get_close_matches(column, columns, n=1)
            hint = f"; did you mean {similar[0]!r}?" if similar else ""
            raise CorpusError(f"no column {column!r}: {columns_text}{hint}")
    start, end = _choose_span_columns(columns, options)
    # if there are spans, an id names the video and the url is that of a page; else the url is the better choice
    fallbacks = (*ID_NAMES, "url") if start else ("url", *ID_NAMES)
    media = options.media_column or find_usual_column((*MEDIA_NAMES, *fallbacks), columns)
    if media is None:
        raise CorpusError(f"which column holds the media? {columns_text}; name it with --media-column")
    if not captions:
        caption = find_usual_column(CAPTION_NAMES, [name for name in columns if name != media])
        if caption is None:
            raise CorpusError(f"which column holds the captions? {columns_text}; name it with --caption-column")
        captions = (caption,)
    key = options.key_column or find_usual_column(KEY_NAMES, columns)
    guessed = start is not None and end is None and options.start_column is None
    return TableColumns(media, captions, key, find_usual_column(("uid",), columns), start, end, options.carry, guessed)


def choose_named_columns(columns: Sequence[str], names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the columns that an option names; a single one may have commas in its name."""
    with_commas = (column for column in columns if tuple(map(str.strip, column.split(","))) == names)
    return tuple(with_commas)[:1] or names


def _choose_span_columns(columns: Sequence[str], options: CorpusOptions) -> tuple[str | None, str | None]:
    """Return the columns of start and end; only the first if it lists pairs of both."""
    start = options.start_column or find_usual_column(STARTS, columns)
    end = options.end_column or find_usual_column(ENDS, columns)
    if options.start_column or options.end_column:
        if start is None:
            raise CorpusError("--end-column needs --start-column")
        return start, end
    return (start, end) if start and end else (find_usual_column(PAIR_LISTS, columns), None)


def find_usual_column(names: Sequence[str], columns: Sequence[str]) -> str | None:
    """Return the column with the first matching usual name, in any spelling: `video_id`, `Video ID`."""
    lower = {column.lower().replace(" ", "_").replace("-", "_"): column for column in reversed(columns)}
    return next((lower[name] for name in names if name in lower), None)


def build_entry(row: int, fields: dict[str, Any], columns: TableColumns) -> TableEntry:
    """Build the entry of a row. Of Hugging Face's struct of bytes and path, only the path is used."""
    value = fields.get(columns.media)
    if isinstance(value, dict):
        value = value.get("path")
    key = fields.get(columns.key) if columns.key is not None else None
    uid = parse_uid(fields.get(columns.uid)) if columns.uid is not None else None
    captions = [(name, *caption) for name in columns.captions for caption in _read_row_captions(fields, name, columns)]
    carried = dump_carried_fields(fields, columns.carry)
    return TableEntry(
        row=row,
        media=replace_unsafe(str(value)).strip() if isinstance(value, str | int) else "",
        captions=tuple(text for *_, text, _ in captions),
        carried=(carried,) * max(1, len(captions)) if columns.carry else (),
        places=tuple((row, place) for _, place, *_ in captions),
        key=None if key is None or key == "" else str(key),
        uid=uid,
        uids=(uid, *[None] * (len(captions) - 1)) if captions else (),
        spans=tuple(span for *_, span in captions) if columns.start is not None else (),
        sources=tuple(name for name, *_ in captions) if len(columns.captions) > 1 else (),
    )


def limit_text(entries: Iterable[TableEntry]) -> Iterator[TableEntry]:
    """Yield the entries of a shard; those beyond MAX_SHARD_TEXT lose their captions, and say so."""
    size = 0
    for entry in entries:
        size += sum(len(text or "") for text in (*entry.captions, *entry.carried))
        if size > MAX_SHARD_TEXT:
            reason = f"its shard has over {MAX_SHARD_TEXT:,} characters of captions: use a smaller --shard-size"
            entry = replace(entry, captions=(), carried=(), places=(), uids=(), spans=(), sources=(), defect=reason)
        yield entry


def _read_row_captions(
    fields: dict[str, Any], column: str, columns: TableColumns
) -> list[tuple[int, str, Span | None]]:
    """Return (place in its cell, text, span) of each caption; a row without times describes the whole video."""
    text, start = fields.get(column), fields.get(columns.start or "")
    end = fields.get(columns.end or "")
    if columns.start is None or (columns.guessed and not looks_like_list(start)):
        return pair_texts_with_spans(text if isinstance(text, list | tuple) else [text], (None,))
    if start in (None, "") and end in (None, ""):
        return pair_texts_with_spans(parse_list_cell(text), (None,))
    spans = parse_cell_spans(start, "" if columns.end and end is None else end)
    return pair_texts_with_spans(parse_list_cell(text), spans)
