"""COCO captions: `coco:captions_val2017.json::val2017`, the JSON with `images` and `annotations`, and the image folder.

An image is one sample with all of its captions; its `id` stays out of it, its file name makes the key.
"""

import json
import os
from typing import Any

from auditor.corpus import remote
from auditor.corpus.captions import captions_of
from auditor.corpus.names import natural, shard_names
from auditor.corpus.shard import Corpus, CorpusError, CorpusOptions
from auditor.corpus.spec import COCO
from auditor.corpus.tables.entries import Entry, ListedShard


def open_coco(spec: str, options: CorpusOptions) -> Corpus:
    """The corpus of `coco:JSON::FOLDER`; both may be URLs."""
    captions, separator, folder = spec.removeprefix(COCO).partition("::")
    if not separator or not captions or not folder:
        raise CorpusError(f"{spec}: say where captions and images are, as in coco:captions.json::images")
    captions, folder = remote.absolute(captions), remote.absolute(folder)
    if not remote.is_url(folder) and not os.path.isdir(folder):
        raise CorpusError(f"{folder} is not a folder")
    entries = _entries(_load(captions), captions)
    stem = captions.rpartition("/")[2]
    cuts = [entries[start : start + options.shard_size] for start in range(0, len(entries), options.shard_size)]
    names = shard_names([f"{stem.removesuffix('.json')}-{number:06d}" for number in range(len(cuts))])
    shards = [ListedShard(name, folder, tuple(cut)) for name, cut in zip(names, cuts, strict=True)]
    return Corpus(spec, folder, shards)


def _load(path: str) -> dict[str, Any]:
    try:
        if remote.is_url(path):
            data = remote.read_range(path, 0, -1)
        else:
            with open(path, "rb") as file:
                data = file.read()
        record = json.loads(data)
    except FileNotFoundError:
        raise CorpusError(f"{path} does not exist") from None
    except (OSError, ValueError, RecursionError) as error:
        raise CorpusError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(record, dict) or not isinstance(record.get("images"), list):
        raise CorpusError(f"{path} is not in COCO's form: an object with the lists `images` and `annotations`")
    return record


def _entries(record: dict[str, Any], path: str) -> list[Entry]:
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
