"""Export what a filter keeps; the name of the target selects the form.

| target         | what is written                                                                                     |
|----------------|-----------------------------------------------------------------------------------------------------|
| `kept.npy`     | DataComp's subset file: the sorted uids of the kept rows as an array of dtype u8,u8                 |
| `kept.parquet` | the kept rows with all columns that hold a value in the audit                                       |
| `kept.txt`     | the keys of the kept samples, one per line                                                          |
| `kept.csv`     | the kept rows of a table corpus in its own columns; also .tsv, .jsonl, .parquet with input_columns  |
| a folder       | WebDataset shards with the kept samples and captions, and removed.parquet with the reasons          |

A sample with several captions has several rows: shards hold it with its kept captions and its medium unchanged. A list
of keys cannot omit captions.
"""

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from auditor.audit_folder.folder import Folder
from auditor.audit_folder.hub import HUB, stage_upload
from auditor.keep.export_shards import export_shards
from auditor.keep.export_table import export_input_table
from auditor.keep.export_target import (
    ExportError,
    ExportResult,
    Progress,
    check_outside_corpus,
    copy_to_parquet,
    open_target_file,
    parse_target_form,
)
from auditor.keep.kept_rows import MEDIUM, KeptRows
from auditor.query.database import AuditDatabase
from auditor.query.sample_tables import build_source_sql
from auditor.query.sandbox import quote_name
from auditor.terminal import neutralize_formula

SHARD_SIZE = 10_000
MOST_ROWS = 1_048_575  # rows of a sheet of Excel or LibreOffice, without the header

Uids = npt.NDArray[np.uint64]  # (N, 2)
Ints = npt.NDArray[np.int64]

WRONG = "error(concat('uid ', uid, ' is not 32 hex digits'))"
BYTES = f"CASE WHEN strlen(uid) = 32 THEN unhex(uid) ELSE {WRONG} END"  # SQL: a uid as 16 bytes


def export_subset(
    subset: KeptRows,
    target: str | Path,
    *,
    force: bool = False,
    shard_size: int = SHARD_SIZE,
    input_columns: bool = False,
    progress: Progress | None = None,
) -> ExportResult:
    """Write the kept rows in the form of the target's name; an existing target is replaced only with `force`.

    With `input_columns`, a .parquet gets the rows and columns of the input table, as .csv, .tsv and .jsonl always do.
    """
    target = str(target)
    form = parse_target_form(target)
    if input_columns and form in ("npy", "txt", "webdataset"):
        raise ExportError(f"{target} cannot hold the columns of the input table: name a .parquet")
    if target.startswith(HUB):
        options: dict[str, Any] = {"shard_size": shard_size, "input_columns": input_columns, "progress": progress}
        with stage_upload(target, is_folder=form == "webdataset", force=force) as local:
            return replace(export_subset(subset, local, **options), target=target)
    if form == "webdataset":
        check_outside_corpus(subset, target)
        return export_shards(subset, Folder(target), shard_size=shard_size, force=force, progress=progress)
    folder, name = open_target_file(subset, target, force)
    if form == "parquet" and not input_columns:
        return replace(write_filled_columns(subset, folder, name), target=target)
    write = {"npy": write_uid_array, "txt": write_key_list}.get(form, export_input_table)
    rows = write(subset, folder, name)
    return ExportResult(target, form, rows, captions=subset.count, changes=subset.change_counts)


def write_filled_columns(subset: KeptRows, folder: Folder, name: str) -> ExportResult:
    """Write the kept rows to Parquet, without the columns that have no value in any row of the audit.

    The file's metadata names them (`empty_columns`). All exports of an audit have the same columns, whatever they keep.
    """
    empty = find_empty_columns(subset.database)
    empty_columns = tuple(column for column in subset.columns if column in empty and not subset.changes.select(column))
    columns = [column for column in subset.columns if column not in empty_columns]
    rows = copy_to_parquet(subset, folder, name, subset.select_sql(columns), ", ".join(empty_columns))
    return ExportResult("", "parquet", rows, 0, rows, subset.change_counts, empty_columns)


def find_empty_columns(database: AuditDatabase) -> set[str]:
    """Return the stored columns that have no value in any row. Only those without one in the first file are read."""
    empty = list(database.files.columns)
    for files in (database.files.only([0]), database.files):
        counts = ", ".join(f"count({name}) AS {name}" for name in map(quote_name, empty)) or "0"
        row = database.stored_rows("values", f"SELECT {counts} FROM ({build_source_sql(files)})")[0]
        empty = [column for column in empty if not row[column]]
    return set(empty)


def write_uid_array(subset: KeptRows, folder: Folder, name: str) -> int:
    batches = subset.stream(f"SELECT {BYTES} FROM {subset.from_clause} AND uid IS NOT NULL")
    uids = sort_uids(np.concatenate([np.empty((0, 2), np.uint64), *(parse_uids(batch.column(0)) for batch in batches)]))
    save_uids(uids, folder, name)
    return len(uids)


def sort_uids(uids: Uids) -> Uids:
    """Sort uids and remove repetitions."""
    ordered = uids[argsort_uids(uids)]
    return ordered[mark_first_uids(ordered)]


def write_key_list(subset: KeptRows, folder: Folder, name: str) -> int:
    count = 0
    with folder.writing(name) as path, path.open("w", encoding="utf-8", newline="\n") as file:
        for batch in subset.stream(f"SELECT DISTINCT {MEDIUM} FROM {subset.from_clause} ORDER BY ALL"):
            keys = batch.column("key").to_pylist()
            broken = next((key for key in keys if "\n" in key or "\r" in key), None)
            if broken is not None:
                raise ExportError(f"key {broken!r} contains a line break; write .parquet instead of .txt")
            file.writelines(f"{key}\n" for key in keys)
            count += len(keys)
    return count


def export_csv(subset: KeptRows, target: str, *, force: bool = False) -> int:
    """Write the kept rows with all columns to a CSV for spreadsheets; returns their number.

    The file is UTF-8 with a byte order mark, and no cell is a formula.
    """
    if not target.lower().endswith(".csv"):
        raise ExportError(f"{target} is not a .csv file")
    folder, name = open_target_file(subset, target, force)
    columns = subset.columns
    count = 0
    with folder.writing(name) as path, path.open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for batch in subset.stream(f"{subset.select_sql(columns)} ORDER BY shard, key, caption_index"):
            writer.writerows([neutralize_formula(value) for value in row.values()] for row in batch.to_pylist())
            count += batch.num_rows
    return count


def parse_uids(column: pa.Array) -> Uids:
    """Uids of 16 bytes as two 64-bit numbers each, (rows, 2), as DataComp's subset files hold them (dtype u8,u8)."""
    fixed = column.cast(pa.binary(16))
    numbers = np.frombuffer(fixed.buffers()[1], ">u8", 2 * len(fixed), 16 * fixed.offset)
    return numbers.reshape(-1, 2).astype(np.uint64)


def argsort_uids(uids: Uids) -> Ints:
    """The order that sorts uids; by the first half alone, which is five times faster, unless first halves repeat."""
    order = np.argsort(uids[:, 0])
    first = uids[order, 0]
    return np.lexsort((uids[:, 1], uids[:, 0])) if (first[1:] == first[:-1]).any() else order


def mark_first_uids(ordered: Uids) -> npt.NDArray[np.bool_]:
    """Mark the sorted uids that differ from their predecessor."""
    return np.append(True, (ordered[1:] != ordered[:-1]).any(axis=1))[: len(ordered)]


def save_uids(uids: Uids, folder: Folder, name: str) -> None:
    with folder.writing(name) as path, path.open("wb") as file:
        # as np.save does, whose error on a full disk does not say that it is full
        array = np.ascontiguousarray(uids).view("u8,u8").reshape(-1)
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
        file.write(array.view(np.uint8).data)
