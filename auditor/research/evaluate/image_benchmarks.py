"""Reads the annotation files of MS-COCO, Flickr8k and Flickr30k: Karpathy's JSON, COCO's own, token files."""

import csv
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from auditor.corpus.caption_text import decode_text, split_lines
from auditor.research.evaluate.annotations import (
    BenchmarkError,
    Entry,
    Listing,
    first_existing,
    load_json,
    load_lines,
    note,
    one_line,
    require,
)

# Karpathy's restval is the part of COCO val2014 that everybody trains on.
SPLIT_NAMES = {"restval": "train", "dev": "val", "validation": "val", "validate": "val"}


def read_coco(root: Path) -> Listing:
    karpathy = first_existing(root, ["dataset_coco.json"])
    return read_karpathy(karpathy, "coco") if karpathy else read_coco_captions(root)


def read_flickr8k(root: Path) -> Listing:
    return _read_flickr(root, "flickr8k", ["Flickr8k.token.txt", "Flickr8k.lemma.token.txt"])


def read_flickr30k(root: Path) -> Listing:
    return _read_flickr(root, "flickr30k", ["results_20130124.token", "Flickr30k.token.txt"])


def read_karpathy(path: Path, benchmark: str) -> Listing:
    """`dataset_<name>.json`: images with their file, split and sentences."""
    listing = Listing(benchmark)
    try:
        for image in load_json(path)["images"]:
            sentences = image["sentences"]
            listing.add(
                Entry(
                    id=str(image.get("cocoid", image.get("imgid", image["filename"]))),
                    split=SPLIT_NAMES.get(image["split"], image["split"]),
                    filename=str(Path(image.get("filepath", ""), image["filename"])),
                    captions=tuple(one_line(s["raw"]) for s in sentences),
                    caption_ids=_sentence_ids(sentences, benchmark),
                )
            )
    except (KeyError, TypeError, AttributeError) as error:
        raise BenchmarkError(f"{path} is not in Karpathy's format: {error!r}") from None
    return listing


def _sentence_ids(sentences: list[dict[str, Any]], benchmark: str) -> tuple[str, ...]:
    """In his COCO a sentid is COCO's own id of the annotation; elsewhere Karpathy counts by himself."""
    prefix = "" if benchmark == "coco" else "sentid:"
    return tuple(f"{prefix}{s['sentid']}" if s.get("sentid") is not None else "" for s in sentences)


def read_coco_captions(root: Path) -> Listing:
    """`captions_{train,val}2014.json` with the ids of each split (of images, or of captions as PCME has them)."""
    images: dict[int, str] = {}
    captions: dict[int, list[tuple[int, str]]] = {}
    for year_part in ("train", "val"):
        path = require(root, f"captions_{year_part}2014.json", f"captions_{year_part}2017.json")
        content = load_json(path)
        try:
            images |= {int(image["id"]): str(image["file_name"]) for image in content["images"]}
            for annotation in content["annotations"]:
                text = (int(annotation["id"]), one_line(annotation["caption"]))
                captions.setdefault(int(annotation["image_id"]), []).append(text)
        except (KeyError, TypeError, ValueError) as error:
            raise BenchmarkError(f"{path} is not in COCO's format: {error!r}") from None
    listing = Listing("coco")
    owner = {caption: image for image, texts in captions.items() for caption, _ in texts}
    for split, ids in _coco_id_lists(root).items():
        for image in _as_images(ids, images, owner, split):
            if image not in images:
                note(listing.unannotated, split, str(image))
                continue
            texts = captions.get(image, [])
            listing.add(
                Entry(str(image), split, images[image], tuple(t for _, t in texts), tuple(str(i) for i, _ in texts))
            )
    return listing


def _coco_id_lists(root: Path) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for name, split in (("train", "train"), ("restval", "train"), ("val", "val"), ("dev", "val"), ("test", "test")):
        stems = (f"{name}_ids", f"coco_{name}_ids", f"{name}_image_ids")
        path = first_existing(root, [stem + suffix for stem in stems for suffix in (".txt", ".npy")])
        if path:
            found.setdefault(split, []).extend(_ids(path))
    if not found:
        raise BenchmarkError(
            f"{root} has no dataset_coco.json and no id lists such as test_ids.txt or coco_test_ids.npy"
        )
    return found


def _ids(path: Path) -> list[int]:
    try:
        if path.suffix == ".npy":
            return [int(i) for i in np.load(path, allow_pickle=False).ravel()]
        return [int(line) for line in load_lines(path)]
    except ValueError as error:
        raise BenchmarkError(f"{path} is not a list of ids: {error}") from None


def _as_images(ids: list[int], images: dict[int, str], owner: dict[int, int], split: str) -> list[int]:
    """Ids of images, whether the list names images or captions: the numbers overlap, so the better fit decides."""
    as_image = sum(i in images for i in ids)
    as_caption = sum(i in owner for i in ids)
    if as_image == as_caption == len(ids) > 0:
        raise BenchmarkError(f"the {split} ids fit images and captions alike; use Karpathy's dataset_coco.json")
    named = ids if as_image >= as_caption else [owner.get(i, i) for i in ids]
    return list(dict.fromkeys(named))


def _read_flickr(root: Path, benchmark: str, token_names: list[str]) -> Listing:
    karpathy = first_existing(root, [f"dataset_{benchmark}.json"])
    if karpathy:
        return read_karpathy(karpathy, benchmark)
    path = require(root, *token_names, "captions.txt")
    captions: dict[str, list[str]] = {}
    for name, caption in _caption_lines(path):
        captions.setdefault(name, []).append(one_line(caption))
    split_of = _flickr_splits(root)
    listing = Listing(benchmark)
    for name in sorted(set(split_of) - set(captions)):
        note(listing.unannotated, split_of[name], name)
    for name, texts in captions.items():
        if split_of and name not in split_of:  # 92 of Flickr8k's 8,092 photos
            listing.unlisted.append(name)
            continue
        listing.add(Entry(name.split(".")[0], split_of.get(name, "all"), name, tuple(texts)))
    return listing


def _caption_lines(path: Path) -> Iterable[tuple[str, str]]:
    """`name.jpg#0<tab>caption` lines, or the `image,caption` table that Kaggle gives out."""
    lines = [line for line in split_lines(decode_text(path.read_bytes())) if line.strip()]
    if lines and lines[0].replace(" ", "").lower() == "image,caption":
        return [(row[0], row[1] if len(row) > 1 else "") for row in csv.reader(lines[1:]) if row]
    matches: list[Any] = [re.match(r"(.+?)#\d+\s+(.*)", line) for line in lines]
    if not matches or any(m is None for m in matches):
        raise BenchmarkError(f"{path} has lines that are not `name.jpg#0<tab>caption`")
    return [(m[1], m[2]) for m in matches]


def _flickr_splits(root: Path) -> dict[str, str]:
    """File name -> split, from `Flickr_8k.trainImages.txt` and the like, or `{train,val,test}.txt`."""
    split_of: dict[str, str] = {}
    for name, split in (("train", "train"), ("dev", "val"), ("val", "val"), ("test", "test")):
        path = first_existing(root, [f"Flickr_8k.{name}Images.txt", f"{name}.txt", f"{name}_images.txt"])
        if path:
            names = [line if "." in line else f"{line}.jpg" for line in load_lines(path)]
            split_of |= dict.fromkeys(names, split)
    return split_of
