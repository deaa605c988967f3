"""What a person types for a corpus, turned into paths: `::` lists, brace expansion, globs, folders.

    shards/{00000..00012}.tar    shards/part-*.tar    a.tar::b.tar    s3://bucket/{train,val}/    laion/

Nothing is opened and no shard is looked at one by one, so that a hundred thousand are listed in about a second.
"""

import glob
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch

from auditor.corpus import remote_files
from auditor.corpus.shard import CorpusError

COCO = "coco:"  # before the path of a JSON in COCO's form
TIMED = "timed:"  # before the path of a JSON with timed captions by video
DATACOMP = "datacomp:"  # before a folder of DataComp's metadata
CLIP_RETRIEVAL = "clip-retrieval:"  # before a folder that clip-retrieval wrote
PREFIXES = (COCO, TIMED, DATACOMP, CLIP_RETRIEVAL)
MOST_PATHS = 10_000_000
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")
_SUFFIX = re.compile(r"\.\w{1,8}$")
_LOOKED_AT = 20  # remote paths of an expansion that are asked for before it is called wrong


@dataclass(frozen=True, slots=True)
class Place:
    """An existing folder or a file that ought to exist; absolute path or URL."""

    path: str
    folder: bool


def find_places(spec: str) -> list[Place]:
    """The files and folders a spec names. A path written out must exist; an expansion must exist in part."""
    if not spec.strip():
        raise CorpusError("the corpus is empty: give a path, a URL, a glob or a list")
    places: dict[str, Place] = {}
    for part in spec.split("::"):
        for place in _find(part.strip()):
            places.setdefault(place.path, place)
    return list(places.values())


def absolute_spec(spec: str) -> str:
    """The same corpus for a process in another folder: local paths in full, braces and globs as they are."""
    prefix = next((known for known in PREFIXES if spec.startswith(known)), "")
    parts = [part.strip() for part in spec.removeprefix(prefix).split("::")]
    # a brace that a path begins with may hold both paths and URLs
    paths = [path for part in parts for path in (expand_braces(part) if part.startswith("{") else [part])]
    return prefix + "::".join(remote_files.absolute(os.path.expanduser(path)) for path in paths)


def names_folder(spec: str) -> bool:
    """Whether a corpus is whatever a folder holds, rather than files that are listed; told by the spec alone."""
    listed = spec.startswith(COCO) or "::" in spec or "{" in spec or glob.has_magic(spec)
    return not listed and _SUFFIX.search(spec.rstrip("/")) is None


def folder_around(spec: str, path: str) -> str | None:
    """The folder that a corpus is read from and that a path lies in: what is written there is part of the corpus."""
    if spec.startswith(COCO):  # its JSON names the files
        return None
    prefix = next((known for known in PREFIXES if spec.startswith(known)), "")
    around = _with_parents(_real(path))
    for part in spec.removeprefix(prefix).split("::"):
        for named in map(_real, expand_braces(part.strip())):
            if any(place == named or (glob.has_magic(named) and fnmatch(place, named)) for place in around):
                return part.strip()
    return None


def _real(path: str) -> str:
    """Without symbolic links, so that two ways to one folder are the same."""
    full = remote_files.absolute(path if remote_files.is_url(path) else os.path.expanduser(path))
    return full if remote_files.is_url(full) else os.path.realpath(full)


def _with_parents(path: str) -> list[str]:
    """The path itself and all folders above it."""
    names = path.split("/")
    return [path, *("/".join(names[:end]) or "/" for end in range(len(names) - 1, 0, -1))]


def _find(part: str) -> list[Place]:
    if part.startswith("pipe:"):
        raise CorpusError(f"{part!r}: pipe: runs a command and is never opened; give a path or an fsspec URL instead")
    if not part:
        raise CorpusError("an empty path in the list: `::` stands between two paths")
    part = part if remote_files.is_url(part) else os.path.expanduser(part)
    if _exists(part):  # a name with braces or stars in it that is simply there
        return [_place(part)]
    patterns = list(expand_braces(part))
    if len(patterns) == 1 and not glob.has_magic(part):
        raise CorpusError(f"{part} does not exist{'; lists are written a.tar::b.tar' if ',' in part else ''}")
    paths = [path for pattern in patterns for path in _glob(pattern)]
    if not paths:
        raise CorpusError(f"nothing matches {part}")
    seen = paths if not remote_files.is_url(part) else paths[:_LOOKED_AT]
    if not glob.has_magic(part) and not any(_exists(path) for path in seen):
        raise CorpusError(f"{part} does not exist: none of its {len(paths)} paths, {paths[0]} the first of them")
    return [_place(path, look=len(paths) <= _LOOKED_AT) for path in paths]


def _glob(pattern: str) -> list[str]:
    if not glob.has_magic(pattern):
        return [pattern]
    return remote_files.matching(pattern) if remote_files.is_url(pattern) else glob.glob(pattern, recursive=True)


def _exists(path: str) -> bool:
    return remote_files.exists(path) if remote_files.is_url(path) else os.path.exists(remote_files.absolute(path))


def _place(path: str, look: bool = True) -> Place:
    """Whether a path is a folder is asked only where its name leaves it open, or where there are few to ask about."""
    full = remote_files.absolute(path)
    if not look and _SUFFIX.search(full):
        return Place(full, folder=False)
    if remote_files.is_url(full):
        folder = remote_files.folder_url(full)
        return Place(folder or full, folder is not None)
    return Place(full, os.path.isdir(full))


def expand_braces(pattern: str) -> Iterator[str]:
    """`{00000..00012}` counts with its leading zeros, `{a,b}` lists; several multiply, the first slowest."""
    match = _BRACES.search(pattern)
    if match is None:
        yield pattern
        return
    before, after = pattern[: match.start()], pattern[match.end() :]
    for choice in _choices(match[1]):
        for rest in expand_braces(after):
            yield f"{before}{choice}{rest}"


def _choices(inside: str) -> Iterator[str]:
    counted = _RANGE.fullmatch(inside)
    if counted is None:
        yield from inside.split(",") if "," in inside else ["{" + inside + "}"]
        return
    first, last = int(counted[1]), int(counted[2])
    if abs(last - first) >= MOST_PATHS:
        raise CorpusError(f"{{{inside}}} expands to more than {MOST_PATHS} paths")
    padded = any(end.startswith("0") and len(end) > 1 for end in counted.groups())
    width = max(len(counted[1]), len(counted[2])) if padded else 0
    step = 1 if first <= last else -1
    for number in range(first, last + step, step):
        yield f"{number:0{width}d}"
