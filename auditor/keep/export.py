"""Write what a filter keeps, in the form its target asks for.

| target         | what is written                                                                                    |
|----------------|----------------------------------------------------------------------------------------------------|
| `kept.npy`     | DataComp's subset file: the sorted uids of the kept rows as an array of dtype u8,u8                |
| `kept.parquet` | the kept rows with all columns                                                                     |
| `kept.txt`     | the keys of the kept samples, one per line                                                         |
| `kept.csv`     | of a corpus that is a table its kept rows, in its own columns; also .tsv, .jsonl, .parquet if asked |
| a folder       | WebDataset shards with the kept samples and captions, and removed.parquet with the reasons         |

A sample with several captions has several rows: shards hold it with the captions that are kept, its medium byte for
byte. A list of keys cannot leave captions out.
"""

import csv
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from auditor.audit_folder.folder import Folder, split_target
from auditor.keep.export_shards import export_shards
from auditor.keep.export_table import write_table
from auditor.keep.export_target import (
    Exported,
    ExportError,
    Progress,
    copy_parquet,
    patient_sandbox,
    refuse_in_corpus,
    target_form,
)
from auditor.keep.kept_rows import KeptRows
from auditor.query.sandbox import name as quoted
from auditor.terminal import neutralize_formula

SHARD_SIZE = 10_000
MOST_ROWS = 1_048_575  # that a sheet of Excel or LibreOffice holds, beside its header

UID = np.dtype("u8,u8")
Uids = npt.NDArray[np.uint64]  # (N, 2)
Ints = npt.NDArray[np.int64]

WRONG = "error(concat('uid ', uid, ' is not 32 hex digits'))"
BYTES = f"CASE WHEN strlen(uid) = 32 THEN unhex(uid) ELSE {WRONG} END"  # SQL of a uid as 16 bytes


def export(
    kept: KeptRows,
    target: str | Path,
    *,
    force: bool = False,
    shard_size: int = SHARD_SIZE,
    input_columns: bool = False,
    progress: Progress | None = None,
) -> Exported:
    """Write what is kept; the form follows from the target's name. What exists is replaced only with `force`.

    `input_columns` gives a .parquet the rows and columns of the input table, which .csv, .tsv and .jsonl always have.
    """
    target = str(target)
    form = target_form(target)
    refuse_in_corpus(kept, target)
    if form == "webdataset":
        return export_shards(kept, Folder(target), shard_size=shard_size, force=force, progress=progress)
    folder, name = split_target(target)
    if folder.exists(name) and not force:
        raise ExportError(f"{target} exists; --force replaces it")
    own = {"npy": write_npy, "parquet": write_table if input_columns else write_parquet, "txt": write_txt}
    write = own.get(form, write_table)
    rows = write(kept, folder, name)
    captions = rows if write is write_parquet else kept.count  # which reads the audit once more
    return Exported(target, form, rows, captions=captions)


def write_npy(kept: KeptRows, folder: Folder, name: str) -> int:
    sql = f"SELECT {BYTES} FROM {kept.source} WHERE {kept.condition} AND uid IS NOT NULL"
    with patient_sandbox(kept) as sandbox:
        parts = [uid_numbers(batch.column(0)) for batch in sandbox.stream(sql)]
    uids = sort_uids(np.concatenate(parts) if parts else np.empty((0, 2), np.uint64))
    with folder.writing(name) as path, path.open("wb") as file:
        np.save(file, uids, allow_pickle=False)
    return len(uids)


def sort_uids(uids: Uids) -> npt.NDArray[np.void]:
    """Sorted, each once."""
    ordered = np.take(uids, uid_order(uids), axis=0)
    return as_records(ordered[first_of_each(ordered)])


def write_parquet(kept: KeptRows, folder: Folder, name: str) -> int:
    columns = ", ".join(quoted(column) for column in kept.database.columns)
    sql = f"SELECT {columns} FROM reviewed AS samples WHERE {kept.condition}"
    return copy_parquet(kept, folder, name, sql)


def write_txt(kept: KeptRows, folder: Folder, name: str) -> int:
    columns = "shard, key, media_path, media_offset"
    sql = f"SELECT DISTINCT {columns} FROM {kept.source} WHERE {kept.condition} ORDER BY ALL"
    count = 0
    with (
        patient_sandbox(kept) as sandbox,
        folder.writing(name) as path,
        path.open("w", encoding="utf-8", newline="\n") as file,
    ):
        for batch in sandbox.stream(sql):
            keys = batch.column("key").to_pylist()
            broken = next((key for key in keys if "\n" in key or "\r" in key), None)
            if broken is not None:
                raise ExportError(f"key {broken!r} has a line break; write .parquet instead of .txt")
            file.writelines(f"{key}\n" for key in keys)
            count += len(keys)
    return count


def export_csv(kept: KeptRows, target: str, *, force: bool = False) -> int:
    """Write the rows in the order of the corpus; returns how many."""
    folder, name = split_target(target)
    if not name.lower().endswith(".csv"):
        raise ExportError(f"{target} is no .csv")
    refuse_in_corpus(kept, target)
    if folder.exists(name) and not force:
        raise ExportError(f"{target} exists; --force replaces it")
    columns = kept.database.columns
    sql = f"SELECT {', '.join(map(quoted, columns))} FROM reviewed AS samples WHERE {kept.condition}"
    count = 0
    with (
        patient_sandbox(kept) as sandbox,
        folder.writing(name) as path,
        path.open("w", encoding="utf-8-sig", newline="") as file,
    ):
        writer = csv.writer(file)
        writer.writerow(columns)
        for batch in sandbox.stream(f"{sql} ORDER BY shard, key, caption_index"):
            writer.writerows([neutralize_formula(value) for value in row.values()] for row in batch.to_pylist())
            count += batch.num_rows
    return count


def uid_numbers(column: pa.Array) -> Uids:
    """16 bytes each -> (rows, 2), all at once from the column's buffer."""
    fixed = column.cast(pa.binary(16))
    numbers = np.frombuffer(fixed.buffers()[1], ">u8", 2 * len(fixed), 16 * fixed.offset)
    return numbers.reshape(-1, 2).astype(np.uint64)


def uid_order(uids: Uids) -> Ints:
    """What sorts them. By the first half alone it is five times faster, and right unless first halves repeat."""
    order = np.argsort(uids[:, 0])
    first = uids[order, 0]
    return np.lexsort((uids[:, 1], uids[:, 0])) if (first[1:] == first[:-1]).any() else order


def first_of_each(ordered: Uids) -> npt.NDArray[np.bool_]:
    """Which of sorted uids differ from the one before."""
    again = (ordered[1:, 0] == ordered[:-1, 0]) & (ordered[1:, 1] == ordered[:-1, 1])
    return np.concatenate([np.ones(min(1, len(ordered)), bool), ~again])


def as_records(uids: Uids) -> npt.NDArray[np.void]:
    return np.ascontiguousarray(uids).view(UID).reshape(-1)
