"""manifest.json: what an audit is of, what made it, and the corpus-wide numbers that give its columns their meaning."""

import datetime
import importlib.metadata
import platform
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from auditor.audit_folder.folder import Folder
from auditor.audit_folder.json_validation import NUMBER, NUMBERS, Whole, first_wrong
from auditor.errors import AuditError

FORMAT = 1
NAME = "manifest.json"
PACKAGES = ("pau-auditor", "torch", "open_clip_torch", "numpy", "pyarrow", "duckdb", "pillow", "decord", "av", "ray")


def read_manifest(folder: Folder) -> dict[str, Any]:
    """What the manifest says; raises AuditError where a folder is not an audit of ours."""
    try:
        stored = folder.read_json(NAME)
    except (FileNotFoundError, NotADirectoryError):
        raise AuditError(f"{folder.url} is not an audit: it has no {NAME}") from None
    except ValueError:
        raise AuditError(f"{folder.url} is not an audit: its {NAME} is not JSON") from None
    except OSError as error:
        raise AuditError(f"cannot read {folder.url}: {' '.join(str(error).split())}") from None
    if not isinstance(stored, dict) or "format" not in stored:
        raise AuditError(f"{folder.url} is not an audit: its {NAME} is of something else")
    if stored["format"] != FORMAT:
        raise AuditError(f"{folder.url} has format {stored['format']}; this version reads format {FORMAT}")
    if wrong := first_wrong(stored, SHAPE) or wrong_statistics(stored.get("statistics", {})):
        raise AuditError(f"the {NAME} of {folder.url} is damaged: {wrong}; run the `auditor audit` command again")
    return stored


MAYBE_TEXT = (str, type(None))
LATER = {"carry", "score"}  # what the first versions did not write
# What readers take for granted of a field that is there.
SHAPE: dict[str, Any] = {
    "corpus": {"spec": str, "shards": int, "root": MAYBE_TEXT, "carry": [str]},
    "model": {"spec": str, "fingerprint": str, "dim": int, "logit_scale": NUMBER, "frames": int},
    "settings": {
        "score": {
            **dict.fromkeys(("reference", "fit_pairs", "prototypes", "topics", "seed"), int),
            **dict.fromkeys(("near_duplicate", "ambiguous_top"), (*NUMBER, type(None))),
            **dict.fromkeys(("target", "keep_duplicate"), str),
        }
    },
    "state": str,
    "scoring": (dict, type(None)),
    "counts": {"keys": int, "rows": int, "status": {"": int}},
    "shards": {"": int},
    "failed_shards": [{"shard": str}],
    "shard_problems": [{"shard": str}],
    "statistics": {"": {}},
    "thresholds": {"": (int, float, dict)},
    "shard_priors": {"": NUMBER},
    "fitted_on": (list, type(None)),
    "drift": [{}],
}


ESTIMATED = Whole(
    pi0=NUMBER,
    pi0_low=NUMBER,
    pi0_high=NUMBER,
    pairs=int,
    curve=Whole(score=NUMBERS, p=NUMBERS),
    histogram=Whole(edges=NUMBERS, observed=NUMBERS, null=NUMBERS),
)


def wrong_statistics(statistics: dict[str, Any]) -> str:
    """Of the kinds of media whose share of mismatched pairs was estimated."""
    estimated = {kind: found for kind, found in statistics.items() if found.get("pi0") is not None}
    return first_wrong(estimated, {"": ESTIMATED}, "statistics") or next(
        (f"statistics.{kind} has lists of other lengths" for kind, found in estimated.items() if not fits(found)), ""
    )


def fits(estimated: dict[str, Any]) -> bool:
    """Whether the lists that belong together are equally long."""
    curve, bins = estimated["curve"], estimated["histogram"]
    return (
        len(curve["score"]) == len(curve["p"])
        and len(bins["edges"]) - 1 == len(bins["observed"]) == len(bins["null"])
    )  # fmt: skip


@dataclass
class Manifest:
    """The audit in one file. `state` is sweeping, scoring, complete or failed."""

    corpus: dict[str, Any]
    model: dict[str, Any]
    settings: dict[str, Any]
    state: str = "sweeping"
    scoring: dict[str, Any] | None = None  # what a finished audit is being scored again with, until that is done
    format: int = FORMAT
    created: str = field(default_factory=lambda: now())
    finished: str | None = None
    versions: dict[str, str] = field(default_factory=lambda: versions())
    counts: dict[str, Any] = field(default_factory=dict)
    shards: dict[str, int] = field(default_factory=dict)  # every shard that was swept, and its rows
    failed_shards: list[dict[str, str]] = field(default_factory=list)
    shard_problems: list[dict[str, str]] = field(default_factory=list)
    statistics: dict[str, Any] = field(default_factory=dict)
    thresholds: dict[str, Any] = field(default_factory=dict)
    shard_priors: dict[str, float] = field(default_factory=dict)  # log-odds that p_mismatch of a shard has gained
    fitted_on: list[str] | None = None  # the shards behind the corpus-wide numbers, where others were added later
    drift: list[dict[str, Any]] = field(default_factory=list)  # of the shards that were added

    def save(self, folder: Folder) -> None:
        folder.write_json(NAME, asdict(self))

    @classmethod
    def load(cls, folder: Folder) -> "Manifest":
        known = {f.name for f in fields(cls)}
        stored = {name: value for name, value in read_manifest(folder).items() if name in known}
        for part in ("corpus", "model", "settings"):
            absent = [name for name in SHAPE[part] if name not in LATER and name not in stored.get(part, {})]
            if part not in stored or absent:
                missing = ".".join([part, *absent[:1]])
                raise AuditError(f"the {NAME} of {folder.url} is damaged: it has no {missing}")
        return cls(**stored)


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
