"""Open corpora of stored embeddings: find their files and cut them into shards.

`datacomp:FOLDER` holds NAME.parquet with the rows and NAME.npz with their CLIP features, `clip-retrieval:FOLDER` holds
img_emb/, text_emb/ and metadata/. Any other Parquet file needs --visual-column and --text-column. Several columns of
captions are sources, each with text vectors of its own. The first readable file determines the columns; the sweep
reports any other file that disagrees with it.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from auditor.audit_folder.extra_columns import find_plain_type
from auditor.corpus.corpus_files import Info, is_url, read_object_info
from auditor.corpus.corpus_spec import CLIP_RETRIEVAL, DATACOMP, CorpusPath, find_corpus_paths
from auditor.corpus.file_names import find_common_root, make_shard_names, natural_sort_key
from auditor.corpus.parquet_rows import open_parquet
from auditor.corpus.shard import Corpus, CorpusError, CorpusOptions, Shard
from auditor.corpus.stored.npy_matrix import MatrixFile
from auditor.corpus.stored.vector_shard import ColumnRoles, VectorColumn, VectorShard, find_usual_width
from auditor.corpus.tables.table import CAPTION_NAMES, KEY_NAMES, choose_named_columns, find_usual_column
from auditor.schema import COLUMNS

SHARD_ROWS = 25_000  # of a shard of a large file
LARGE_FILE_BYTES = 2**28  # a larger file is opened and cut
MAX_TRIED_FILES = 20  # before a corpus is reported as unreadable
DATACOMP_ROLES = ColumnRoles(("text",), "uid", "uid", "url", "original_width", "original_height", "sha256")
DATACOMP_FEATURES = "l14"  # b32 is the other one
OPTIONAL_ROLES = ("key", "path", "width", "height", "digest")
PATH_COLUMNS = ("image_path", "media_path", "file_name", "path")
_METADATA = re.compile(r"metadata/metadata_(\w+)\.parquet$")


def open_datacomp(spec: str, options: CorpusOptions) -> Corpus:
    """Open every Parquet file under the folder with the .npz beside it; a missing .npz is a failed shard."""
    place = find_corpus_paths(spec.removeprefix(DATACOMP))[0]
    if not place.folder:
        raise CorpusError(f"{spec}: give the folder with the .parquet and .npz files")
    sizes = list_file_sizes(place)
    features = options.features or DATACOMP_FEATURES
    roles = replace(DATACOMP_ROLES, captions=options.caption_column or DATACOMP_ROLES.captions)
    names = options.text_column or (f"{features}_txt",)
    shards = []
    for path in _list_parquet_files(spec, sizes):
        npz = path.removesuffix(".parquet") + ".npz"
        visual, *texts = (MatrixFile(npz, name) for name in (options.visual_column or f"{features}_img", *names))
        shards.append(VectorShard("", path, visual, tuple(texts), roles))
    return list_vector_shards(spec, place.path, shards, sizes)


def open_clip_retrieval(spec: str, options: CorpusOptions) -> Corpus:
    """Open the parts that metadata/ lists; a part without its embeddings is a failed shard."""
    place = find_corpus_paths(spec.removeprefix(CLIP_RETRIEVAL))[0]
    sizes = list_file_sizes(place) if place.folder else {}
    key = options.key_column or "image_path"
    roles = ColumnRoles(options.caption_column or ("caption",), None, key, "image_path", "width", "height", None)
    folders = (options.visual_column or "img_emb", *(options.text_column or ("text_emb",)))
    shards = []
    for path in sorted(sizes, key=natural_sort_key):
        if match := _METADATA.search(path):
            root = path[: match.start()]
            visual, *texts = (MatrixFile(f"{root}{name}/{name}_{match[1]}.npy") for name in folders)
            shards.append(VectorShard("", path, visual, tuple(texts), roles))
    if not shards:
        raise CorpusError(
            f"{spec}: no metadata/metadata_0.parquet there, beside img_emb/ and text_emb/; "
            "clip-retrieval writes it with --enable_metadata or --enable_text"
        )
    return list_vector_shards(spec, place.path, shards, sizes)


def open_vector_parquet(spec: str, options: CorpusOptions) -> Corpus:
    if options.visual_column is None or not options.text_column:
        raise CorpusError("give both --visual-column and --text-column: the two columns of vectors")
    sizes: dict[str, int] = {}
    for place in find_corpus_paths(spec):
        sizes |= list_file_sizes(place)
    paths = _list_parquet_files(spec, sizes)
    columns = _list_columns(paths[0])
    texts = tuple(VectorColumn(name, parts=True) for name in choose_named_columns(columns, options.text_column))
    roles = _choose_roles(paths[0], columns, options)
    shards = [VectorShard("", path, VectorColumn(options.visual_column), texts, roles) for path in paths]
    return list_vector_shards(spec, find_common_root(paths), shards, sizes)


def _list_parquet_files(spec: str, files: Iterable[str]) -> list[str]:
    paths = sorted((path for path in files if path.endswith(".parquet")), key=natural_sort_key)
    if not paths:
        raise CorpusError(f"{spec}: no .parquet file there")
    return paths


def _list_columns(path: str) -> list[str]:
    try:
        with open_parquet(path) as file:
            return list(file.schema_arrow.names)
    except (OSError, pa.ArrowException) as error:
        raise CorpusError(f"{path} is not a readable Parquet file: {error}") from error


def _choose_roles(path: str, names: Sequence[str], options: CorpusOptions) -> ColumnRoles:
    captions = choose_named_columns(names, options.caption_column)
    if not captions:
        caption = find_usual_column(CAPTION_NAMES, names)
        if caption is None:
            columns = ", ".join(names[:30])
            raise CorpusError(f"which column holds the captions? {path} has {columns}; use --caption-column")
        captions = (caption,)
    for column in (*captions, options.key_column):
        if column is not None and column not in names:
            raise CorpusError(f"no column {column!r}: {path} has {', '.join(names[:30])}")
    key = options.key_column or find_usual_column((*KEY_NAMES, "uid", *PATH_COLUMNS), names)
    path_column = options.media_column or find_usual_column((*PATH_COLUMNS, "url"), names)
    return ColumnRoles(captions, find_usual_column(("uid",), names), key, path_column, "width", "height", "sha256")


def list_vector_shards(spec: str, root: str, files: Sequence[VectorShard], sizes: Mapping[str, int]) -> Corpus:
    """Name and cut the shards of files; the first readable file determines the width of vectors and the columns."""
    below = find_common_root([file.path for file in files])
    names = make_shard_names([file.path.removeprefix(below).lstrip("/") for file in files])
    roles = files[0].roles
    if len(roles.captions) != len(files[0].texts):
        columns = f"{len(roles.captions)} columns of captions ({', '.join(roles.captions)})"
        vectors = ", ".join(place.column_name for place in files[0].texts)
        raise CorpusError(
            f"{columns}, but {len(files[0].texts)} of text vectors ({vectors}): name one --text-column for each"
        )
    schema, dim = _read_first_schema(spec, files)
    absent: dict[str, Any] = {role: None for role in OPTIONAL_ROLES if getattr(roles, role) not in schema.names}
    roles = replace(roles, **absent)
    audit_columns = {*roles.captions, roles.uid, roles.key, *COLUMNS}  # the audit stores them itself
    types = ((field.name, find_plain_type(field.type)) for field in schema if field.name not in audit_columns)
    carried = tuple((name, stored_type) for name, stored_type in types if stored_type)
    shards: list[Shard] = []
    for file, name in zip(files, names, strict=True):
        whole = replace(file, name=name, roles=roles, carried=carried, dim=dim)
        large = max(sizes.get(path, 0) for path in whole.files) > LARGE_FILE_BYTES
        shards += cut_vector_shard(whole) if large else [whole]
    return Corpus(spec, root, shards)


def _read_first_schema(spec: str, files: Sequence[VectorShard]) -> tuple[pa.Schema, int]:
    first: Exception | None = None
    for file in files[:MAX_TRIED_FILES]:
        try:
            with open_parquet(file.path) as table:
                schema = table.schema_arrow
                if absent := [name for name in file.roles.captions if name not in schema.names]:
                    columns = ", ".join(schema.names[:30])
                    raise CorpusError(f"no column {absent[0]!r}: {file.path} has {columns}")
                visual, *texts = (_read_width(place, table, file.path) for place in (file.visual, *file.texts))
        except (OSError, CorpusError, pa.ArrowException) as error:
            first = first or error
            continue
        if widths := set(texts) - {visual}:
            description = f"visual vectors of {visual} numbers and text vectors of {min(widths)} numbers"
            raise CorpusError(f"{file.path} has {description}: both sides must come from one model")
        if visual:
            return schema, visual
    raise CorpusError(f"{spec}: {first or 'no row has a vector'}")


def _read_width(place: MatrixFile | VectorColumn, table: pq.ParquetFile, path: str) -> int:
    if not isinstance(place, VectorColumn):
        with place.open() as matrix:
            return matrix.width
    place.check(table.schema_arrow, path)
    widths = (find_usual_width(batch.column(0)) for batch in table.iter_batches(1000, columns=[place.column]))
    return next(filter(None, widths), 0)


def cut_vector_shard(shard: VectorShard) -> Iterator[VectorShard]:
    try:
        with open_parquet(shard.path) as file:
            total = file.metadata.num_rows
    except (OSError, CorpusError, pa.ArrowException):
        yield shard  # opening the shard reports the error
        return
    start = 0
    for number, stop in enumerate([*range(SHARD_ROWS, total, SHARD_ROWS), total]):
        yield replace(shard, name=f"{shard.name}-{number:06d}", start=start, stop=stop)
        start = stop


def list_file_sizes(place: CorpusPath) -> dict[str, int]:
    return {path: _get_file_size(path, info) for path, info in place.list_files().items()}


def _get_file_size(path: str, info: Info) -> int:
    if is_url(path):
        return int((info or read_object_info(path)).get("size") or 0)
    return os.stat(path).st_size if os.path.exists(path) else 0
