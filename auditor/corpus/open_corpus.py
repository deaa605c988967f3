"""Open a corpus: `open_corpus("shards/{00000..00012}.tar")` detects its kind and lists its shards.

| kind                   | form                                                                                      |
|------------------------|-------------------------------------------------------------------------------------------|
| WebDataset tars        | a .tar, a folder of them, a glob, `{000..012}`, `{a,b}`, `a.tar::b.tar`; local or a URL    |
| media with sidecars    | a folder with `cat.jpg` and `cat.txt` (or `cat.json`) in it, at any depth                  |
| tables                 | .csv, .tsv, .jsonl, .parquet; several, or a folder of them                                 |
| Hugging Face datasets  | a folder of `save_to_disk`, or the Parquet files of the hub                                |
| COCO captions          | `coco:captions_val2017.json::val2017`                                                      |
| timed captions by id   | `timed:train.json::videos`: ActivityNet's and HowTo100M's JSON                             |
| embeddings, no media   | `datacomp:FOLDER`, `clip-retrieval:FOLDER`, Parquet with a visual and a text column         |

A folder is read as tars if it has any (img2dataset writes a .parquet beside each), else as media with sidecars, else as
tables (`metadata.csv` beside the images that it describes).
"""

import json
import os
from collections.abc import Sequence

from auditor.corpus import remote_files
from auditor.corpus.corpus_spec import CLIP_RETRIEVAL, COCO, DATACOMP, TIMED, CorpusPath, find_corpus_paths
from auditor.corpus.file_names import SUBTITLES, find_common_root, make_shard_names, natural_sort_key
from auditor.corpus.media_folder import list_folder_shards
from auditor.corpus.read_medium import MediaError, read_media
from auditor.corpus.shard import DEFAULT_OPTIONS, Corpus, CorpusError, CorpusOptions, OpenShard, Shard, ShardError
from auditor.corpus.stored.stored_corpora import open_clip_retrieval, open_datacomp, open_vector_parquet
from auditor.corpus.tables.json_captions import open_coco, open_timed_json
from auditor.corpus.tables.parquet_table import list_parquet_shards
from auditor.corpus.tables.table import find_table_form
from auditor.corpus.tables.text_table import list_text_shards
from auditor.corpus.tar_archive import is_tar
from auditor.corpus.tar_shard import TarShard

__all__ = ["Corpus", "CorpusError", "CorpusOptions", "OpenShard", "Shard", "ShardError", "open_corpus"]
STATE = "state.json"  # of a folder that Hugging Face's `save_to_disk` wrote


def open_corpus(spec: str, options: CorpusOptions = DEFAULT_OPTIONS) -> Corpus:
    """List the shards of a corpus without opening any. Raises CorpusError if the spec is wrong."""
    if spec.startswith(COCO):
        return open_coco(spec, options)
    if spec.startswith(TIMED):
        return open_timed_json(spec, options)
    if spec.startswith((DATACOMP, CLIP_RETRIEVAL)) or options.visual_column or options.text_column:
        return _open_stored_corpus(spec, options)
    paths = find_corpus_paths(spec)
    files = sorted({file for path in paths for file in _list_path_files(path)}, key=natural_sort_key)
    if tars := [path for path in files if is_tar(path)]:
        _reject_mixed_files(spec, paths, tars)
        return _open_tar_corpus(spec, tars, options)
    folders = [path.path for path in paths if path.folder]
    tables = sorted((path for path in drop_cached_arrow_files(files) if find_table_form(path)), key=natural_sort_key)
    sidecars = any(path.endswith((".txt", ".json", *(f".{form}" for form in SUBTITLES))) for path in files)
    if len(paths) == 1 and folders and (sidecars or not tables) and (shards := list_folder_shards(folders[0], options)):
        return Corpus(spec, folders[0], shards)
    if tables:
        _reject_mixed_files(spec, paths, tables)
        return _open_table_corpus(spec, tables, options)
    if len(paths) > 1 and folders:
        raise CorpusError(f"{spec}: give one folder of media, or several tars or tables")
    raise CorpusError(
        f"{spec}: no tar, no image or video and no table (.csv, .tsv, .jsonl, .parquet) there{_suggest_form(files)}"
    )


def _open_stored_corpus(spec: str, options: CorpusOptions) -> Corpus:
    if options.carry:
        raise CorpusError("stored embeddings always carry all their plain columns: leave out --carry")
    openers = {DATACOMP: open_datacomp, CLIP_RETRIEVAL: open_clip_retrieval}
    choices = (opener for prefix, opener in openers.items() if spec.startswith(prefix))
    return next(choices, open_vector_parquet)(spec, options)


def _suggest_form(files: Sequence[str]) -> str:
    if any(path.endswith(".json") for path in files):
        return "; COCO captions are opened as coco:captions.json::images, timed ones as timed:captions.json::videos"
    return "; unpack it first" if any(path.endswith((".gz", ".xz", ".zip", ".zst")) for path in files) else ""


def _reject_mixed_files(spec: str, paths: Sequence[CorpusPath], used: Sequence[str]) -> None:
    """Raise CorpusError if a file that the spec names would be left out."""
    left_out = {path.path for path in paths if not path.folder} - set(used)
    if left_out:
        raise CorpusError(f"{spec}: {min(left_out)} is not of the same kind as {used[0]}; audit them apart")


def _list_path_files(path: CorpusPath) -> list[str]:
    """Return all files of a path. Symbolic links to folders are not followed, so there are no cycles."""
    if not path.folder:
        return [path.path]
    if remote_files.is_url(path.path):
        return list(remote_files.list_objects(path.path))
    return [os.path.join(top, name) for top, _, names in os.walk(path.path) for name in names if name[0] != "."]


def _name_shards(paths: Sequence[str]) -> tuple[str, list[str]]:
    root = find_common_root(paths)
    return root, make_shard_names([path.removeprefix(root).lstrip("/") for path in paths])


def _open_tar_corpus(spec: str, paths: Sequence[str], options: CorpusOptions) -> Corpus:
    root, names = _name_shards(paths)
    return Corpus(spec, root, [TarShard(name, path, options) for name, path in zip(names, paths, strict=True)])


def _open_table_corpus(spec: str, paths: Sequence[str], options: CorpusOptions) -> Corpus:
    root, names = _name_shards(paths)
    parquet = [(path, name) for path, name in zip(paths, names, strict=True) if find_table_form(path) == "parquet"]
    shards: list[Shard] = []
    if parquet:
        shards += list_parquet_shards([path for path, _ in parquet], [name for _, name in parquet], options)
    for path, name in zip(paths, names, strict=True):
        form = find_table_form(path)
        if form is not None and form != "parquet":
            shards += list_text_shards(path, form, name, options)
    return Corpus(spec, root, shards)


def drop_cached_arrow_files(files: Sequence[str]) -> list[str]:
    """Drop the Arrow files that are caches of `map` and `filter`: state.json lists those of the dataset."""
    dataset_files: dict[str, set[str]] = {}
    for path in files:
        folder, _, name = path.rpartition("/")
        if name == STATE and (listed := read_dataset_files(path)):
            dataset_files[folder] = {f"{folder}/{file}" for file in listed}
    paths = {path for path in files if not path.endswith(".arrow") or path.rpartition("/")[0] not in dataset_files}
    return sorted(paths.union(*dataset_files.values()))


def read_dataset_files(state: str) -> list[str]:
    """Return the Arrow files that a state.json lists; none if the file has another form."""
    try:
        record = json.loads(read_media(state, 0, -1))
        return [entry["filename"] for entry in record["_data_files"] if "/" not in entry["filename"]]
    except (MediaError, ValueError, KeyError, TypeError, RecursionError):
        return []
