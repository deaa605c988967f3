"""Turn the corpus spec of the command line into paths: `::` lists, brace expansion, globs, folders.

    shards/{00000..00012}.tar    shards/part-*.tar    a.tar::b.tar    s3://bucket/{train,val}/    laion/

Shards are not checked one by one, so 100,000 of them are listed in about a second.
"""

import glob
import itertools
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Any

from braceexpand import braceexpand

from auditor.audit_folder.hub import pin_revision
from auditor.corpus.corpus_files import expand_glob, is_url, list_files, make_path_absolute, open_store, path_exists
from auditor.corpus.shard import CorpusError

COCO = "coco:"  # prefix of the path of a JSON in COCO's form
TIMED = "timed:"  # prefix of the path of a JSON with timed captions by video
DATACOMP = "datacomp:"  # prefix of a folder with DataComp's metadata
CLIP_RETRIEVAL = "clip-retrieval:"  # prefix of a folder that clip-retrieval wrote
PREFIXES = (COCO, TIMED, DATACOMP, CLIP_RETRIEVAL)
MAX_PATHS = 10_000_000
_BRACES = re.compile(r"\{([^{}]*)\}")  # the innermost ones
_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)")
_SUFFIX = re.compile(r"\.\w{1,8}$")
MAX_CHECKED = 20  # paths of an expansion that are checked one by one


@dataclass(frozen=True, slots=True)
class CorpusPath:
    """An existing folder, or a file that should exist: an absolute path or a URL."""

    path: str
    folder: bool

    def list_files(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the files of the path with the information of the store, as far as it is known."""
        return list_files(self.path) if self.folder else {self.path: {}}


def find_corpus_paths(spec: str) -> list[CorpusPath]:
    """Return the files and folders of a spec. A literal path must exist; one path of an expansion must exist."""
    if not spec.strip():
        raise CorpusError("the corpus is empty: give a path, a URL, a glob or a list")
    paths = [path for part in spec.split("::") for path in _find_part_paths(part.strip())]
    return list(dict.fromkeys(paths))


def split_prefix(spec: str) -> tuple[str, list[str]]:
    prefix = next((name for name in PREFIXES if spec.startswith(name)), "")
    return prefix, [part.strip() for part in spec.removeprefix(prefix).split("::")]


def make_corpus_absolute(spec: str) -> str:
    """Make local paths absolute, for a process in another folder; braces and globs stay."""
    prefix, parts = split_prefix(spec)
    # a leading brace may list both paths and URLs
    paths = [path for part in parts for path in (expand_braces(part) if part.startswith("{") else [part])]
    return prefix + "::".join(make_path_absolute(os.path.expanduser(path)) for path in paths)


def is_folder_spec(spec: str) -> bool:
    """Return whether a spec names one folder rather than files, judging by the spec alone."""
    listed = spec.startswith(COCO) or "::" in spec or "{" in spec or glob.has_magic(spec)
    return not listed and _SUFFIX.search(spec.rstrip("/")) is None


def find_corpus_folder(spec: str, path: str) -> str | None:
    """Return the part of a spec that contains `path`: a file written there would become part of the corpus."""
    prefix, parts = split_prefix(spec)
    if prefix == COCO:  # its JSON lists the files
        return None
    names = _resolve_path(path).split("/")
    parents = ["/".join(names[:end]) or "/" for end in range(len(names), 0, -1)]
    for part in parts:
        for pattern in map(_resolve_path, expand_braces(part)):
            if any(parent == pattern or (glob.has_magic(pattern) and fnmatch(parent, pattern)) for parent in parents):
                return part
    return None


def _resolve_path(path: str) -> str:
    """Resolve symbolic links, so that two paths to one folder are equal."""
    full = make_path_absolute(os.path.expanduser(path))
    return full if is_url(full) else os.path.realpath(full)


def _find_part_paths(part: str) -> list[CorpusPath]:
    if part.startswith("pipe:"):
        raise CorpusError(f"{part!r}: pipe: runs a command and is never opened; give a path or an fsspec URL instead")
    if not part:
        raise CorpusError("an empty path in the list: `::` stands between two paths")
    part = pin_revision(os.path.expanduser(part))
    if path_exists(make_path_absolute(part)):  # an existing name that contains braces or stars
        return [_build_corpus_path(part)]
    patterns = expand_braces(part)
    if len(patterns) == 1 and not glob.has_magic(part):
        raise CorpusError(f"{part} does not exist{'; lists are written a.tar::b.tar' if ',' in part else ''}")
    paths = [path for name in patterns for path in (expand_glob(name) if glob.has_magic(name) else [name])]
    if not paths:
        raise CorpusError(f"nothing matches {part}")
    candidates = map(make_path_absolute, paths[:MAX_CHECKED] if is_url(part) else paths)
    if not glob.has_magic(part) and not any(map(path_exists, candidates)):
        raise CorpusError(f"{part} does not exist: none of its {len(paths)} paths does, such as {paths[0]}")
    return [_build_corpus_path(path, check=len(paths) <= MAX_CHECKED) for path in paths]


def _build_corpus_path(path: str, check: bool = True) -> CorpusPath:
    """Check whether a path is a folder only if `check` is set or its name has no extension."""
    full = make_path_absolute(path)
    if not check and _SUFFIX.search(full):
        return CorpusPath(full, folder=False)
    if not is_url(full):
        return CorpusPath(full, os.path.isdir(full))
    with open_store(full) as (fs, name):
        folder = fs.isdir(name)  # spelled as `list_files` spells it
        return CorpusPath(str(fs.unstrip_protocol(name)).rstrip("/") if folder else full, folder)


def expand_braces(pattern: str) -> list[str]:
    """Expand `{00000..00012}` and `{a,b}` as a shell does; unbalanced braces stay. Raises CorpusError if too many."""
    try:
        choices = 1  # counted first, because braceexpand holds every range in memory
        for braces in _BRACES.findall(pattern):
            numbers = _RANGE.fullmatch(braces)
            choices *= abs(int(numbers[2]) - int(numbers[1])) + 1 if numbers else braces.count(",") + 1
        if choices <= MAX_PATHS:
            paths = list(itertools.islice(braceexpand(pattern, escape=False), MAX_PATHS + 1))
            if len(paths) <= MAX_PATHS:
                return paths
    except ValueError:  # unbalanced braces
        return [pattern]
    raise CorpusError(f"{pattern} expands to more than {MAX_PATHS:,} paths")
