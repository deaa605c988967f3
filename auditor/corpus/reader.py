"""Open a corpus: `open_corpus("shards/{00000..00012}.tar")` finds out what kind it is and lists its shards.

| what                | looks like                                                                     |
|---------------------|--------------------------------------------------------------------------------|
| WebDataset tars     | a .tar, a folder, a glob, `{000..012}`, `{a,b}`, `a.tar::b.tar`; local or a URL |
"""

import os
import re

from auditor.corpus import remote
from auditor.corpus.names import common_root, natural, shard_names
from auditor.corpus.shard import DEFAULTS, Corpus, CorpusError, CorpusOptions, OpenShard, Shard, ShardError
from auditor.corpus.spec import Place, find_places
from auditor.corpus.tar import TarShard

__all__ = ["Corpus", "CorpusError", "CorpusOptions", "OpenShard", "Shard", "ShardError", "open_corpus"]

_TAR = re.compile(r"\.(tar(\.(gz|bz2|zst|zstd))?|tgz)$", re.IGNORECASE)


def open_corpus(spec: str, options: CorpusOptions = DEFAULTS) -> Corpus:
    """List the shards of a corpus without opening any; `CorpusError` says what is wrong with the spec."""
    places = find_places(spec)
    tars = [path for place in places for path in _tars(place)]
    if not tars:
        raise CorpusError(f"{spec}: no tars there")
    return _tar_corpus(spec, tars, options)


def _tars(place: Place) -> list[str]:
    files = _walk(place.path) if place.folder else [place.path]
    return [path for path in files if _TAR.search(path)]


def _walk(folder: str) -> list[str]:
    """All files under a folder; symbolic links to folders are not followed, so there are no circles."""
    if remote.is_url(folder):
        return list(remote.listing(folder))
    return [os.path.join(top, name) for top, _, names in os.walk(folder) for name in names]


def _tar_corpus(spec: str, paths: list[str], options: CorpusOptions) -> Corpus:
    paths = sorted(set(paths), key=natural)
    root = common_root(paths)
    names = shard_names([path.removeprefix(root).lstrip("/") for path in paths])
    return Corpus(spec, root, [TarShard(name, path, options) for name, path in zip(names, paths, strict=True)])
