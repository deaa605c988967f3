"""The kept rows of a corpus that is a table, as a table of the same columns: CSV, TSV, JSON lines or Parquet.

The table is read again and its cells are written as they are; of a cell that holds a list of captions the kept ones
stay, and with them their spans. Paths in it are relative to the table that was audited.
"""

import csv
import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from auditor.audit_folder.folder import Folder
from auditor.corpus.open_corpus import CorpusError, open_corpus
from auditor.corpus.read_medium import moved
from auditor.corpus.tables.entry_shard import merged
from auditor.corpus.tables.parquet_table import ParquetShard
from auditor.corpus.tables.text_table import TextShard
from auditor.corpus.timed_captions import listed
from auditor.keep.export_target import ExportError
from auditor.keep.kept_rows import KeptRows, reading_options

Row = dict[str, Any]
TableShard = TextShard | ParquetShard
Wanted = dict[int, list[int]]  # row of the table -> which of its captions


def write_table(kept: KeptRows, folder: Folder, name: str) -> int:
    """Write the rows; returns how many there are."""
    form = name.rpartition(".")[2].lower()
    shards = table_shards(kept)
    columns = list(dict.fromkeys(column for shard in shards for column in shard.column_names()))
    with folder.writing(name) as path:
        if form == "parquet":
            return write_parquet(str(path), kept, shards)
        with path.open("w", encoding="utf-8", newline="") as file:
            if form == "jsonl":
                return sum(file.write(line(row)) > 0 for row in kept_rows(kept, shards))
            writer = csv.DictWriter(file, columns, delimiter="\t" if form == "tsv" else ",", lineterminator="\n")
            if not any(isinstance(shard, TextShard) and shard.dialect.numbered for shard in shards):
                writer.writeheader()
            return sum(writer.writerow(flat(row)) > 0 for row in kept_rows(kept, shards))


def table_shards(kept: KeptRows) -> list[TableShard]:
    """The shards of the corpus as it is now; refuses one that is not a table."""
    spec, place = kept.database.manifest.get("corpus", {}).get("spec") or "", kept.database.moved_to
    if place:
        spec = "::".join(moved(part, place, kept.database.old_root) for part in spec.split("::"))
    try:
        found = list(open_corpus(spec, reading_options(kept.database)).shards)
    except CorpusError as error:
        raise ExportError(f"the table cannot be read again ({error}); say where it is with --corpus NEW_ROOT") from None
    tables = [shard for shard in found if isinstance(shard, TextShard | ParquetShard)]
    if len(tables) < len(found) or not tables:
        raise ExportError(f"{spec} is not a table, so it has no rows to write: choose .npy, .parquet, .txt or a folder")
    return tables


def wanted_rows(kept: KeptRows, shard: TableShard) -> Wanted:
    """The rows of a shard that a kept caption stands in."""
    table = kept.shard(shard.name).table
    numbers = dict(zip(table["key"].to_pylist(), table["numbers"].to_pylist(), strict=True))
    wanted: Wanted = {}
    for key, occurrence, entry in merged(shard.folder, shard.entries()) if numbers else ():
        for number in numbers.get(key, ()) if occurrence == 0 else ():
            if number >= len(entry.places):
                raise ExportError(f"{shard.path} has changed since it was audited; audit it again")
            row, place = entry.places[number]
            wanted.setdefault(row, []).append(place)
    return wanted


def kept_rows(kept: KeptRows, shards: list[TableShard]) -> Iterator[Row]:
    for shard in shards:
        wanted = wanted_rows(kept, shard)
        timed = shard.timed
        for number, fields in shard.rows() if wanted else ():
            if number in wanted:
                yield with_some(fields, shard.caption_column, wanted[number], timed=timed)


def with_some(fields: Row, column: str, places: list[int], *, timed: bool) -> Row:
    """A row with the captions at some places of their cell; a text is one caption.

    Beside timed captions, cells that list as many values (spans, scores) keep those of the same places.
    """
    total = len(cell_list(fields[column], timed))
    if len(places) == total or not is_list(fields[column], timed):
        return fields
    names = [name for name in fields if timed and len(cell_list(fields[name], timed)) == total] if total > 1 else []
    return {**fields, **{name: some(fields[name], places) for name in (column, *names)}}


def is_list(cell: Any, timed: bool) -> bool:
    return isinstance(cell, list) or (timed and listed(cell) != [cell])


def cell_list(cell: Any, timed: bool) -> list[Any]:
    return listed(cell) if is_list(cell, timed) else [cell]


def some(cell: Any, places: list[int]) -> Any:
    """What stands at some places of a list, written as it was: a list, or a text in JSON's or Python's notation."""
    chosen = [listed(cell)[place] for place in places]
    if not isinstance(cell, str):
        return chosen
    with suppress(ValueError):
        json.loads(cell)
        return json.dumps(chosen, ensure_ascii=False)
    return repr(chosen)


def line(row: Row) -> str:
    return json.dumps(row, ensure_ascii=False, default=unwritable) + "\n"


def flat(row: Row) -> Row:
    """Cells of a CSV: lists and records as JSON."""
    return {
        name: json.dumps(value, ensure_ascii=False, default=unwritable)
        if isinstance(value, list | dict)
        else text(value)
        for name, value in row.items()
    }


def text(value: Any) -> Any:
    return unwritable(value) if isinstance(value, bytes) else value


def unwritable(value: Any) -> str:
    if isinstance(value, bytes):
        raise ExportError("the table holds the bytes of its media, which a text cannot: write .parquet --input-columns")
    return str(value)


def write_parquet(path: str, kept: KeptRows, shards: list[TableShard]) -> int:
    """With the types of the table, where it is Parquet."""
    count, writer = 0, None
    try:
        for shard in shards:
            rows = list(kept_rows(kept, [shard]))
            schema = shard.schema() if isinstance(shard, ParquetShard) else writer and writer.schema
            table = pa.Table.from_pylist(rows, schema=schema) if rows or schema else None
            if table is not None:
                writer = writer or pq.ParquetWriter(path, table.schema)
                writer.write_table(table)
                count += table.num_rows
    finally:
        with suppress(AttributeError):
            writer.close()  # type: ignore[union-attr]
    if writer is None:
        pq.write_table(pa.table({}), path)
    return count
