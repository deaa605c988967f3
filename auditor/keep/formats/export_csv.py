"""The kept rows with all columns of the audit as a CSV for spreadsheets: UTF-8 with a mark, no cell a formula."""

import csv

from auditor.audit_folder.folder import split_target
from auditor.keep.export_target import ExportError, patient_sandbox, refuse_in_corpus
from auditor.keep.kept_rows import KeptRows
from auditor.query.sandbox import name as quoted
from auditor.say import inert

MOST_ROWS = 1_048_575  # that a sheet of Excel or LibreOffice holds, beside its header


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
            writer.writerows([inert(value) for value in row.values()] for row in batch.to_pylist())
            count += batch.num_rows
    return count
