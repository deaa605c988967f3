"""Corpora that are embeddings already: where their files are, and how the files become shards.

`datacomp:FOLDER` holds NAME.parquet with the rows and NAME.npz with their CLIP features. `clip-retrieval:FOLDER` holds
img_emb/, text_emb/ and metadata/, with one file of each per part. Any other Parquet file needs --visual-column and
--text-column. Files are opened until one can be read; the sweep reports any other file that disagrees with it.
"""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from auditor.audit_folder.extra_columns import plain_type
from auditor.corpus import remote_files
from auditor.corpus.corpus_spec import CLIP_RETRIEVAL, DATACOMP, find_places
from auditor.corpus.file_names import common_root, natural, shard_names
from auditor.corpus.read_medium import open_parquet
from auditor.corpus.shard import Corpus, CorpusError, CorpusOptions, Shard
from auditor.corpus.stored.npy_matrix import MatrixPlace
from auditor.corpus.stored.vector_shard import LARGE, ROWS, Roles, VectorColumn, VectorPlace, VectorShard, first_width
from auditor.corpus.tables.table import CAPTION_NAMES, KEY_NAMES, usual
from auditor.schema import COLUMNS

TRIED = 20  # files, before a corpus is called unreadable
DATACOMP_ROLES = Roles("text", "uid", "uid", "url", "original_width", "original_height", "sha256")
DATACOMP_FEATURES = "l14"  # of b32 and l14, the better
PATHS = ("image_path", "media_path", "file_name", "path")
_METADATA = re.compile(r"metadata/metadata_(\w+)\.parquet$")


@dataclass(frozen=True, slots=True)
class VectorFile:
    """A Parquet file, where its vectors are, and how much of them there is."""

    path: str
    visual: VectorPlace
    text: VectorPlace
    size: int  # bytes of the largest of its files


def open_datacomp(spec: str, options: CorpusOptions) -> Corpus:
    """Every Parquet file under the folder with the .npz beside it; one that is missing is a failed shard."""
    place = find_places(spec.removeprefix(DATACOMP))[0]
    if not place.folder:
        raise CorpusError(f"{spec}: name the folder with the .parquet and .npz files")
    sizes = sized_files(place.path)
    tables = sorted((path for path in sizes if path.endswith(".parquet")), key=natural)
    if not tables:
        raise CorpusError(f"{spec}: no .parquet file there")
    features = options.features or DATACOMP_FEATURES
    files = []
    for path in tables:
        npz = path.removesuffix(".parquet") + ".npz"
        sides = MatrixPlace(npz, f"{features}_img"), MatrixPlace(npz, f"{features}_txt")
        files.append(VectorFile(path, *sides, sizes.get(npz, 0)))
    return list_shards(spec, place.path, files, DATACOMP_ROLES)


def open_clip_retrieval(spec: str, options: CorpusOptions) -> Corpus:
    """The parts that metadata/ names; a part without its embeddings is a failed shard."""
    place = find_places(spec.removeprefix(CLIP_RETRIEVAL))[0]
    sizes = sized_files(place.path) if place.folder else {}
    files = []
    for path in sorted(sizes, key=natural):
        if found := _METADATA.search(path):
            root = path[: found.start()]
            visual = f"{root}img_emb/img_emb_{found[1]}.npy"
            text = f"{root}text_emb/text_emb_{found[1]}.npy"
            files.append(VectorFile(path, MatrixPlace(visual), MatrixPlace(text), sizes.get(visual, 0)))
    if not files:
        raise CorpusError(
            f"{spec}: no metadata/metadata_0.parquet there, beside img_emb/ and text_emb/; "
            "clip-retrieval writes it with --enable_metadata or --enable_text"
        )
    key = options.key_column or "image_path"
    roles = Roles(options.caption_column or "caption", None, key, "image_path", "width", "height", None)
    return list_shards(spec, place.path, files, roles)


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


def list_shards(spec: str, root: str, files: Sequence[VectorFile], roles: Roles) -> Corpus:
    """The corpus of some files; the first that can be read says how wide vectors are and which columns there are."""
    below = common_root([file.path for file in files])
    names = shard_names([file.path.removeprefix(below).lstrip("/") for file in files])
    schema, dim, roles = _agree(spec, files, roles)
    carried = carried_columns(schema, roles)
    shards: list[Shard] = []
    for file, name in zip(files, names, strict=True):
        whole = VectorShard(name, file.path, file.visual, file.text, roles, carried, dim)
        shards += cut(whole) if file.size > LARGE else [whole]
    return Corpus(spec, root, shards)


def _agree(spec: str, files: Sequence[VectorFile], roles: Roles) -> tuple[pa.Schema, int, Roles]:
    first: Exception | None = None
    for file in files[:TRIED]:
        try:
            with open_parquet(file.path) as table:
                schema = table.schema_arrow
                widths = {side: _width(place, table, file.path) for side, place in _sides(file)}
        except (OSError, CorpusError, pa.ArrowException) as error:
            first = first or error
            continue
        if len(set(widths.values())) > 1:
            both = " and ".join(f"{side} vectors of {width} numbers" for side, width in widths.items())
            raise CorpusError(f"{file.path} has {both}: both sides must come from one model")
        if widths["visual"]:
            return schema, widths["visual"], _there(schema, roles)
    raise CorpusError(f"{spec}: {first or 'no row has a vector'}")


def _sides(file: VectorFile) -> list[tuple[str, VectorPlace]]:
    return [("visual", file.visual), ("text", file.text)]


def _width(place: VectorPlace, table: pq.ParquetFile, path: str) -> int:
    if not isinstance(place, VectorColumn):
        with place.open() as matrix:
            return matrix.width
    place.check(table.schema_arrow, path)
    found = (first_width(batch.column(0)) for batch in table.iter_batches(1000, columns=[place.column]))
    return next(filter(None, found), 0)


def _there(schema: pa.Schema, roles: Roles) -> Roles:
    """Without the columns that may be there and are not."""
    absent: dict[str, Any] = {
        part: None
        for part in ("key", "path", "width", "height", "digest")
        if getattr(roles, part) is not None and getattr(roles, part) not in schema.names
    }
    return replace(roles, **absent)


def carried_columns(schema: pa.Schema, roles: Roles) -> tuple[tuple[str, str], ...]:
    """The plain columns that the audit has under no name of its own, each with the Arrow type it is kept as."""
    found = []
    for field in schema:
        kept = plain_type(field.type)
        if kept and field.name not in roles.said_elsewhere and field.name not in COLUMNS:
            found.append((field.name, kept))
    return tuple(found)


def cut(shard: VectorShard) -> Iterator[VectorShard]:
    """Shards of at most ROWS rows, ending with row groups where those are not too large."""
    try:
        with open_parquet(shard.path) as file:
            groups = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
    except (OSError, CorpusError, pa.ArrowException):
        yield shard  # reading it will say what is wrong
        return
    start = 0
    total = sum(groups)
    for number, stop in enumerate([*range(ROWS, total, ROWS), total]):
        yield replace(shard, name=f"{shard.name}-{number:06d}", start=start, stop=stop)
        start = stop


def sized_files(folder: str) -> dict[str, int]:
    """Every file under a folder or URL with its size."""
    if remote_files.is_url(folder):
        return {path: int(info.get("size") or 0) for path, info in remote_files.listing(folder).items()}
    found = {}
    for top, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(top, name)
            found[path] = os.stat(path).st_size if os.path.exists(path) else 0
    return found


def size_of(path: str) -> int:
    return int(remote_files.describe(path).get("size") or 0) if remote_files.is_url(path) else os.stat(path).st_size
