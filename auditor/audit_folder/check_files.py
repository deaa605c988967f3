"""Check every file of an audit against the list in the manifest and against its own checksum."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from auditor.audit_folder.audit_files import get_listed_shards
from auditor.audit_folder.extra_columns import find_column_sources, name_column_file
from auditor.audit_folder.fault_records import FILE as FAULTS
from auditor.audit_folder.folder import Folder, StoreError
from auditor.audit_folder.manifest import read_manifest
from auditor.errors import AuditorError
from auditor.schema import COLUMNS

ROUNDING = 1e-3  # of float32


@dataclass(frozen=True, slots=True)
class FileProblem:
    file: str
    problem: str


def check_audit_files(folder: Folder) -> tuple[int, list[FileProblem]]:
    manifest = read_manifest(folder)
    names = {part: folder.names(part, ".parquet") for part in ("embeddings", "samples")}  # one file per shard
    problems = list(_compare_with_manifest(names, get_listed_shards(manifest)))
    problems += _check_column_rows(folder, names["samples"])
    files = [f"{part}/{name}.parquet" for part in names for name in names[part]]
    parts = [*(f"columns/{source.name}" for source in find_column_sources(folder)), "duplicates", "overlap"]
    files += [f"{part}/{name}.parquet" for part in parts for name in folder.names(part, ".parquet")]
    files += [FAULTS] if folder.exists(FAULTS) else []
    for file in files:
        try:
            sound = folder.is_sound(file)
        except StoreError as error:
            problems.append(FileProblem(file, str(error)))
            continue
        if not sound:
            problem = "damaged: not the bytes that were written" if sound is False else "has no checksum"
            problems.append(FileProblem(file, problem))
        if file.startswith("samples/") and sound is not False:
            problems += _check_values(folder, file)
    return len(files), problems


def _check_values(folder: Folder, file: str) -> Iterator[FileProblem]:
    """Yield the columns of a samples file with a value that they cannot have."""
    ranges = {name: ends for name, column in COLUMNS.items() if (ends := column.value_range)}
    try:
        with folder.open_table(file) as table:
            columns = [name for name in ranges if name in table.schema_arrow.names]
            values = table.read(columns)
    except (AuditorError, OSError, pa.ArrowException) as error:
        yield FileProblem(file, str(error))
        return
    for name in columns:
        low, high = ranges[name]
        column = values[name].drop_null().to_numpy()
        if not ((column >= low - ROUNDING) & (column <= high + ROUNDING)).all():
            yield FileProblem(file, f"{name} has values outside {low:g} to {high:g}")


def _compare_with_manifest(names_by_part: dict[str, list[str]], listed: dict[str, int] | None) -> Iterator[FileProblem]:
    if listed is None:
        return
    shards = set(listed)
    for part, names in names_by_part.items():
        yield from (FileProblem(f"{part}/{name}.parquet", "missing") for name in sorted(shards - set(names)))
        foreign = sorted(set(names) - shards)
        yield from (FileProblem(f"{part}/{name}.parquet", "does not belong to this audit") for name in foreign)


def _check_column_rows(folder: Folder, shards: list[str]) -> Iterator[FileProblem]:
    """Yield files of extra columns with a wrong number of rows: values belong to rows by position."""
    sample_shards = set(shards)
    for source in find_column_sources(folder):
        for shard in source.files:
            file = name_column_file(source.name, shard)
            files = [file, f"samples/{shard}.parquet"] if shard in sample_shards else []
            counts = {count_file_rows(folder, name) for name in files}
            if len(counts) > 1 and None not in counts:
                yield FileProblem(file, "has another number of rows than its shard: join its columns again")


def count_file_rows(folder: Folder, name: str) -> int | None:
    """Return the number of rows, or None if the file cannot be read (its checksum is then wrong, too)."""
    try:
        with folder.open_table(name) as file:
            count: int = file.metadata.num_rows
            return count
    except (OSError, pa.ArrowException):
        return None
