"""Open a corpus: `open_corpus("shards/{00000..00012}.tar")` detects its kind and lists its shards.

docs/corpora.md lists the kinds. A folder is read as tars if it has any (img2dataset writes a .parquet beside each),
else as media with sidecars, else as tables (`metadata.csv` beside the images that it describes).
"""

import json
import os
from collections.abc import Sequence
from typing import Literal

from auditor.corpus.corpus_files import is_below, is_url, read_range
from auditor.corpus.corpus_spec import CLIP_RETRIEVAL, COCO, DATACOMP, TIMED, CorpusPath, find_corpus_paths
from auditor.corpus.file_names import find_common_root, make_shard_names, natural_sort_key
from auditor.corpus.media_folder import SIDECARS, list_folder_shards
from auditor.corpus.shard import DEFAULT_OPTIONS, Corpus, CorpusError, CorpusOptions, OpenShard, Shard, ShardError
from auditor.corpus.stored.stored_corpora import open_clip_retrieval, open_datacomp, open_vector_parquet
from auditor.corpus.tables.json_captions import open_json_list
from auditor.corpus.tables.parquet_table import list_parquet_shards
from auditor.corpus.tables.table import find_table_form
from auditor.corpus.tables.text_table import list_text_shards
from auditor.corpus.tar_archive import is_tar
from auditor.corpus.tar_shard import TarShard

__all__ = ["Corpus", "CorpusError", "CorpusOptions", "OpenShard", "Shard", "ShardError", "open_corpus"]
OPENERS = {COCO: open_json_list, TIMED: open_json_list, DATACOMP: open_datacomp, CLIP_RETRIEVAL: open_clip_retrieval}
STATE = "state.json"  # of a folder that Hugging Face's `save_to_disk` wrote


def open_corpus(spec: str, options: CorpusOptions = DEFAULT_OPTIONS) -> Corpus:
    """List the shards of a corpus without opening any. Raises CorpusError if the spec is wrong."""
    prefix = next((name for name in OPENERS if spec.startswith(name)), None)
    vectors = options.visual_column or options.text_column
    if options.carry and prefix not in (COCO, TIMED) and (prefix or vectors):
        raise CorpusError("stored embeddings always carry all their plain columns: leave out --carry")
    if prefix in (COCO, TIMED):
        refuse_caption_names(spec, options, "list")
    elif prefix or vectors:
        refuse_caption_names(spec, options, "vectors")
    if prefix:
        return OPENERS[prefix](spec, options)
    if vectors:
        return open_vector_parquet(spec, options)
    paths = find_corpus_paths(spec)
    files = sorted({file for path in paths for file in path.list_files()}, key=natural_sort_key)
    if not options.follow_links:
        refuse_links(paths, files)
    if tars := [path for path in files if is_tar(path)]:
        return _open_file_corpus(spec, paths, tars, options)
    folders = [path.path for path in paths if path.folder]
    tables = sorted((path for path in drop_cached_arrow_files(files) if find_table_form(path)), key=natural_sort_key)
    sidecars = any(path.rpartition(".")[2] in SIDECARS for path in files)
    if len(paths) == 1 and folders and (sidecars or not tables) and (shards := list_folder_shards(folders[0], options)):
        refuse_caption_names(spec, options, "files")
        return Corpus(spec, folders[0], shards)
    if tables:
        return _open_file_corpus(spec, paths, tables, options)
    if len(paths) > 1 and folders:
        raise CorpusError(f"{spec}: give one folder of media, or several tars or tables")
    hint = "; unpack it first" if any(path.endswith((".gz", ".xz", ".zip", ".zst")) for path in files) else ""
    if any(path.endswith(".json") for path in files):
        hint = "; COCO captions are opened as coco:captions.json::images, timed ones as timed:captions.json::videos"
    raise CorpusError(f"{spec}: no tar, no image or video and no table (.csv, .tsv, .jsonl, .parquet) there{hint}")


def _open_file_corpus(spec: str, paths: Sequence[CorpusPath], used: Sequence[str], options: CorpusOptions) -> Corpus:
    """Open tars or tables. Raises CorpusError if a file that the spec names would be left out."""
    refuse_caption_names(spec, options, "table" if find_table_form(used[0]) else "files")
    left_out = {path.path for path in paths if not path.folder} - set(used)
    if left_out:
        raise CorpusError(f"{spec}: {min(left_out)} is not of the same kind as {used[0]}; audit them apart")
    root = find_common_root(used)
    names = make_shard_names([path.removeprefix(root).lstrip("/") for path in used])
    files = [(path, name, find_table_form(path)) for path, name in zip(used, names, strict=True)]
    shards: list[Shard] = [TarShard(name, path, options) for path, name, form in files if form is None]
    shards += list_parquet_shards([(path, name) for path, name, form in files if form == "parquet"], options)
    for path, name, form in files:
        if form is not None and form != "parquet":
            shards += list_text_shards(path, form, name, options)
    return Corpus(spec, root, shards)


def refuse_caption_names(spec: str, options: CorpusOptions, kind: Literal["list", "vectors", "files", "table"]) -> None:
    """Raise CorpusError if the user names sources of captions in a way that this kind of corpus does not have."""
    columns, fields = len(options.caption_column) > 1, bool(options.caption_fields)
    if kind == "list" and (columns or fields):
        raise CorpusError(f"{spec} has one source of captions: name a single --caption-column and no --caption-fields")
    if kind == "files" and columns:
        raise CorpusError(f"{spec} is no table: name the fields of its .json files with --caption-fields instead")
    if kind in ("vectors", "table") and fields:
        raise CorpusError(f"{spec} is a table: name its columns with --caption-column instead of --caption-fields")


def refuse_links(paths: Sequence[CorpusPath], files: Sequence[str]) -> None:
    """Raise CorpusError if a tar or table of a listed folder is a link out of it. Links to media become rows."""
    folders = [path.path for path in paths if path.folder and not is_url(path.path)]
    named = {path.path for path in paths}
    for file in files if folders else ():
        is_link = file not in named and (is_tar(file) or find_table_form(file)) and os.path.islink(file)
        if is_link and not any(is_below(file, folder) for folder in folders):
            raise CorpusError(f"{file} is a link out of the corpus; --follow-links reads it")


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
        names = [entry["filename"] for entry in json.loads(read_range(state))["_data_files"]]
        return [name for name in names if "/" not in name]
    except (OSError, CorpusError, ValueError, KeyError, TypeError, RecursionError):
        return []
