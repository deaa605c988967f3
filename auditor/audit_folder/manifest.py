"""manifest.json: the corpus, the model and the settings of an audit, and its corpus-wide statistics."""

import datetime
import platform
import uuid
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from auditor.audit_folder.folder import Folder
from auditor.audit_folder.json_validation import NUMBER, NUMBERS, CompleteShape, find_shape_error
from auditor.errors import AuditError

FORMAT = 5  # raise it with each change that makes earlier audits unreadable
MANIFEST_NAME = "manifest.json"
PACKAGES = ("pau-auditor", "torch", "open_clip_torch", "numpy", "pyarrow", "duckdb", "pillow", "decord", "av", "ray")


def read_manifest(folder: Folder) -> dict[str, Any]:
    """Read and check the manifest. Raises AuditError if the folder is not a readable audit."""
    try:
        stored = folder.read_json(MANIFEST_NAME)
    except (FileNotFoundError, NotADirectoryError):
        raise AuditError(f"{folder.url} is not an audit: it has no {MANIFEST_NAME}") from None
    except ValueError:
        raise AuditError(f"{folder.url} is not an audit: its {MANIFEST_NAME} is not JSON") from None
    except OSError as error:
        raise AuditError(f"cannot read {folder.url}: {' '.join(str(error).split())}") from None
    if not isinstance(stored, dict) or "format" not in stored:
        raise AuditError(f"{folder.url} is not an audit: its {MANIFEST_NAME} does not describe one")
    if isinstance(stored["format"], int) and stored["format"] < FORMAT:
        raise AuditError(f"{folder.url} was made by an earlier version of the auditor: audit again")
    if stored["format"] != FORMAT:
        raise AuditError(f"{folder.url} has format {stored['format']}; this version reads format {FORMAT}")
    if wrong := find_shape_error(stored, MANIFEST_SHAPE) or find_statistics_error(stored.get("statistics", {})):
        raise AuditError(
            f"the {MANIFEST_NAME} of {folder.url} is damaged: {wrong}; run the `auditor audit` command again"
        )
    return stored


OPTIONAL_TEXT = (str, type(None))
# The shape of each field that is present.
MANIFEST_SHAPE: dict[str, Any] = {
    "corpus": {"spec": str, "shards": int, "root": OPTIONAL_TEXT, "carry": [str]},
    "model": {"spec": str, "fingerprint": str, "dim": int, "logit_scale": NUMBER, "frames": int},
    "settings": {
        "score": {
            **dict.fromkeys(("reference", "fit_pairs", "prototypes", "topics", "seed"), int),
            **dict.fromkeys(("near_duplicate", "copy_agreement"), (*NUMBER, type(None))),
            **dict.fromkeys(("target", "keep_duplicate", "calibrate_by"), str),
        }
    },
    "state": str,
    "scoring": (dict, type(None)),
    "counts": {"keys": int, "rows": int, "status": {"": int}},
    "shards": {"": int},
    "failed_shards": [{"shard": str}],
    "shard_problems": [{"shard": str}],
    "statistics": {"": {}},
    "thresholds": {"": NUMBER},
    "duplicates": {"": (*NUMBER, type(None))},
    "shard_priors": {"": NUMBER},
    "fitted_on": (list, type(None)),
    "drift": [{}],
    "sample": dict.fromkeys(("seed", "fraction", "of_shards", "seconds", "bytes"), NUMBER),
}


BINS = ("observed", "null")
MODEL_SHAPE = CompleteShape(
    **dict.fromkeys(("pi0", "pi0_low", "pi0_high"), NUMBER),
    curve=CompleteShape(score=NUMBERS, p=NUMBERS),
    histogram=CompleteShape(edges=NUMBERS, **dict.fromkeys(BINS, NUMBERS)),
)
ESTIMATE_SHAPE = CompleteShape(**MODEL_SHAPE, pairs=int)
GROUPED_SHAPE = {"calibrated_by": str, "groups": {"": MODEL_SHAPE}}


def find_statistics_error(statistics: dict[str, Any]) -> str:
    """Describe the first wrong value in the statistics of the kinds of media that have an estimate, or return ""."""
    estimated = {kind: estimate for kind, estimate in statistics.items() if estimate.get("pi0") is not None}
    for shape in (ESTIMATE_SHAPE, GROUPED_SHAPE):
        if error := find_shape_error(estimated, {"": shape}, "statistics"):
            return error
    for kind, estimate in estimated.items():
        for model in (estimate, *estimate.get("groups", {}).values()):
            curve, bins = model["curve"], model["histogram"]
            lengths = {len(bins["edges"]) - 1, *(len(bins[name]) for name in BINS)}
            if len(curve["score"]) != len(curve["p"]) or len(lengths) > 1:
                return f"statistics.{kind} has lists of unequal lengths"
    return ""


def format_current_time() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def read_versions() -> dict[str, str]:
    import importlib.metadata  # only those who write a manifest need it

    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


@dataclass
class Manifest:
    """The manifest of an audit. `state` is sweeping, scoring, complete or failed."""

    corpus: dict[str, Any]
    model: dict[str, Any]
    settings: dict[str, Any]
    state: str = "sweeping"
    scoring: dict[str, Any] | None = None  # options of the scoring that is running on a finished audit
    format: int = FORMAT
    id: str = field(default_factory=lambda: uuid.uuid4().hex)  # of what the user confirms about the audit
    created: str = field(default_factory=format_current_time)
    finished: str | None = None
    versions: dict[str, str] = field(default_factory=read_versions)
    counts: dict[str, Any] = field(default_factory=dict)
    shards: dict[str, int] = field(default_factory=dict)  # rows of each swept shard
    failed_shards: list[dict[str, str]] = field(default_factory=list)
    shard_problems: list[dict[str, str]] = field(default_factory=list)
    statistics: dict[str, Any] = field(default_factory=dict)
    thresholds: dict[str, Any] = field(default_factory=dict)
    duplicates: dict[str, float | None] = field(default_factory=dict)  # number of repeated media, and the rule
    shard_priors: dict[str, float] = field(default_factory=dict)  # log-odds added to p_mismatch of a shard
    fitted_on: list[str] | None = None  # shards of the corpus-wide statistics, if others were added later
    drift: list[dict[str, Any]] = field(default_factory=list)  # of the added shards
    sample: dict[str, float] = field(default_factory=dict)  # of which the audit is; empty: the whole corpus

    def save(self, folder: Folder) -> None:
        folder.write_json(MANIFEST_NAME, asdict(self))

    @classmethod
    def load(cls, folder: Folder) -> "Manifest":
        names = {f.name for f in fields(cls)}
        stored = {name: value for name, value in read_manifest(folder).items() if name in names}
        for part in ("corpus", "model", "settings"):
            absent = [name for name in MANIFEST_SHAPE[part] if name not in stored.get(part, {})]
            if part not in stored or absent:
                missing = ".".join([part, *absent[:1]])
                raise AuditError(f"the {MANIFEST_NAME} of {folder.url} is damaged: it has no {missing}")
        return cls(**stored)
