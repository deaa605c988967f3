"""The files of an audit on disk or on a remote store: its manifest, which shards are there, and the view over them.

An audit that is still being made has shards that are swept but not yet scored; their facts are shown with empty scores.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from auditor.errors import AuditorError
from auditor.query.rules import Threshold, flag_sql
from auditor.query.sandbox import literal, name
from auditor.schema import COLUMNS, FACTS, STORED

SQL_TYPES = {"string": "VARCHAR", "int16": "SMALLINT", "int32": "INTEGER", "int64": "BIGINT", "float32": "FLOAT"}
UID_ORDER = "coalesce(TRY_CAST('0x' || uid[17:] AS UBIGINT), hash(uid))"


class AuditError(AuditorError):
    """A folder that is no audit, or one that cannot be read."""


@dataclass(frozen=True)
class AuditFiles:
    """What there is. Paths are such that DuckDB can open them (through `filesystem` where the audit is remote)."""

    path: str
    manifest: dict[str, Any]
    scored: tuple[str, ...]  # samples/*.parquet
    swept: tuple[str, ...]  # embeddings/*.parquet of shards that have not been scored yet
    filesystem: Any  # fsspec; None where local
    columns: tuple[str, ...]  # of samples/, in stored order

    @property
    def all(self) -> list[str]:
        return [*self.scored, *self.swept]

    def shard(self, shard: str) -> "AuditFiles":
        """The same audit with the file of one shard only."""
        scored = tuple(file for file in self.scored if stem(file) == shard)
        swept = tuple(file for file in self.swept if stem(file) == shard)
        return AuditFiles(self.path, self.manifest, scored, swept, self.filesystem, self.columns)

    def only(self, numbers: Sequence[int]) -> "AuditFiles":
        """The same audit with some of its files, by their places in `all`; their order stays."""
        wanted = set(numbers)
        scored = tuple(file for number, file in enumerate(self.scored) if number in wanted)
        swept = tuple(file for number, file in enumerate(self.swept, len(self.scored)) if number in wanted)
        return AuditFiles(self.path, self.manifest, scored, swept, self.filesystem, self.columns)


def stem(path: str) -> str:
    return path.rsplit("/", 1)[-1].removesuffix(".parquet")


def find_files(path: str | Path) -> AuditFiles:
    """Read the manifest and list the shards; raises AuditError where there is no audit."""
    import fsspec

    filesystem, root = fsspec.core.url_to_fs(str(path))
    local = "file" in ([filesystem.protocol] if isinstance(filesystem.protocol, str) else filesystem.protocol)
    manifest = read_manifest(filesystem, root, str(path))
    samples = list_parquet(filesystem, f"{root}/samples")
    done = {stem(file) for file in samples}
    swept = [file for file in list_parquet(filesystem, f"{root}/embeddings") if stem(file) not in done]
    columns = read_columns(filesystem, samples[0]) if samples else STORED
    spell = str if local else filesystem.unstrip_protocol
    return AuditFiles(
        path=str(path),
        manifest=manifest,
        scored=tuple(spell(file) for file in samples),
        swept=tuple(spell(file) for file in swept),
        filesystem=None if local else filesystem,
        columns=tuple(columns),
    )


def read_manifest(filesystem: Any, root: str, shown: str) -> dict[str, Any]:
    try:
        manifest = json.loads(filesystem.cat_file(f"{root}/manifest.json"))
    except (FileNotFoundError, NotADirectoryError):
        raise AuditError(f"{shown} is no audit: it has no manifest.json") from None
    except ValueError:
        raise AuditError(f"{shown} is no audit: its manifest.json is not JSON") from None
    except OSError as error:
        raise AuditError(f"cannot read {shown}: {' '.join(str(error).split())}") from None
    if not isinstance(manifest, dict) or "format" not in manifest:
        raise AuditError(f"{shown} is no audit: its manifest.json is of something else")
    if manifest["format"] != 1:
        raise AuditError(f"{shown} has format {manifest['format']}; this version reads format 1")
    return manifest


def list_parquet(filesystem: Any, folder: str) -> list[str]:
    try:
        found = filesystem.ls(folder, detail=False, refresh=True)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(file for file in found if file.endswith(".parquet") and not file.rsplit("/", 1)[-1].startswith("."))


def read_columns(filesystem: Any, file: str) -> list[str]:
    import pyarrow.parquet as pq

    try:
        with filesystem.open(file, "rb") as opened:
            names: list[str] = pq.read_schema(opened).names
    except (OSError, pa.ArrowException) as error:
        raise AuditError(f"{file} cannot be read: {' '.join(str(error).split())}") from None
    return names


def source_sql(files: AuditFiles, *, located: bool = False) -> str:
    """All rows with the stored columns; `located` adds `file` (its place in files.all) and file_row_number."""
    parts = []
    for first, group, stored in ((0, files.scored, files.columns), (len(files.scored), files.swept, FACTS)):
        if group:
            place = [f"file_index + {first} AS file", "file_row_number"] if located else []
            listed = ", ".join([*column_list(files, stored), *place])
            parts.append(f"SELECT {listed} FROM read_parquet({literal(list(group))})")
    if not parts:
        place = ["NULL AS file", "NULL AS file_row_number"] if located else []
        empty = ", ".join([*column_list(files, []), *place])
        parts = [f"SELECT {empty} WHERE FALSE"]
    return " UNION ALL ".join(parts)


def column_list(files: AuditFiles, stored: Sequence[str]) -> list[str]:
    """Every column of the view; those an older or unfinished file does not have are NULL of the right type."""
    wanted = [*STORED, *(column for column in files.columns if column not in STORED)]
    there = set(stored)
    return [
        name(column) if column in there else f"CAST(NULL AS {sql_type(column)}) AS {name(column)}" for column in wanted
    ]


def sql_type(column: str) -> str:
    return SQL_TYPES[COLUMNS[column].type] if column in COLUMNS else "VARCHAR"


def flag_columns(thresholds: Mapping[str, Threshold]) -> str:
    return ", ".join(f"{sql} AS {flag}" for flag, sql in flag_sql(thresholds).items())


def view_sql(files: AuditFiles, thresholds: Mapping[str, Threshold], *, located: bool = False) -> str:
    """Measurements and flags, and `uid_order`: a number by which rows that are equal otherwise are told apart."""
    return f"SELECT *, {flag_columns(thresholds)}, {UID_ORDER} AS uid_order FROM ({source_sql(files, located=located)})"


def notes(files: AuditFiles) -> list[str]:
    """What a reader must know before believing the numbers: an unfinished audit, shards that failed."""
    manifest, found = files.manifest, []
    if manifest.get("state") != "complete":
        shards = manifest.get("corpus", {}).get("shards")
        of = f" of {shards:,}" if isinstance(shards, int) else ""
        found.append(
            f"this audit is not finished (state: {manifest.get('state')}): {len(files.all):,}{of} shards are here"
            + (f", {len(files.swept):,} of them not scored yet" if files.swept else "")
        )
    failed = manifest.get("failed_shards") or []
    if failed:
        found.append(f"{len(failed):,} shards failed, the first of them {failed[0].get('shard')}")
    return found
