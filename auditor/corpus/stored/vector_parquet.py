"""Parquet with two columns of vectors and one of captions: named by --visual-column and --text-column."""

import pyarrow as pa

from auditor.corpus.corpus_spec import find_places
from auditor.corpus.file_names import common_root, natural
from auditor.corpus.read_medium import open_parquet
from auditor.corpus.shard import Corpus, CorpusError, CorpusOptions
from auditor.corpus.stored.vector_column import VectorColumn
from auditor.corpus.stored.vector_shard import Roles
from auditor.corpus.stored.vector_shards import VectorFile, list_shards, size_of, sized_files
from auditor.corpus.tables.table import CAPTION_NAMES, KEY_NAMES, usual

PATHS = ("image_path", "media_path", "file_name", "path")


def open_vector_parquet(spec: str, options: CorpusOptions) -> Corpus:
    """All Parquet files that the spec names; both columns must be given."""
    if options.visual_column is None or options.text_column is None:
        raise CorpusError("--visual-column and --text-column go together: the two columns of vectors")
    sizes: dict[str, int] = {}
    for place in find_places(spec):
        sizes |= sized_files(place.path) if place.folder else {place.path: size_of(place.path)}
    paths = sorted((path for path in sizes if path.endswith(".parquet")), key=natural)
    if not paths:
        raise CorpusError(f"{spec}: no .parquet file there")
    sides = VectorColumn(options.visual_column), VectorColumn(options.text_column)
    files = [VectorFile(path, *sides, sizes[path]) for path in paths]
    return list_shards(spec, common_root(paths), files, _roles(paths[0], options))


def _roles(path: str, options: CorpusOptions) -> Roles:
    try:
        with open_parquet(path) as file:
            names = file.schema_arrow.names
    except (OSError, pa.ArrowException) as error:
        raise CorpusError(f"{path} is not a readable Parquet file: {error}") from error
    caption = options.caption_column or usual(CAPTION_NAMES, names)
    if caption is None:
        raise CorpusError(f"which column holds the captions? {path} has {', '.join(names[:30])}; use --caption-column")
    for wanted in (caption, options.key_column):
        if wanted is not None and wanted not in names:
            raise CorpusError(f"no column {wanted!r}: {path} has {', '.join(names[:30])}")
    key = options.key_column or usual((*KEY_NAMES, "uid", *PATHS), names)
    path_column = options.media_column or usual((*PATHS, "url"), names)
    return Roles(caption, usual(("uid",), names), key, path_column, "width", "height", "sha256")
