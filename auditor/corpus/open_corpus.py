"""Open a corpus: `open_corpus("shards/{00000..00012}.tar")` finds out what kind it is and lists its shards.

| what                   | looks like                                                                                |
|------------------------|-------------------------------------------------------------------------------------------|
| WebDataset tars        | a .tar, a folder of them, a glob, `{000..012}`, `{a,b}`, `a.tar::b.tar`; local or a URL    |
| media with sidecars    | a folder with `cat.jpg` and `cat.txt` (or `cat.json`) in it, at any depth                  |
| tables                 | .csv, .tsv, .jsonl, .parquet; several, or a folder of them                                 |
| Hugging Face datasets  | a folder of `save_to_disk`, or the Parquet files of the hub                                |
| COCO captions          | `coco:captions_val2017.json::val2017`                                                      |
| timed captions by id   | `timed:train.json::videos`: ActivityNet's and HowTo100M's JSON                             |
| embeddings, no media   | `datacomp:FOLDER`, `clip-retrieval:FOLDER`, Parquet with a visual and a text column         |

In a folder tars come first (img2dataset puts a .parquet beside each), then media that have sidecars, then tables
(`metadata.csv` beside the images it describes).
"""

import json
import os
from collections.abc import Sequence

from auditor.corpus import remote_files
from auditor.corpus.corpus_spec import CLIP_RETRIEVAL, COCO, DATACOMP, TIMED, Place, find_places
from auditor.corpus.file_names import SUBTITLES, common_root, natural, shard_names
from auditor.corpus.media_folder import list_folder
from auditor.corpus.read_medium import MediaError, read_media
from auditor.corpus.shard import DEFAULTS, Corpus, CorpusError, CorpusOptions, OpenShard, Shard, ShardError
from auditor.corpus.stored.stored_corpora import open_clip_retrieval, open_datacomp, open_vector_parquet
from auditor.corpus.tables.json_captions import open_coco, open_timed_json
from auditor.corpus.tables.parquet_table import list_parquet
from auditor.corpus.tables.table import form_of
from auditor.corpus.tables.text_table import list_text
from auditor.corpus.tar_archive import is_tar
from auditor.corpus.tar_shard import TarShard

__all__ = ["Corpus", "CorpusError", "CorpusOptions", "OpenShard", "Shard", "ShardError", "open_corpus"]
STATE = "state.json"  # of a folder that Hugging Face's `save_to_disk` wrote


def open_corpus(spec: str, options: CorpusOptions = DEFAULTS) -> Corpus:
    """List the shards of a corpus without opening any; `CorpusError` says what is wrong with the spec."""
    if spec.startswith(COCO):
        return open_coco(spec, options)
    if spec.startswith(TIMED):
        return open_timed_json(spec, options)
    if spec.startswith((DATACOMP, CLIP_RETRIEVAL)) or options.visual_column or options.text_column:
        return _open_stored(spec, options)
    places = find_places(spec)
    files = sorted({path for place in places for path in _files(place)}, key=natural)
    if tars := [path for path in files if is_tar(path)]:
        _refuse_mixture(spec, places, tars)
        return _tar_corpus(spec, tars, options)
    folders = [place.path for place in places if place.folder]
    tables = sorted((path for path in without_caches(files) if form_of(path)), key=natural)
    sidecars = any(path.endswith((".txt", ".json", *(f".{form}" for form in SUBTITLES))) for path in files)
    if len(places) == 1 and folders and (sidecars or not tables) and (shards := list_folder(folders[0], options)):
        return Corpus(spec, folders[0], shards)
    if tables:
        _refuse_mixture(spec, places, tables)
        return _table_corpus(spec, tables, options)
    if len(places) > 1 and folders:
        raise CorpusError(f"{spec}: give one folder of media, or several tars or tables")
    raise CorpusError(
        f"{spec}: no tar, no image or video and no table (.csv, .tsv, .jsonl, .parquet) there{_hint(files)}"
    )


def _open_stored(spec: str, options: CorpusOptions) -> Corpus:
    if options.carry:
        raise CorpusError("stored embeddings carry all their plain columns with them: leave out --carry")
    openers = {DATACOMP: open_datacomp, CLIP_RETRIEVAL: open_clip_retrieval}
    found = (opener for prefix, opener in openers.items() if spec.startswith(prefix))
    return next(found, open_vector_parquet)(spec, options)


def _hint(files: Sequence[str]) -> str:
    if any(path.endswith(".json") for path in files):
        return "; COCO captions are opened as coco:captions.json::images, timed ones as timed:captions.json::videos"
    return "; unpack it first" if any(path.endswith((".gz", ".xz", ".zip", ".zst")) for path in files) else ""


def _refuse_mixture(spec: str, places: Sequence[Place], used: Sequence[str]) -> None:
    """Files that were named one by one must not be left out in silence."""
    left_out = {place.path for place in places if not place.folder} - set(used)
    if left_out:
        raise CorpusError(f"{spec}: {min(left_out)} is not of the same kind as {used[0]}; audit them apart")


def _files(place: Place) -> list[str]:
    """All files of a place; symbolic links to folders are not followed, so there are no circles."""
    if not place.folder:
        return [place.path]
    if remote_files.is_url(place.path):
        return list(remote_files.listing(place.path))
    return [os.path.join(top, name) for top, _, names in os.walk(place.path) for name in names if name[0] != "."]


def _named(paths: Sequence[str]) -> tuple[str, list[str]]:
    root = common_root(paths)
    return root, shard_names([path.removeprefix(root).lstrip("/") for path in paths])


def _tar_corpus(spec: str, paths: Sequence[str], options: CorpusOptions) -> Corpus:
    root, names = _named(paths)
    return Corpus(spec, root, [TarShard(name, path, options) for name, path in zip(names, paths, strict=True)])


def _table_corpus(spec: str, paths: Sequence[str], options: CorpusOptions) -> Corpus:
    root, names = _named(paths)
    parquet = [(path, name) for path, name in zip(paths, names, strict=True) if form_of(path) == "parquet"]
    shards: list[Shard] = []
    if parquet:
        shards += list_parquet([path for path, _ in parquet], [name for _, name in parquet], options)
    for path, name in zip(paths, names, strict=True):
        form = form_of(path)
        if form is not None and form != "parquet":
            shards += list_text(path, form, name, options)
    return Corpus(spec, root, shards)


def without_caches(files: Sequence[str]) -> list[str]:
    """The files of a corpus without the Arrow files that no dataset beside them calls its own."""
    own: dict[str, set[str]] = {}
    for path in files:
        folder, _, name = path.rpartition("/")
        if name == STATE and (listed := data_files(path)):
            own[folder] = {f"{folder}/{file}" for file in listed}
    return sorted(
        {path for path in files if not path.endswith(".arrow") or path in own.get(path.rpartition("/")[0], {path})}
        | {path for paths in own.values() for path in paths}
    )


def data_files(state: str) -> list[str]:
    """The Arrow files that a state.json names; none where it is of something else."""
    try:
        found = json.loads(read_media(state, 0, -1))
        return [entry["filename"] for entry in found["_data_files"] if "/" not in entry["filename"]]
    except (MediaError, ValueError, KeyError, TypeError, RecursionError):
        return []
