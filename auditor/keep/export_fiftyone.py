"""Export the rows of an audit as a FiftyOne dataset: one sample per pair, columns as fields, flags as tags.

FiftyOne opens files, so media in tars or tables are extracted into a folder first. A FiftyOne dataset holds images or
videos, not both: if the rows have both, the videos go to NAME-video.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from auditor.audit_folder.embeddings import name_embeddings_file, read_embeddings
from auditor.audit_folder.folder import Folder
from auditor.corpus.file_names import make_portable_key
from auditor.corpus.raw_samples import find_media_extension
from auditor.corpus.read_medium import MediaError, strip_fragment
from auditor.corpus.tar_archive import is_tar
from auditor.errors import AuditorError
from auditor.keep.export_target import ExportError, Progress, check_outside_corpus, split_batches
from auditor.keep.kept_rows import KeptRows
from auditor.query.row_queries import read_row_media
from auditor.query.sandbox import quote_literal
from auditor.schema import FLAGS, ORIGINAL_CAPTION

LEFT_OUT = ("media_path", "media_offset", "media_size", *FLAGS)  # replaced by filepath and tags
RENAMED = {"frames": "frames_encoded", "id": "input_id", "tags": "input_tags", "metadata": "input_metadata"}
BATCH = 1000

Row = dict[str, Any]


def load_fiftyone() -> Any:
    try:
        import fiftyone
    except ModuleNotFoundError:
        raise AuditorError("FiftyOne is not installed here: pip install fiftyone, or export --csv") from None
    return fiftyone


def export_fiftyone(
    subset: KeptRows, name: str, media: str | None = None, *, force: bool = False, progress: Progress | None = None
) -> dict[str, int]:
    """Create the datasets; returns their sample counts by name. Rows with unreadable media are left out."""
    fo = load_fiftyone()
    folder = Path(media or os.path.join(fo.config.default_dataset_dir, name)).absolute()
    check_outside_corpus(subset, str(folder))
    kinds = subset.list_kinds()
    names = {kind: name if len(kinds) == 1 or kind == "image" else f"{name}-{kind}" for kind in kinds}
    for dataset_name in names.values():
        if fo.dataset_exists(dataset_name) and not force:
            raise ExportError(f"FiftyOne already has a dataset {dataset_name!r}; --force replaces it")
    sample_counts = {}
    for kind, title in names.items():
        dataset = fo.Dataset(title, persistent=True, overwrite=force)
        for field, field_type in build_fields(subset, fo).items():
            dataset.add_sample_field(field, field_type)
        for samples in split_batches(build_samples(subset, kind, folder, fo), BATCH):
            dataset.add_samples(samples, progress=False)
            if progress:
                progress(len(samples))
        sample_counts[title] = len(dataset)
    return sample_counts


def list_field_columns(subset: KeptRows) -> list[str]:
    return [column for column in subset.columns if column not in LEFT_OUT]


def build_fields(subset: KeptRows, fo: Any) -> dict[str, Any]:
    """A FiftyOne field for every column, so that columns that begin empty have a type."""
    schema = subset.database.run(f"{subset.select_sql(list_field_columns(subset))} LIMIT 0").schema
    fields = {to_field_name(field.name): to_field_type(field.type, fo) for field in schema}
    return {**fields, "embedding": fo.VectorField}


def to_field_name(column: str) -> str:
    return RENAMED.get(column, column.replace(".", "_"))


def to_field_type(kind: pa.DataType, fo: Any) -> Any:
    if pa.types.is_boolean(kind):
        return fo.BooleanField
    if pa.types.is_integer(kind):
        return fo.IntField
    return fo.FloatField if pa.types.is_floating(kind) else fo.StringField


def build_samples(subset: KeptRows, kind: str, folder: Path, fo: Any) -> Iterator[Any]:
    """Yield a FiftyOne sample for each kept row of a kind, shard by shard."""
    for shard, _ in subset.by_shard():
        vectors = read_shard_vectors(subset.database.files.folder, shard)
        chosen = f"{subset.condition} AND shard = {quote_literal(shard)} AND kind = {quote_literal(kind)}"
        order = "ORDER BY media_path, media_offset, caption_index"
        columns = ", ".join(filter(None, map(subset.changes.select, ("caption", ORIGINAL_CAPTION))))
        rows = f"(SELECT {columns or 'caption'}, samples.* EXCLUDE (caption) FROM reviewed AS samples WHERE {chosen})"
        batches = subset.stream(f"SELECT * FROM {rows} {order}", BATCH)
        for row in (row for batch in batches for row in batch.to_pylist()):
            if path := find_media_file(subset, row, folder):
                fields = {to_field_name(column): row[column] for column in list_field_columns(subset)}
                tags = [flag for flag in FLAGS if row[flag]]
                vector = vectors.get((row["uid"], row["caption_index"]))
                yield fo.Sample(filepath=path, tags=tags, embedding=vector, **fields)


def read_shard_vectors(folder: Folder, shard: str) -> dict[tuple[str, int], Any]:
    """The stored media vector of each row, by uid and caption_index; empty if the audit has no embeddings."""
    if not folder.exists(name_embeddings_file(shard)):
        return {}
    stored = read_embeddings(folder, shard)
    facts = stored.facts.select(["uid", "caption_index"]).take(pa.array(stored.rows)).to_pylist()
    vectors = stored.media.visual.astype(np.float32)[stored.media_index]
    return {(row["uid"], row["caption_index"]): vector for row, vector in zip(facts, vectors, strict=True)}


def find_media_file(subset: KeptRows, row: Row, folder: Path) -> str | None:
    """The file of a row's medium, extracted if necessary; None if it cannot be read."""
    path = row["media_path"]
    if path is None:
        return None
    try:
        place = subset.database.places.locate(path)
        if strip_fragment(place) == place and "://" not in place and not is_tar(place):
            return place if os.path.isfile(place) else None
        data = read_row_media(subset.database, row)
    except MediaError:
        return None
    ending = find_media_extension("#" if is_tar(strip_fragment(path)) else path, data)
    digest = (row["media_digest"] or row["uid"])[:8]  # distinguishes keys that map to the same portable name
    target = folder / row["shard"] / f"{make_portable_key(row['key'])}-{digest}.{ending}"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    return str(target)
