"""Reads the annotation files of MS-COCO, Flickr8k and Flickr30k: Karpathy's JSON, COCO's own JSON, token files."""

import csv
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from auditor.corpus.caption_text import decode_text, split_lines
from auditor.research.evaluate.annotations import (
    BenchmarkEntry,
    BenchmarkError,
    BenchmarkListing,
    add_name,
    find_first_file,
    flatten_caption,
    load_json,
    load_lines,
    require_file,
)

# Karpathy's restval is the part of COCO val2014 that is used for training.
SPLIT_NAMES = {"restval": "train", "dev": "val", "validation": "val", "validate": "val"}


def read_coco(root: Path) -> BenchmarkListing:
    karpathy = find_first_file(root, ["dataset_coco.json"])
    return read_karpathy(karpathy, "coco") if karpathy else read_coco_captions(root)


def read_flickr8k(root: Path) -> BenchmarkListing:
    return _read_flickr(root, "flickr8k", ["Flickr8k.token.txt", "Flickr8k.lemma.token.txt"])


def read_flickr30k(root: Path) -> BenchmarkListing:
    return _read_flickr(root, "flickr30k", ["results_20130124.token", "Flickr30k.token.txt"])


def read_karpathy(path: Path, benchmark: str) -> BenchmarkListing:
    """Read `dataset_<name>.json`: images with file name, split and sentences."""
    listing = BenchmarkListing(benchmark)
    try:
        for image in load_json(path)["images"]:
            sentences = image["sentences"]
            listing.add(
                BenchmarkEntry(
                    id=str(image.get("cocoid", image.get("imgid", image["filename"]))),
                    split=SPLIT_NAMES.get(image["split"], image["split"]),
                    filename=str(Path(image.get("filepath", ""), image["filename"])),
                    captions=tuple(flatten_caption(s["raw"]) for s in sentences),
                    caption_ids=_read_sentence_ids(sentences, benchmark),
                )
            )
    except (KeyError, TypeError, AttributeError) as error:
        raise BenchmarkError(f"{path} is not in Karpathy's format: {error!r}") from None
    return listing


def _read_sentence_ids(sentences: list[dict[str, Any]], benchmark: str) -> tuple[str, ...]:
    """Ids of sentences. In Karpathy's COCO file a sentid is COCO's annotation id; in his other files it is his own."""
    prefix = "" if benchmark == "coco" else "sentid:"
    return tuple(f"{prefix}{s['sentid']}" if s.get("sentid") is not None else "" for s in sentences)


def read_coco_captions(root: Path) -> BenchmarkListing:
    """Read `captions_{train,val}2014.json` and the id lists of the splits (of images, or of captions as in PCME)."""
    images: dict[int, str] = {}
    captions: dict[int, list[tuple[int, str]]] = {}
    for year_part in ("train", "val"):
        path = require_file(root, f"captions_{year_part}2014.json", f"captions_{year_part}2017.json")
        content = load_json(path)
        try:
            images |= {int(image["id"]): str(image["file_name"]) for image in content["images"]}
            for annotation in content["annotations"]:
                text = (int(annotation["id"]), flatten_caption(annotation["caption"]))
                captions.setdefault(int(annotation["image_id"]), []).append(text)
        except (KeyError, TypeError, ValueError) as error:
            raise BenchmarkError(f"{path} is not in COCO's format: {error!r}") from None
    listing = BenchmarkListing("coco")
    owner = {caption: image for image, texts in captions.items() for caption, _ in texts}
    for split, ids in _read_coco_id_lists(root).items():
        for image in _resolve_image_ids(ids, images, owner, split):
            if image not in images:
                add_name(listing.unannotated, split, str(image))
                continue
            texts = captions.get(image, [])
            listing.add(
                BenchmarkEntry(
                    str(image), split, images[image], tuple(t for _, t in texts), tuple(str(i) for i, _ in texts)
                )
            )
    return listing


def _read_coco_id_lists(root: Path) -> dict[str, list[int]]:
    ids_by_split: dict[str, list[int]] = {}
    for name, split in (("train", "train"), ("restval", "train"), ("val", "val"), ("dev", "val"), ("test", "test")):
        stems = (f"{name}_ids", f"coco_{name}_ids", f"{name}_image_ids")
        path = find_first_file(root, [stem + suffix for stem in stems for suffix in (".txt", ".npy")])
        if path:
            ids_by_split.setdefault(split, []).extend(_read_ids(path))
    if not ids_by_split:
        raise BenchmarkError(
            f"{root} has no dataset_coco.json and no id lists such as test_ids.txt or coco_test_ids.npy"
        )
    return ids_by_split


def _read_ids(path: Path) -> list[int]:
    try:
        if path.suffix == ".npy":
            return [int(i) for i in np.load(path, allow_pickle=False).ravel()]
        return [int(line) for line in load_lines(path)]
    except ValueError as error:
        raise BenchmarkError(f"{path} is not a list of ids: {error}") from None


def _resolve_image_ids(ids: list[int], images: dict[int, str], owner: dict[int, int], split: str) -> list[int]:
    """Image ids from a list of image ids or caption ids. Their numbers overlap, so the better match decides."""
    as_image = sum(i in images for i in ids)
    as_caption = sum(i in owner for i in ids)
    if as_image == as_caption == len(ids) > 0:
        raise BenchmarkError(f"the {split} ids match images and captions alike; use Karpathy's dataset_coco.json")
    image_ids = ids if as_image >= as_caption else [owner.get(i, i) for i in ids]
    return list(dict.fromkeys(image_ids))


def _read_flickr(root: Path, benchmark: str, token_names: list[str]) -> BenchmarkListing:
    karpathy = find_first_file(root, [f"dataset_{benchmark}.json"])
    if karpathy:
        return read_karpathy(karpathy, benchmark)
    path = require_file(root, *token_names, "captions.txt")
    captions: dict[str, list[str]] = {}
    for name, caption in _read_caption_lines(path):
        captions.setdefault(name, []).append(flatten_caption(caption))
    split_of = _read_flickr_splits(root)
    listing = BenchmarkListing(benchmark)
    for name in sorted(set(split_of) - set(captions)):
        add_name(listing.unannotated, split_of[name], name)
    for name, texts in captions.items():
        if split_of and name not in split_of:  # 92 of Flickr8k's 8,092 photos
            listing.unlisted.append(name)
            continue
        listing.add(BenchmarkEntry(name.split(".")[0], split_of.get(name, "all"), name, tuple(texts)))
    return listing


def _read_caption_lines(path: Path) -> Iterable[tuple[str, str]]:
    """Read lines `name.jpg#0<tab>caption`, or the `image,caption` table from Kaggle."""
    lines = [line for line in split_lines(decode_text(path.read_bytes())) if line.strip()]
    if lines and lines[0].replace(" ", "").lower() == "image,caption":
        return [(row[0], row[1] if len(row) > 1 else "") for row in csv.reader(lines[1:]) if row]
    matches: list[Any] = [re.match(r"(.+?)#\d+\s+(.*)", line) for line in lines]
    if not matches or any(m is None for m in matches):
        raise BenchmarkError(f"{path} has lines that are not `name.jpg#0<tab>caption`")
    return [(m[1], m[2]) for m in matches]


def _read_flickr_splits(root: Path) -> dict[str, str]:
    """File name -> split, from files such as `Flickr_8k.trainImages.txt` or `train.txt`."""
    split_of: dict[str, str] = {}
    for name, split in (("train", "train"), ("dev", "val"), ("val", "val"), ("test", "test")):
        path = find_first_file(root, [f"Flickr_8k.{name}Images.txt", f"{name}.txt", f"{name}_images.txt"])
        if path:
            names = [line if "." in line else f"{line}.jpg" for line in load_lines(path)]
            split_of |= dict.fromkeys(names, split)
    return split_of
