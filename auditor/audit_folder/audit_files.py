"""Find the files of an audit, local or remote: its manifest, and the shards that are swept and scored.

An unfinished audit has shards that are swept but not scored; readers show their facts with empty scores.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from auditor.audit_folder.correction import apply_correction, read_correction
from auditor.audit_folder.extra_columns import ColumnSource, find_column_sources
from auditor.audit_folder.folder import Folder
from auditor.audit_folder.manifest import read_manifest
from auditor.errors import AuditError
from auditor.schema import FACTS, STORED


@dataclass(frozen=True)
class AuditFiles:
    """The files of an audit. DuckDB can open their paths, through `filesystem` if the audit is remote."""

    path: str  # as the user wrote it
    folder: Folder
    manifest: dict[str, Any]
    scored: tuple[str, ...]  # samples/*.parquet
    swept: tuple[str, ...]  # embeddings/*.parquet of shards that are not scored yet
    columns: tuple[str, ...]  # of samples/, in stored order
    swept_columns: tuple[str, ...] = FACTS  # of embeddings/, without vectors
    correction: dict[str, Any] | None = None  # of p_mismatch, from labels
    sources: tuple[ColumnSource, ...] = ()  # of columns that the auditor does not compute
    foreign: tuple[str, ...] = ()  # files that the manifest does not list: not read
    missing: tuple[str, ...] = ()  # shards that the manifest lists but that have no file

    @property
    def filesystem(self) -> Any:
        """The fsspec file system, or None if the audit is local."""
        return None if self.folder.local else self.folder.fs

    @property
    def all(self) -> list[str]:
        return [*self.scored, *self.swept]

    @property
    def readable(self) -> list[str]:
        """All files that a query on the audit may read."""
        return [*self.all, *(file for source in self.sources for file in source.files.values())]

    @property
    def extra_columns(self) -> dict[str, str]:
        return {name: kind for source in self.sources for name, kind in source.columns.items()}

    def shard(self, shard: str) -> "AuditFiles":
        return self.only([number for number, file in enumerate(self.all) if get_shard_name(file) == shard])

    def only(self, numbers: Sequence[int]) -> "AuditFiles":
        """Return the audit with some of its files, by their positions in `all`; their order stays."""
        positions = set(numbers)
        scored = tuple(file for number, file in enumerate(self.scored) if number in positions)
        swept = tuple(file for number, file in enumerate(self.swept, len(self.scored)) if number in positions)
        return replace(self, scored=scored, swept=swept)


def get_shard_name(path: str) -> str:
    return path.rsplit("/", 1)[-1].removesuffix(".parquet")


def find_audit_files(path: str | Path) -> AuditFiles:
    """Read the manifest and list the shards. Raises AuditError if there is no audit."""
    folder = Folder(path)
    manifest = read_manifest(folder)
    correction = read_correction(folder, manifest)
    listed = get_listed_shards(manifest)
    names = {part: folder.names(part, ".parquet") for part in ("samples", "embeddings")}
    shards = {part: [name for name in names[part] if listed is None or name in listed] for part in names}
    samples, swept = shards["samples"], sorted(set(shards["embeddings"]) - set(shards["samples"]))
    return AuditFiles(
        path=str(path),
        folder=folder,
        manifest=apply_correction(manifest, correction) if correction else manifest,
        scored=tuple(folder.address(f"samples/{shard}.parquet") for shard in samples),
        swept=tuple(folder.address(f"embeddings/{shard}.parquet") for shard in swept),
        columns=read_file_columns(folder, f"samples/{samples[0]}.parquet") if samples else STORED,
        correction=correction,
        sources=find_column_sources(folder),
        foreign=tuple(f"{part}/{name}.parquet" for part in names for name in names[part] if name not in shards[part]),
        missing=tuple(sorted(set(listed or ()) - {*samples, *swept})),
        swept_columns=read_file_columns(folder, f"embeddings/{swept[0]}.parquet") if swept else FACTS,
    )


def get_listed_shards(manifest: Mapping[str, Any]) -> dict[str, int] | None:
    """Return the number of rows of each shard of an audit, or None during the sweep."""
    listed = manifest.get("shards")
    return listed if isinstance(listed, dict) and listed and manifest.get("state") != "sweeping" else None


def find_swept_shards(folder: Folder) -> list[str]:
    """Return the shards of an audit that have embeddings. Raises AuditError if only some of them have."""
    listed = get_listed_shards(read_manifest(folder))
    names = folder.names("embeddings", ".parquet")
    if listed is None:
        return names
    missing = sorted(set(listed).difference(names))
    if missing and len(missing) < len(listed):  # an audit without any embeddings can still be read
        raise AuditError(
            f"the embeddings of {len(missing):,} shards of {folder.url} are missing, such as {missing[0]}: "
            "run the same `auditor audit` command again"
        )
    return [name for name in names if name in listed]


def read_file_columns(folder: Folder, name: str) -> tuple[str, ...]:
    try:
        return tuple(folder.table_schema(name).names)
    except (OSError, pa.ArrowException) as error:
        raise AuditError(f"{folder.path(name)} cannot be read: {' '.join(str(error).split())}") from None


def list_audit_notes(files: AuditFiles) -> list[str]:
    """List the warnings about the numbers of an audit: unfinished, failed shards, unused evidence."""
    manifest, notes = files.manifest, list[str]()
    if manifest.get("scoring"):
        model = manifest["scoring"].get("model")
        notes.append(
            "this audit is being scored again" + (f" with {model}" if model else "") + ": some shards have the new "
            "scores, some the old; if scoring was interrupted, `auditor score` with the same options finishes it"
        )
    elif manifest.get("state") != "complete":
        shards = manifest.get("corpus", {}).get("shards")
        total = f" of {shards:,}" if isinstance(shards, int) else ""
        notes.append(
            f"this audit is not finished (state: {manifest.get('state')}): {len(files.all):,}{total} shards are here"
            + (f", {len(files.swept):,} of them not scored yet" if files.swept else "")
        )
    notes += describe_unexpected_files(files)
    failed = manifest.get("failed_shards") or []
    if failed:
        notes.append(f"{len(failed):,} shards failed, the first of them {failed[0].get('shard')}")
    if manifest.get("state") == "complete" and manifest.get("sample"):
        notes.append(describe_sample(manifest))
    if manifest.get("state") == "complete" and (manifest.get("settings") or {}).get("words", 0) is None:
        notes.append("captions were judged without their single words: the model has no text encoder for them")
    return notes


def describe_sample(manifest: dict[str, Any]) -> str:
    """Say what the sample is of, and what a full audit would cost."""
    sample, keys, shards = manifest["sample"], manifest["counts"]["keys"], manifest["corpus"]["shards"]
    scale = sample["of_shards"] / shards / sample["fraction"]
    return (
        f"this is a random sample: {keys:,} of about {keys * scale:,.0f} keys, from {shards:,} of "
        f"{sample['of_shards']:,} shards. All of them would take {sample['seconds'] * scale / 3600:.2g} hours at this "
        f"speed and {sample['bytes'] * scale / 1e9:.2g} GB: the same command without --sample goes on from here"
    )


def describe_unexpected_files(files: AuditFiles) -> list[str]:
    notes = []
    if files.missing:
        rows = sum((get_listed_shards(files.manifest) or {}).get(shard, 0) for shard in files.missing)
        notes.append(
            f"{len(files.missing):,} shards of this audit are missing with their {rows:,} rows, such as "
            f"{files.missing[0]}: run the same `auditor audit` command again"
        )
    failed = {failed.get("shard") for failed in files.manifest.get("failed_shards") or []}
    foreign = [file for file in files.foreign if get_shard_name(file) not in failed]
    if foreign:
        notes.append(f"{len(foreign):,} files do not belong to this audit and are left out, such as {foreign[0]}")
    return notes
