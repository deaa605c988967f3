"""Every file of an audit checked: against the list in the manifest, and against its own checksum."""

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.store.audit_files import listed_shards
from auditor.store.folder import Folder
from auditor.store.manifest import read_manifest

PARTS = ("embeddings", "samples")


@dataclass(frozen=True, slots=True)
class FileProblem:
    file: str
    problem: str


def check_files(folder: Folder) -> tuple[int, list[FileProblem]]:
    """How many files there are, and what is wrong with them."""
    manifest = read_manifest(folder)
    there = {part: folder.names(part, ".parquet") for part in PARTS}
    found = list(_against_list(there, listed_shards(manifest)))
    files = [f"{part}/{name}.parquet" for part, names in there.items() for name in names]
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
