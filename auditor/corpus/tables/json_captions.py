"""One JSON file of captions and the folder of its media, read whole and cut into shards.

`coco:captions_val2017.json::val2017` has `images` and `annotations`; the file name of an image makes the key.
`timed:train.json::videos` has one entry per video id, as in ActivityNet (`timestamps` with [start, end], and
`sentences`) or HowTo100M (`start`, `end` and `text`, one list each). The id finds the file of the video.
"""

import json
import os
from typing import Any

from auditor.corpus.caption_text import parse_captions, replace_unsafe
from auditor.corpus.corpus_files import is_url, make_path_absolute, read_range
from auditor.corpus.corpus_spec import COCO, TIMED
from auditor.corpus.file_names import make_shard_names, natural_sort_key
from auditor.corpus.shard import Corpus, CorpusError, CorpusOptions
from auditor.corpus.tables.entry_shard import EntryShard, TableEntry
from auditor.corpus.timed_captions import pair_texts_with_spans, parse_cell_spans

TIMED_FORM = '{"timestamps": [[0, 1]], "sentences": [""]} or {"start": [0], "end": [1], "text": [""]}'
TIMED_TEXTS = ("sentences", "text", "captions")


def open_json_list(spec: str, options: CorpusOptions) -> Corpus:
    """Open the corpus `PREFIX:JSON::FOLDER`; both may be URLs."""
    prefix, build_entries = (COCO, _coco_entries) if spec.startswith(COCO) else (TIMED, _timed_entries)
    captions, _, folder = spec.removeprefix(prefix).partition("::")
    if not captions or not folder:
        raise CorpusError(
            f"{spec}: name the file of captions and the folder of media, as in {prefix}captions.json::folder"
        )
    captions, folder = make_path_absolute(captions), make_path_absolute(folder)
    if not is_url(folder) and not os.path.isdir(folder):
        raise CorpusError(f"{folder} is not a folder")
    try:
        record = json.loads(read_range(captions))
    except FileNotFoundError:
        raise CorpusError(f"{captions} does not exist") from None
    except (OSError, ValueError, RecursionError) as error:
        raise CorpusError(f"{captions} cannot be read as JSON: {error}") from error
    entries = build_entries(record, captions)
    stem = captions.rpartition("/")[2].removesuffix(".json")
    cuts = [entries[start : start + options.shard_size] for start in range(0, len(entries), options.shard_size)]
    names = make_shard_names([f"{stem}-{number:06d}" for number in range(len(cuts))])
    shards = [EntryShard(name, folder, tuple(cut), options) for name, cut in zip(names, cuts, strict=True)]
    return Corpus(spec, folder, shards)


def _coco_entries(record: Any, path: str) -> list[TableEntry]:
    if not isinstance(record, dict) or not isinstance(record.get("images"), list):
        raise CorpusError(f"{path} is not in COCO's form: an object with the lists `images` and `annotations`")
    captions: dict[Any, list[str]] = {}
    annotations = record.get("annotations") or []
    for annotation in annotations if isinstance(annotations, list) else [None]:
        if not isinstance(annotation, dict):
            raise CorpusError(f"{path} is not in COCO's form: an annotation is {str(annotation)[:40]!r}")
        captions.setdefault(_read_id(annotation, "image_id"), []).extend(parse_captions(annotation.get("caption")))
    entries = []
    for row, image in enumerate(record["images"]):
        name = image.get("file_name") if isinstance(image, dict) else None
        if not isinstance(name, str):
            raise CorpusError(f"{path}: image {row} has no file_name")
        entries.append(TableEntry(row, replace_unsafe(name), tuple(captions.pop(_read_id(image, "id"), ()))))
    if not entries:
        raise CorpusError(f"{path} lists no images")
    # captions of unlisted images are rows too: no input is dropped
    entries += [
        TableEntry(len(entries) + number, "", tuple(texts), key=replace_unsafe(f"image_id {image}"))
        for number, (image, texts) in enumerate(captions.items())
    ]
    return sorted(entries, key=lambda entry: natural_sort_key(entry.media))


def _read_id(record: dict[str, Any], field: str) -> Any:
    """Return the id of an image; a list or an object as text."""
    value = record.get(field)
    return repr(value) if isinstance(value, dict | list) else value


def _timed_entries(record: Any, path: str) -> list[TableEntry]:
    if not isinstance(record, dict) or not record:
        raise CorpusError(f"{path} is not an object with an entry for each video's id: {TIMED_FORM}")
    return [_timed_entry(row, replace_unsafe(video), fields) for row, (video, fields) in enumerate(record.items())]


def _timed_entry(row: int, video: str, fields: Any) -> TableEntry:
    record = fields if isinstance(fields, dict) else {}
    texts = next((record[name] for name in TIMED_TEXTS if isinstance(record.get(name), list)), None)
    if texts is None:
        return TableEntry(row, video, (), key=video, defect=f"its entry is not {TIMED_FORM}")
    start, end = (record["start"], record.get("end", "")) if "start" in record else (record.get("timestamps"), None)
    captions = pair_texts_with_spans(texts, parse_cell_spans(start, end) if start is not None else ())
    lines, spans = tuple(text for _, text, _ in captions), tuple(span for *_, span in captions)
    return TableEntry(row, video, lines, key=video, spans=spans)
