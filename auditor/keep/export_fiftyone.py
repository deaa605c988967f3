"""The rows of an audit as a FiftyOne dataset: a sample for each pair, its numbers as fields, its flags as tags.

FiftyOne opens files, so media that lie in tars or tables are written out into a folder first, each once. A dataset of
FiftyOne has images or videos, not both: where there are both, the videos are in NAME-video.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from auditor.audit_folder.embeddings import file_name, read_embeddings
from auditor.audit_folder.folder import Folder
from auditor.corpus.file_names import portable_key
from auditor.corpus.raw_samples import media_extension
from auditor.corpus.read_medium import MediaError, read_media, without_fragment
from auditor.corpus.tar_archive import is_tar
from auditor.errors import AuditorError
from auditor.keep.export_target import ExportError, patient_sandbox, refuse_in_corpus
from auditor.keep.kept_rows import KeptRows
from auditor.query.sandbox import literal
from auditor.query.sandbox import name as quoted
from auditor.schema import FLAGS

LEFT_OUT = ("media_path", "media_offset", "media_size", *FLAGS)  # said by filepath and tags
RENAMED = {"frames": "frames_encoded", "id": "input_id", "tags": "input_tags", "metadata": "input_metadata"}
BATCH = 1000

Progress = Callable[[int], None]
Row = dict[str, Any]


def load_fiftyone() -> Any:
    try:
        import fiftyone
    except ModuleNotFoundError:
        raise AuditorError("FiftyOne is not installed here: pip install fiftyone, or export --csv") from None
    return fiftyone


def to_fiftyone(
    kept: KeptRows, name: str, media: str | None = None, *, force: bool = False, progress: Progress | None = None
) -> dict[str, int]:
    """Make the datasets; returns the samples of each by name. Rows whose medium cannot be read are in none."""
    fo = load_fiftyone()
    folder = Path(media or os.path.join(fo.config.default_dataset_dir, name)).absolute()
    refuse_in_corpus(kept, str(folder))
    kinds = [
        row["kind"]
        for row in kept.database.rows(f"SELECT DISTINCT kind FROM {kept.source} WHERE {kept.condition} ORDER BY kind")
    ]
    names = {kind: name if len(kinds) == 1 or kind == "image" else f"{name}-{kind}" for kind in kinds}
    for taken in names.values():
        if fo.dataset_exists(taken) and not force:
            raise ExportError(f"FiftyOne has a dataset {taken!r} already; --force replaces it")
    made = {}
    for kind, title in names.items():
        dataset = fo.Dataset(title, persistent=True, overwrite=force)
        for field, field_type in fields_of(kept, fo).items():
            dataset.add_sample_field(field, field_type)
        for samples in batches_of(samples_for(kept, kind, folder, fo), BATCH):
            dataset.add_samples(samples, progress=False)
            if progress:
                progress(len(samples))
        made[title] = len(dataset)
    return made


def batches_of(samples: Iterator[Any], size: int) -> Iterator[list[Any]]:
    batch: list[Any] = []
    for sample in samples:
        batch.append(sample)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def shown_columns(kept: KeptRows) -> list[str]:
    return [column for column in kept.database.columns if column not in LEFT_OUT]


def fields_of(kept: KeptRows, fo: Any) -> dict[str, Any]:
    """A field of FiftyOne for every column, so that one that is empty at first has its type."""
    listed = ", ".join(quoted(column) for column in shown_columns(kept))
    schema = kept.database.run(f"SELECT {listed} FROM samples LIMIT 0").schema
    return {field_name(field.name): field_type(field.type, fo) for field in schema} | {"embedding": fo.VectorField}


def field_name(column: str) -> str:
    return RENAMED.get(column, column.replace(".", "_"))


def field_type(kind: pa.DataType, fo: Any) -> Any:
    if pa.types.is_boolean(kind):
        return fo.BooleanField
    if pa.types.is_integer(kind):
        return fo.IntField
    return fo.FloatField if pa.types.is_floating(kind) else fo.StringField


def samples_for(kept: KeptRows, kind: str, folder: Path, fo: Any) -> Iterator[Any]:
    """A sample of FiftyOne for each kept row of a kind, shard by shard."""
    for shard, _ in kept.by_shard():
        vectors = shard_vectors(kept.database.files.folder, shard)
        for row in rows_of(kept, shard, kind):
            path = file_of(kept, row, folder)
            if path is None:
                continue
            fields = {field_name(column): row[column] for column in shown_columns(kept)}
            tags = [flag for flag in FLAGS if row[flag]]
            vector = vectors.get((row["uid"], row["caption_index"]))
            yield fo.Sample(filepath=path, tags=tags, embedding=vector, **fields)


def rows_of(kept: KeptRows, shard: str, kind: str) -> Iterator[Row]:
    chosen = f"{kept.condition} AND shard = {literal(shard)} AND kind = {literal(kind)}"
    order = "ORDER BY media_path, media_offset, caption_index"
    with patient_sandbox(kept) as sandbox:
        for batch in sandbox.stream(f"SELECT * FROM reviewed AS samples WHERE {chosen} {order}", BATCH):
            yield from batch.to_pylist()


def shard_vectors(folder: Folder, shard: str) -> dict[tuple[str, int], Any]:
    """The stored vector of each row's medium, by uid and caption_index; none where the audit keeps no embeddings."""
    if not folder.exists(file_name(shard)):
        return {}
    stored = read_embeddings(folder, shard)
    facts = stored.facts.select(["uid", "caption_index"]).take(pa.array(stored.rows)).to_pylist()
    vectors = stored.media.visual.astype(np.float32)[stored.media_index]
    return {(row["uid"], row["caption_index"]): vector for row, vector in zip(facts, vectors, strict=True)}


def file_of(kept: KeptRows, row: Row, folder: Path) -> str | None:
    """The file of a row's medium: its own where it has one, else one that is written now; None where it is gone."""
    path = row["media_path"]
    if path is None:
        return None
    if without_fragment(path) == path and "://" not in path and not is_tar(path) and not kept.database.moved_to:
        return str(path) if os.path.isfile(path) else None
    try:
        data = read_media(
            path, row["media_offset"], row["media_size"], root=kept.database.moved_to, old_root=kept.database.old_root
        )
    except MediaError:
        return None
    ending = media_extension("#" if is_tar(without_fragment(path)) else path, data)
    # with part of its digest: keys that differ in odd characters only are portable as the same name
    target = folder / row["shard"] / f"{portable_key(row['key'])}-{(row['media_digest'] or row['uid'])[:8]}.{ending}"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    return str(target)
