"""The kept samples as a `datasets.Dataset` of Hugging Face: one row a sample, its medium and the kept captions.

Where captions have spans, `starts` and `ends` list them; both are empty for a caption of the whole video.

The rows are streamed into one Arrow file, which the dataset maps into memory, so a subset may be larger than memory. In
a temporary folder the file goes with the dataset; in a folder that is named it stays, and `auditor audit` reads it.
"""

import json
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from auditor.corpus.file_names import kind_of
from auditor.corpus.raw_samples import OWN_FIELDS, read_kept
from auditor.corpus.sample_files import medium_file
from auditor.errors import AuditorError
from auditor.keep.export_target import ExportError, refuse_in_corpus
from auditor.keep.kept_rows import KeptRows

DATA = "data-00000-of-00001.arrow"
BATCH = 100  # rows written at once
OF_CAPTIONS = ("captions", "uids", "starts", "ends")


def to_datasets(kept: KeptRows, folder: str | Path | None = None) -> Any:
    """A datasets.Dataset with key, image or video, captions and uids, and the spans of timed captions."""
    try:
        import datasets
    except ModuleNotFoundError:
        raise AuditorError("Hugging Face's datasets is not installed: pip install 'pau-auditor[datasets]'") from None
    if folder is not None:
        refuse_in_corpus(kept, str(folder))
    if folder is not None and Path(folder).exists() and any(Path(folder).iterdir()):
        raise ExportError(f"{folder} exists and is not empty; choose another folder")
    place = Path(tempfile.mkdtemp(prefix="auditor-datasets-")) if folder is None else Path(folder)
    try:
        schema = make_features(kept, datasets).arrow_schema
        place.mkdir(parents=True, exist_ok=True)
        write_rows(kept, place / DATA, schema)
        made = datasets.Dataset.from_file(str(place / DATA))
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise
    if folder is None:
        weakref.finalize(made, shutil.rmtree, str(place), ignore_errors=True)
    else:
        describe(place, made)
    return made


def make_features(kept: KeptRows, datasets: Any) -> Any:
    """image and video as far as there are any, undecoded until they are looked at."""
    kinds = {
        row["kind"] for row in kept.database.rows(f"SELECT DISTINCT kind FROM {kept.source} WHERE {kept.condition}")
    }
    media = {"image": datasets.Image(), "video": datasets.Video()}
    text, time = datasets.Value("string"), datasets.Value("float64")
    timed = kept.database.rows(f'SELECT 1 FROM {kept.source} WHERE ({kept.condition}) AND "start" IS NOT NULL LIMIT 1')
    return datasets.Features(
        {
            "key": text,
            **{kind: media[kind] for kind in media if kind in kinds},
            "captions": [text],
            "uids": [text],
            **({"starts": [time], "ends": [time]} if timed else {}),
        }
    )


def write_rows(kept: KeptRows, path: Path, schema: pa.Schema) -> None:
    """All kept samples as one Arrow stream."""
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
        waiting: list[dict[str, Any]] = []
        for row in rows_of(kept):
            waiting.append({name: row.get(name) for name in schema.names})
            if len(waiting) == BATCH:
                writer.write_batch(pa.RecordBatch.from_pylist(waiting, schema=schema))
                waiting = []
        if waiting:
            writer.write_batch(pa.RecordBatch.from_pylist(waiting, schema=schema))


def rows_of(kept: KeptRows) -> Iterator[dict[str, Any]]:
    for shard, _ in kept.with_media():
        rows = kept.shard(shard)
        for row, sample in zip(rows.table.to_pylist(), read_kept(rows), strict=True):
            name = medium_file(extension for extension in sample if extension not in OWN_FIELDS)
            medium = {"bytes": sample[name], "path": f"{row['key'].rpartition('/')[2]}.{name}"} if name else None
            kind = kind_of(name) if name else None
            yield {**{name: row[name] for name in OF_CAPTIONS}, "key": row["key"], str(kind): medium}


def describe(place: Path, made: Any) -> None:
    """What makes a folder one of `save_to_disk`: `datasets.load_from_disk` opens it."""
    state = {
        "_data_files": [{"filename": DATA}],
        "_fingerprint": made._fingerprint,
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": None,
    }
    (place / "dataset_info.json").write_text(json.dumps({"features": made.features.to_dict()}), encoding="utf-8")
    (place / "state.json").write_text(json.dumps(state), encoding="utf-8")
