"""Write the kept rows of a table corpus as a table with the same columns: CSV, TSV, JSON lines or Parquet.

The table is read again and its cells are written unchanged, except that captions change as in every export, and that
lists of captions, and their spans, are reduced to the kept ones. Relative paths stay relative to the audited table.
"""

import csv
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from auditor.audit_folder.folder import Folder
from auditor.corpus.corpus_files import make_path_absolute
from auditor.corpus.corpus_spec import split_prefix
from auditor.corpus.open_corpus import CorpusError, open_corpus
from auditor.corpus.read_medium import MediaError
from auditor.corpus.tables.entry_shard import merge_entries
from auditor.corpus.tables.parquet_table import ParquetShard
from auditor.corpus.tables.text_table import TextShard
from auditor.corpus.timed_captions import parse_list_cell
from auditor.keep.export_target import ExportError
from auditor.keep.kept_rows import KeptRows, load_corpus_options

Row = dict[str, Any]
TableShard = TextShard | ParquetShard
CellCaptions = dict[int, str | None]  # index of a kept caption in its cell -> its new text, if it changes
KeptPlaces = dict[int, CellCaptions]  # by the row of the table


def export_input_table(subset: KeptRows, folder: Folder, name: str) -> int:
    form = name.rpartition(".")[2].lower()
    shards = open_table_shards(subset)
    columns = list(dict.fromkeys(column for shard in shards for column in shard.column_names()))
    with folder.writing(name) as path:
        if form == "parquet":
            return write_input_parquet(str(path), subset, shards)
        with path.open("w", encoding="utf-8", newline="") as file:
            if form == "jsonl":
                return sum(file.write(f"{dump_json(row)}\n") > 0 for row in read_kept_rows(subset, shards))
            writer = csv.DictWriter(file, columns, delimiter=choose_delimiter(form, shards), lineterminator="\n")
            if not any(isinstance(shard, TextShard) and shard.dialect.numbered for shard in shards):
                writer.writeheader()
            return sum(writer.writerow(flatten_cells(row)) > 0 for row in read_kept_rows(subset, shards))


def choose_delimiter(form: str, shards: Sequence[TableShard]) -> str:
    """A tab for .tsv; for .csv the delimiter of the audited tables, if all have the same and it is not a tab."""
    delimiters = {shard.dialect.delimiter for shard in shards if isinstance(shard, TextShard)} - {"\t"}
    return "\t" if form == "tsv" else delimiters.pop() if len(delimiters) == 1 else ","


def open_table_shards(subset: KeptRows) -> list[TableShard]:
    """The shards of the corpus as it is now; refuses a corpus that is not a table."""
    spec = subset.database.manifest.get("corpus", {}).get("spec") or ""
    prefix, parts = split_prefix(spec)
    try:
        spec = prefix + "::".join(subset.database.places.locate(make_path_absolute(part)) for part in parts)
        shards = list(open_corpus(spec, load_corpus_options(subset.database)).shards)
    except (CorpusError, MediaError) as error:
        raise ExportError(
            f"the table cannot be read again ({error}); name its new root with --corpus NEW_ROOT"
        ) from None
    tables = [shard for shard in shards if isinstance(shard, TextShard | ParquetShard)]
    if len(tables) < len(shards) or not tables:
        raise ExportError(f"{spec} is not a table, so it has no rows to write: choose .npy, .parquet, .txt or a folder")
    return tables


def find_kept_captions(subset: KeptRows, shard: TableShard) -> KeptPlaces:
    table = subset.shard(shard.name).table
    columns = (table[name].to_pylist() for name in ("key", "numbers", "changes"))
    numbers = {key: list(zip(numbers, texts, strict=True)) for key, numbers, texts in zip(*columns, strict=True)}
    places_by_row: KeptPlaces = {}
    for key, occurrence, entry in merge_entries(shard.folder, shard.entries()) if numbers else ():
        for number, text in numbers.get(key, ()) if occurrence == 0 else ():
            if number >= len(entry.places):
                raise ExportError(f"{shard.path} has changed since it was audited; audit it again")
            row, place = entry.places[number]
            places_by_row.setdefault(row, {})[place] = text
    return places_by_row


def read_kept_rows(subset: KeptRows, shards: list[TableShard]) -> Iterator[Row]:
    for shard in shards:
        places_by_row = find_kept_captions(subset, shard)
        column, timed = shard.columns.caption, shard.columns.start is not None  # captions may have spans
        for number, fields in shard.rows() if places_by_row else ():
            if number in places_by_row:
                yield select_captions(fields, column, places_by_row[number], timed=timed)


def select_captions(fields: Row, column: str, captions: CellCaptions, *, timed: bool) -> Row:
    """Reduce a row to its kept captions, with their new texts; a plain text is one caption.

    With timed captions, other cells that list as many values (spans, scores) are reduced alike.
    """
    total = len(parse_cell(fields[column], timed))
    if not is_list_cell(fields[column], timed):
        return {**fields, column: next(iter(captions.values())) or fields[column]}
    if len(captions) == total and not any(captions.values()):
        return fields
    names = [name for name in fields if timed and len(parse_cell(fields[name], timed)) == total] if total > 1 else []
    selected = {name: select_items(fields[name], dict.fromkeys(captions)) for name in names}
    return {**fields, **selected, column: select_items(fields[column], captions)}


def is_list_cell(cell: Any, timed: bool) -> bool:
    return isinstance(cell, list) or (timed and parse_list_cell(cell) != [cell])


def parse_cell(cell: Any, timed: bool) -> list[Any]:
    return parse_list_cell(cell) if is_list_cell(cell, timed) else [cell]


def select_items(cell: Any, captions: CellCaptions) -> Any:
    """The items at some places of a list, in the notation of the cell: a list, or text in JSON or Python syntax."""
    items = parse_list_cell(cell)
    chosen = [items[place] if text is None else text for place, text in captions.items()]
    if not isinstance(cell, str):
        return chosen
    with suppress(ValueError):
        json.loads(cell)
        return json.dumps(chosen, ensure_ascii=False)
    return repr(chosen)


def dump_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=stringify_value)


def flatten_cells(row: Row) -> Row:
    """The cells of a CSV row: lists and records as JSON."""
    return {name: dump_json(value) if isinstance(value, list | dict | bytes) else value for name, value in row.items()}


def stringify_value(value: Any) -> str:
    if isinstance(value, bytes):
        raise ExportError(
            "the table holds the bytes of its media, which text formats cannot hold: write .parquet --input-columns"
        )
    return str(value)


def write_input_parquet(path: str, subset: KeptRows, shards: list[TableShard]) -> int:
    """Write Parquet, with the types of the input table if that is Parquet too."""
    count, writer = 0, None
    with ExitStack() as stack:
        for shard in shards:
            rows = list(read_kept_rows(subset, [shard]))
            schema = shard.schema() if isinstance(shard, ParquetShard) else writer and writer.schema
            if rows or schema:
                table = pa.Table.from_pylist(rows, schema=schema)
                writer = writer or stack.enter_context(pq.ParquetWriter(path, table.schema))
                writer.write_table(table)
                count += len(rows)
    if writer is None:
        pq.write_table(pa.table({}), path)
    return count
