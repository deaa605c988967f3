"""COCO captions: `coco:captions_val2017.json::val2017`, the JSON with `images` and `annotations`, and the image folder.

An image is one sample with all of its captions; its `id` stays out of it, its file name makes the key.
"""

from typing import Any

from auditor.corpus.caption_text import captions_of
from auditor.corpus.corpus_spec import COCO
from auditor.corpus.file_names import natural
from auditor.corpus.shard import Corpus, CorpusError, CorpusOptions
from auditor.corpus.tables.entry_shard import Entry
from auditor.corpus.tables.json_list import open_json_list


def open_coco(spec: str, options: CorpusOptions) -> Corpus:
    return open_json_list(spec, COCO, options, _entries)


def _entries(record: Any, path: str) -> list[Entry]:
    if not isinstance(record, dict) or not isinstance(record.get("images"), list):
        raise CorpusError(f"{path} is not in COCO's form: an object with the lists `images` and `annotations`")
    captions: dict[Any, list[str]] = {}
    for annotation in record.get("annotations") or []:
        captions.setdefault(annotation.get("image_id"), []).extend(captions_of(annotation.get("caption")))
    entries = []
    for row, image in enumerate(record["images"]):
        name = image.get("file_name")
        if not isinstance(name, str):
            raise CorpusError(f"{path}: image {row} has no file_name")
        entries.append(Entry(row, name, tuple(captions.pop(image.get("id"), ()))))
    if not entries:
        raise CorpusError(f"{path} lists no images")
    # captions of images that are not listed are rows too: nothing of the input is dropped
    entries += [
        Entry(len(entries) + number, "", tuple(texts), key=f"image_id {image}")
        for number, (image, texts) in enumerate(captions.items())
    ]
    return sorted(entries, key=lambda entry: natural(entry.media))
