"""manifest.json: what an audit is of, what made it, and the corpus-wide numbers that give its columns their meaning."""

import datetime
import importlib.metadata
import platform
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from auditor.errors import AuditorError
from auditor.store.folder import Folder

FORMAT = 1
NAME = "manifest.json"
PACKAGES = ("pau-auditor", "torch", "open_clip_torch", "numpy", "pyarrow", "duckdb", "pillow", "decord", "av", "ray")


class ManifestError(AuditorError):
    """A manifest that is not there, or not ours."""


@dataclass
class Manifest:
    """The audit in one file. `state` is sweeping, scoring, complete or failed."""

    corpus: dict[str, Any]
    model: dict[str, Any]
    settings: dict[str, Any]
    state: str = "sweeping"
    format: int = FORMAT
    created: str = field(default_factory=lambda: now())
    finished: str | None = None
    versions: dict[str, str] = field(default_factory=lambda: versions())
    counts: dict[str, Any] = field(default_factory=dict)
    failed_shards: list[dict[str, str]] = field(default_factory=list)
    shard_problems: list[dict[str, str]] = field(default_factory=list)
    statistics: dict[str, Any] = field(default_factory=dict)
    thresholds: dict[str, Any] = field(default_factory=dict)

    def save(self, folder: Folder) -> None:
        folder.write_json(NAME, asdict(self))

    @classmethod
    def load(cls, folder: Folder) -> "Manifest":
        try:
            stored = folder.read_json(NAME)
        except FileNotFoundError:
            raise ManifestError(f"{folder.url} is not an audit: it has no {NAME}") from None
        except ValueError as error:
            raise ManifestError(f"{folder.path(NAME)} is not readable JSON: {error}") from error
        if not isinstance(stored, dict) or stored.get("format") != FORMAT:
            raise ManifestError(f"{folder.path(NAME)} is not an audit of format {FORMAT}")
        known = {f.name for f in fields(cls)}
        return cls(**{name: value for name, value in stored.items() if name in known})


def now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def versions() -> dict[str, str]:
    """Versions of what made an audit: Python and the packages that are installed."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
