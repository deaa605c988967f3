"""What there is of an audit, on disk or on a remote store: its manifest, and which shards are swept and scored.

An audit that is still being made has shards that are swept but not yet scored; their facts are shown with empty scores.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from auditor.audit_folder.correction import read_correction, with_correction
from auditor.audit_folder.extra_columns import Source, find_sources
from auditor.audit_folder.folder import Folder
from auditor.audit_folder.manifest import read_manifest
from auditor.errors import AuditError
from auditor.schema import FACTS, STORED


@dataclass(frozen=True)
class AuditFiles:
    """The files of an audit; paths are such that DuckDB can open them (through `filesystem` where it is remote)."""

    path: str  # as it was given
    folder: Folder
    manifest: dict[str, Any]
    scored: tuple[str, ...]  # samples/*.parquet
    swept: tuple[str, ...]  # embeddings/*.parquet of shards that have not been scored yet
    columns: tuple[str, ...]  # of samples/, in stored order
    swept_columns: tuple[str, ...] = FACTS  # of embeddings/, vectors aside
    correction: dict[str, Any] | None = None  # of p_mismatch, by labels
    sources: tuple[Source, ...] = ()  # of columns that are not ours
    foreign: tuple[str, ...] = ()  # files that the manifest does not know: not read
    missing: tuple[str, ...] = ()  # shards that the manifest knows and that are not here

    @property
    def filesystem(self) -> Any:
        """Of fsspec; None where the audit is local."""
        return None if self.folder.local else self.folder.fs

    @property
    def all(self) -> list[str]:
        return [*self.scored, *self.swept]

    @property
    def readable(self) -> list[str]:
        """Every file that a query on the audit may read."""
        return [*self.all, *(file for source in self.sources for file in source.files.values())]

    @property
    def extra_columns(self) -> dict[str, str]:
        """Columns that are not ours -> their Arrow types."""
        return {name: kind for source in self.sources for name, kind in source.columns.items()}

    def shard(self, shard: str) -> "AuditFiles":
        """The same audit with the file of one shard only."""
        scored = tuple(file for file in self.scored if stem(file) == shard)
        swept = tuple(file for file in self.swept if stem(file) == shard)
        return replace(self, scored=scored, swept=swept)

    def only(self, numbers: Sequence[int]) -> "AuditFiles":
        """The same audit with some of its files, by their places in `all`; their order stays."""
        wanted = set(numbers)
        scored = tuple(file for number, file in enumerate(self.scored) if number in wanted)
        swept = tuple(file for number, file in enumerate(self.swept, len(self.scored)) if number in wanted)
        return replace(self, scored=scored, swept=swept)


def stem(path: str) -> str:
    return path.rsplit("/", 1)[-1].removesuffix(".parquet")


def find_files(path: str | Path) -> AuditFiles:
    """Read the manifest and list the shards; raises AuditError where there is no audit."""
    folder = Folder(path)
    manifest = read_manifest(folder)
    correction = read_correction(folder, manifest)
    listed = listed_shards(manifest)
    there = {part: folder.names(part, ".parquet") for part in ("samples", "embeddings")}
    known = {part: [name for name in names if listed is None or name in listed] for part, names in there.items()}
    samples, swept = known["samples"], sorted(set(known["embeddings"]) - set(known["samples"]))
    return AuditFiles(
        path=str(path),
        folder=folder,
        manifest=with_correction(manifest, correction) if correction else manifest,
        scored=tuple(folder.address(f"samples/{shard}.parquet") for shard in samples),
        swept=tuple(folder.address(f"embeddings/{shard}.parquet") for shard in swept),
        columns=read_columns(folder, f"samples/{samples[0]}.parquet") if samples else STORED,
        correction=correction,
        sources=find_sources(folder),
        foreign=tuple(f"{part}/{name}.parquet" for part in there for name in there[part] if name not in known[part]),
        missing=tuple(sorted(set(listed or ()) - {*samples, *swept})),
        swept_columns=read_columns(folder, f"embeddings/{swept[0]}.parquet") if swept else FACTS,
    )


def listed_shards(manifest: Mapping[str, Any]) -> dict[str, int] | None:
    """The shards that an audit has, and their rows; None while it is swept, and where it is older than the list."""
    listed = manifest.get("shards")
    return listed if isinstance(listed, dict) and listed and manifest.get("state") != "sweeping" else None


def swept_shards(folder: Folder) -> list[str]:
    """The shards of an audit whose embeddings are here, all of them; a file that is not of the audit is none."""
    listed = listed_shards(read_manifest(folder))
    there = folder.names("embeddings", ".parquet")
    if listed is None:
        return there
    missing = sorted(set(listed).difference(there))
    if missing and len(missing) < len(listed):  # an audit without any can be read, and says so where they are needed
        raise AuditError(
            f"the embeddings of {len(missing):,} shards of {folder.url} are missing, such as {missing[0]}: "
            "run the same `auditor audit` command again"
        )
    return [name for name in there if name in listed]


def read_columns(folder: Folder, name: str) -> tuple[str, ...]:
    try:
        return tuple(folder.table_columns(name))
    except (OSError, pa.ArrowException) as error:
        raise AuditError(f"{folder.path(name)} cannot be read: {' '.join(str(error).split())}") from None


def notes(files: AuditFiles) -> list[str]:
    """What a reader must know before believing the numbers: an unfinished audit, failed shards, evidence not used."""
    manifest, found = files.manifest, []
    if manifest.get("scoring"):
        model = manifest["scoring"].get("model")
        found.append(
            "this audit is being scored again" + (f" with {model}" if model else "") + ": some shards have the new "
            "scores, some the old; where that was interrupted, `auditor score` with the same options finishes it"
        )
    elif manifest.get("state") != "complete":
        shards = manifest.get("corpus", {}).get("shards")
        of = f" of {shards:,}" if isinstance(shards, int) else ""
        found.append(
            f"this audit is not finished (state: {manifest.get('state')}): {len(files.all):,}{of} shards are here"
            + (f", {len(files.swept):,} of them not scored yet" if files.swept else "")
        )
    found += strange_files(files)
    failed = manifest.get("failed_shards") or []
    if failed:
        found.append(f"{len(failed):,} shards failed, the first of them {failed[0].get('shard')}")
    if manifest.get("state") == "complete" and (manifest.get("settings") or {}).get("words", 0) is None:
        found.append(
            "captions were judged without looking for their single words: there was no text tower to encode them"
        )
    return found


def strange_files(files: AuditFiles) -> list[str]:
    """Shards that are gone, and files that have come from elsewhere."""
    found = []
    if files.missing:
        rows = sum((listed_shards(files.manifest) or {}).get(shard, 0) for shard in files.missing)
        found.append(
            f"{len(files.missing):,} shards of this audit are missing with their {rows:,} rows, such as "
            f"{files.missing[0]}: run the same `auditor audit` command again"
        )
    failed = {failed.get("shard") for failed in files.manifest.get("failed_shards") or []}
    foreign = [file for file in files.foreign if stem(file) not in failed]
    if foreign:
        found.append(f"{len(foreign):,} files are not of this audit and are left out, such as {foreign[0]}")
    return found
