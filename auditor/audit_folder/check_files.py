"""Every file of an audit checked: against the list in the manifest, and against its own checksum."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from auditor.audit_folder.audit_files import listed_shards
from auditor.audit_folder.extra_columns import file_name, find_sources
from auditor.audit_folder.fault_records import FILE as FAULTS
from auditor.audit_folder.folder import Folder
from auditor.audit_folder.manifest import read_manifest

PARTS = ("embeddings", "samples")  # one file for every shard


@dataclass(frozen=True, slots=True)
class FileProblem:
    file: str
    problem: str


def check_files(folder: Folder) -> tuple[int, list[FileProblem]]:
    """How many files there are, and what is wrong with them."""
    manifest = read_manifest(folder)
    there = {part: folder.names(part, ".parquet") for part in PARTS}
    found = list(_against_list(there, listed_shards(manifest)))
    found += _columns(folder, there["samples"])
    files = [f"{part}/{name}.parquet" for part, names in there.items() for name in names] + beside(folder)
    for file in files:
        sound = folder.is_sound(file)
        if not sound:
            problem = "damaged: not the bytes that were written" if sound is False else "has no checksum: older version"
            found.append(FileProblem(file, problem))
    return len(files), found


def _against_list(there: dict[str, list[str]], listed: dict[str, int] | None) -> Iterator[FileProblem]:
    if listed is None:
        return
    known = set(listed)
    for part, names in there.items():
        yield from (FileProblem(f"{part}/{name}.parquet", "missing") for name in sorted(known - set(names)))
        yield from (FileProblem(f"{part}/{name}.parquet", "not of this audit") for name in sorted(set(names) - known))


def beside(folder: Folder) -> list[str]:
    """The files that not every shard, or not every audit, has: columns of others, duplicates, faults, overlaps."""
    parts = [*(f"columns/{source.name}" for source in find_sources(folder)), "duplicates", "overlap"]
    files = [f"{part}/{name}.parquet" for part in parts for name in folder.names(part, ".parquet")]
    return [*files, *([FAULTS] if folder.exists(FAULTS) else [])]


def _columns(folder: Folder, shards: list[str]) -> Iterator[FileProblem]:
    """Columns stand beside rows by their places: a file of another length would give rows the values of others."""
    known = set(shards)
    for source in find_sources(folder):
        for shard in source.files:
            file = file_name(source.name, shard)
            if shard in known and rows_of(folder, file) not in (None, rows_of(folder, f"samples/{shard}.parquet")):
                yield FileProblem(file, "has not as many rows as its shard: join its columns again")


def rows_of(folder: Folder, name: str) -> int | None:
    """None where the file cannot be read: its checksum says so too."""
    try:
        with folder.open_table(name) as file:
            count: int = file.metadata.num_rows
            return count
    except (OSError, pa.ArrowException):
        return None
