"""Export the kept samples as a Hugging Face `datasets.Dataset`: one row per sample with its medium and kept captions.

If captions have spans, `starts` and `ends` list them; both are null for a caption of the whole video.

The rows are streamed into one Arrow file, which the dataset maps into memory, so a subset may be larger than memory. A
temporary file is deleted with the dataset; in a named folder it stays, and `auditor audit` can read it.
"""

import json
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from auditor.corpus.file_names import guess_media_kind
from auditor.corpus.raw_samples import OWN_FIELDS, read_kept_samples
from auditor.corpus.sample_files import choose_medium
from auditor.errors import AuditorError
from auditor.keep.export_target import ExportError, check_outside_corpus, split_batches
from auditor.keep.kept_rows import KeptRows

DATA = "data-00000-of-00001.arrow"
BATCH = 100  # rows written at once


def export_datasets(subset: KeptRows, folder: str | Path | None = None) -> Any:
    """A dataset with key, image or video, captions, uids, and the spans of timed captions."""
    try:
        import datasets
    except ModuleNotFoundError:
        raise AuditorError("Hugging Face's datasets is not installed: pip install 'pau-auditor[datasets]'") from None
    if folder is not None:
        check_outside_corpus(subset, str(folder))
        if Path(folder).exists() and any(Path(folder).iterdir()):
            raise ExportError(f"{folder} exists and is not empty; choose another folder")
    place = Path(tempfile.mkdtemp(prefix="auditor-datasets-")) if folder is None else Path(folder)
    try:
        schema = build_dataset_features(subset, datasets).arrow_schema
        place.mkdir(parents=True, exist_ok=True)
        with pa.OSFile(str(place / DATA), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
            for rows in split_batches(read_dataset_rows(subset), BATCH):
                writer.write_batch(pa.RecordBatch.from_pylist(rows, schema=schema))
        dataset = datasets.Dataset.from_file(str(place / DATA))
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise
    if folder is None:
        weakref.finalize(dataset, shutil.rmtree, str(place), ignore_errors=True)
    else:
        write_dataset_info(place, dataset)
    return dataset


def build_dataset_features(subset: KeptRows, datasets: Any) -> Any:
    """The dataset's features, with image and video if there are any; media are decoded on access."""
    kinds = subset.list_kinds()
    types = {"image": datasets.Image(), "video": datasets.Video()}
    media = {kind: types[kind] for kind in types if kind in kinds}
    text, time = datasets.Value("string"), datasets.Value("float64")
    spans = {"starts": [time], "ends": [time]} if subset.count_where('"start" IS NOT NULL') else {}
    return datasets.Features({"key": text, **media, "captions": [text], "uids": [text], **spans})


def read_dataset_rows(subset: KeptRows) -> Iterator[dict[str, Any]]:
    for shard, _ in subset.with_media():
        rows = subset.shard(shard)
        for row, sample in zip(rows.table.to_pylist(), read_kept_samples(rows), strict=True):
            name = choose_medium(extension for extension in sample if extension not in OWN_FIELDS)
            medium = {"bytes": sample[name], "path": f"{row['key'].rpartition('/')[2]}.{name}"} if name else None
            yield {**row, str(guess_media_kind(name) if name else None): medium}  # other fields are not in the schema


def write_dataset_info(place: Path, dataset: Any) -> None:
    """Write the metadata that `datasets.load_from_disk` expects."""
    state = {
        "_data_files": [{"filename": DATA}],
        "_fingerprint": dataset._fingerprint,
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": None,
    }
    (place / "dataset_info.json").write_text(json.dumps({"features": dataset.features.to_dict()}), encoding="utf-8")
    (place / "state.json").write_text(json.dumps(state), encoding="utf-8")
