"""Reads the annotation files of the benchmarks.

MS-COCO, Flickr8k and Flickr30k: Karpathy's JSON, COCO's own JSON, token files. MSR-VTT, MSVD and DiDeMo: the files that
are distributed with CLIP4Clip.
"""

import csv
import io
import pickle
import re
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from auditor.corpus.caption_text import decode_text, split_lines
from auditor.research.evaluate.annotations import (
    BenchmarkEntry,
    BenchmarkError,
    BenchmarkListing,
    Caption,
    add_name,
    find_first_file,
    flatten_caption,
    load_lines,
    open_json,
    require_file,
)

# Karpathy's restval is the part of COCO val2014 that is used for training.
SPLIT_NAMES = {"restval": "train", "dev": "val", "validation": "val", "validate": "val"}


def read_karpathy(path: Path, benchmark: str) -> BenchmarkListing:
    """Read `dataset_<name>.json`: images with file name, split and sentences."""
    listing = BenchmarkListing()
    # In Karpathy's COCO file a sentid is COCO's annotation id; in his other files it is his own.
    prefix = "" if benchmark == "coco" else "sentid:"
    with open_json(path, "in Karpathy's format") as content:
        for image in content["images"]:
            captions = [
                ("" if s.get("sentid") is None else f"{prefix}{s['sentid']}", flatten_caption(s["raw"]))
                for s in image["sentences"]
            ]
            number = str(image.get("cocoid", image.get("imgid", image["filename"])))
            split = SPLIT_NAMES.get(image["split"], image["split"])
            filename = str(Path(image.get("filepath", ""), image["filename"]))
            listing.add(BenchmarkEntry(number, split, filename, captions))
    return listing


def read_coco(root: Path) -> BenchmarkListing:
    """Read Karpathy's file, or `captions_{train,val}2014.json` and id lists (of images, or of captions as in PCME)."""
    if karpathy := find_first_file(root, "dataset_coco.json"):
        return read_karpathy(karpathy, "coco")
    images: dict[str, str] = {}
    captions: dict[str, list[Caption]] = {}
    for part in ("train", "val"):
        path = require_file(root, f"captions_{part}2014.json", f"captions_{part}2017.json")
        with open_json(path, "in COCO's format") as content:
            images |= {str(int(image["id"])): str(image["file_name"]) for image in content["images"]}
            for annotation in content["annotations"]:
                caption = str(int(annotation["id"])), flatten_caption(annotation["caption"])
                captions.setdefault(str(int(annotation["image_id"])), []).append(caption)
    listing = BenchmarkListing()
    owner = {number: image for image, texts in captions.items() for number, _ in texts}
    for split, ids in _read_coco_id_lists(root).items():
        listing.add_split(split, _resolve_image_ids(ids, images, owner, split), images, captions)
    return listing


def _read_coco_id_lists(root: Path) -> dict[str, list[str]]:
    ids_by_split: dict[str, list[str]] = {}
    for name in ("train", "restval", "val", "dev", "test"):
        stems = (f"{name}_ids", f"coco_{name}_ids", f"{name}_image_ids")
        if path := find_first_file(root, *(stem + suffix for stem in stems for suffix in (".txt", ".npy"))):
            ids_by_split.setdefault(SPLIT_NAMES.get(name, name), []).extend(_read_ids(path))
    if not ids_by_split:
        raise BenchmarkError(
            f"{root} has no dataset_coco.json and no id lists such as test_ids.txt or coco_test_ids.npy"
        )
    return ids_by_split


def _read_ids(path: Path) -> list[str]:
    try:
        ids = np.load(path, allow_pickle=False).ravel() if path.suffix == ".npy" else load_lines(path)
        return [str(int(number)) for number in ids]
    except ValueError as error:
        raise BenchmarkError(f"{path} is not a list of ids: {error}") from None


def _resolve_image_ids(ids: list[str], images: dict[str, str], owner: dict[str, str], split: str) -> list[str]:
    """Image ids from a list of image ids or caption ids. Their numbers overlap, so the better match decides."""
    as_image, as_caption = sum(i in images for i in ids), sum(i in owner for i in ids)
    if as_image == as_caption == len(ids) > 0:
        raise BenchmarkError(f"the {split} ids match images and captions alike; use Karpathy's dataset_coco.json")
    return list(dict.fromkeys(ids if as_image >= as_caption else [owner.get(i, i) for i in ids]))


def read_flickr(root: Path, benchmark: str, token_names: tuple[str, str]) -> BenchmarkListing:
    if karpathy := find_first_file(root, f"dataset_{benchmark}.json"):
        return read_karpathy(karpathy, benchmark)
    captions: dict[str, list[Caption]] = {}
    for name, caption in _read_caption_lines(require_file(root, *token_names, "captions.txt")):
        captions.setdefault(name, []).append(("", flatten_caption(caption)))
    split_of = _read_flickr_splits(root)
    listing = BenchmarkListing()
    for name in sorted(set(split_of) - set(captions)):
        add_name(listing.unannotated, split_of[name], name)
    for name, texts in captions.items():
        if split_of and name not in split_of:  # 92 of Flickr8k's 8,092 photos
            listing.unlisted.append(name)
        else:
            listing.add(BenchmarkEntry(name.split(".")[0], split_of.get(name, "all"), name, texts))
    return listing


def _read_caption_lines(path: Path) -> Iterable[tuple[str, str]]:
    """Read lines `name.jpg#0<tab>caption`, or the `image,caption` table from Kaggle."""
    lines = [line for line in split_lines(decode_text(path.read_bytes())) if line.strip()]
    if lines and lines[0].replace(" ", "").lower() == "image,caption":
        return [(row[0], row[1] if len(row) > 1 else "") for row in csv.reader(lines[1:]) if row]
    matches: list[Any] = [re.match(r"(.+?)#\d+\s+(.*)", line) for line in lines]
    if not matches or None in matches:
        raise BenchmarkError(f"{path} has lines that are not `name.jpg#0<tab>caption`")
    return [(m[1], m[2]) for m in matches]


def _read_flickr_splits(root: Path) -> dict[str, str]:
    """File name -> split, from files such as `Flickr_8k.trainImages.txt` or `train.txt`."""
    split_of: dict[str, str] = {}
    for name in ("train", "dev", "val", "test"):
        if path := find_first_file(root, f"Flickr_8k.{name}Images.txt", f"{name}.txt", f"{name}_images.txt"):
            names = [line if "." in line else f"{line}.jpg" for line in load_lines(path)]
            split_of |= dict.fromkeys(names, SPLIT_NAMES.get(name, name))
    return split_of


def read_msrvtt(root: Path) -> BenchmarkListing:
    """Read the 1k-A protocol: 9,000 training videos with all captions, 1,000 test videos with one caption each."""
    captions: dict[str, list[Caption]] = {}
    with open_json(require_file(root, "MSRVTT_data.json"), "MSR-VTT's") as content:
        videos = {str(video["video_id"]): str(video["video_id"]) for video in content["videos"]}
        for sentence in content["sentences"]:
            caption = str(sentence.get("sen_id", "")), flatten_caption(sentence["caption"])
            captions.setdefault(str(sentence["video_id"]), []).append(caption)
    listing = BenchmarkListing()
    rows = _read_csv_rows(require_file(root, "MSRVTT_train.9k.csv", "MSRVTT_train.7k.csv"), "video_id")
    listing.add_split("train", (row["video_id"] for row in rows), videos, captions)
    for row in _read_csv_rows(require_file(root, "MSRVTT_JSFUSION_test.csv"), "video_id", "sentence"):
        caption = row.get("key") or "", flatten_caption(row["sentence"])
        listing.add(BenchmarkEntry(row["video_id"], "test", row["video_id"], [caption]))
    return listing


def _read_csv_rows(path: Path, *needed: str) -> list[dict[str, str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        if missing := [name for name in needed if name not in (reader.fieldnames or [])]:
            raise BenchmarkError(f"{path} has no column {missing[0]}")
        return [row for row in reader if row["video_id"]]


def read_msvd(root: Path) -> BenchmarkListing:
    """Read `{train,val,test}_list.txt` and `raw-captions.pkl`: id -> list of sentences, each a list of words."""
    captions = load_msvd_captions(require_file(root, "raw-captions.pkl"))
    videos = {video: video for video in captions}
    listing = BenchmarkListing()
    for split in ("train", "val", "test"):
        listing.add_split(split, load_lines(require_file(root, f"{split}_list.txt")), videos, captions)
    return listing


class CaptionUnpickler(pickle.Unpickler):
    """Unpickles only built-in containers and strings; refuses every other class or function in the file."""

    def find_class(self, module: str, name: str) -> Any:
        allowed = {kind.__name__: kind for kind in (dict, list, tuple, set, frozenset, str)}
        if module in {"builtins", "__builtin__"} and name in allowed:
            return allowed[name]
        raise BenchmarkError(
            f"the pickle refers to {module}.{name}; captions are lists of words, nothing else is loaded"
        )


def load_msvd_captions(path: Path) -> dict[str, list[Caption]]:
    try:
        content = CaptionUnpickler(io.BytesIO(path.read_bytes()), encoding="utf-8", errors="replace").load()
    except BenchmarkError as error:
        raise BenchmarkError(f"{path}: {error}") from None
    except Exception as error:  # a broken pickle raises almost any exception
        raise BenchmarkError(f"{path} cannot be read as a pickle: {error!r}") from None
    if not isinstance(content, dict):
        raise BenchmarkError(f"{path} holds a {type(content).__name__}, not captions by video")
    for sentences in content.values():
        if not isinstance(sentences, list | tuple):
            raise BenchmarkError(f"{path} has a {type(sentences).__name__} where a video's list of sentences should be")
    return {str(video): [("", _join_words(path, words)) for words in sentences] for video, sentences in content.items()}


def _join_words(path: Path, words: Any) -> str:
    words = [words] if isinstance(words, str) else words
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        raise BenchmarkError(f"{path} has a sentence that is not a list of words")
    return flatten_caption(" ".join(words))


def read_didemo(root: Path) -> BenchmarkListing:
    """Read `{train,val,test}_data.json`: the descriptions of a video's moments are joined to one paragraph."""
    listing = BenchmarkListing()
    paths = {split: find_first_file(root, f"{split}_data.json") for split in ("train", "val", "test")}
    if not any(paths.values()):
        raise BenchmarkError(f"{root} has no train_data.json, val_data.json or test_data.json")
    for split, path in paths.items():
        if path is None:
            continue
        sentences_by_video: dict[str, list[str]] = {}
        with open_json(path, "DiDeMo's") as content:
            for moment in content:
                sentences_by_video.setdefault(str(moment["video"]), []).append(flatten_caption(moment["description"]))
        for video, sentences in sentences_by_video.items():
            paragraph = " ".join(filter(None, sentences))
            entry = BenchmarkEntry(video.split(".")[0], split, video, [("", paragraph)])
            listing.add(entry)
            if paragraph and not all(sentences):
                add_name(listing.caption_missing, split, entry.id)
    return listing


READERS: dict[str, Callable[[Path], BenchmarkListing]] = {
    "coco": read_coco,
    "flickr8k": partial(
        read_flickr, benchmark="flickr8k", token_names=("Flickr8k.token.txt", "Flickr8k.lemma.token.txt")
    ),
    "flickr30k": partial(
        read_flickr, benchmark="flickr30k", token_names=("results_20130124.token", "Flickr30k.token.txt")
    ),
    "msrvtt": read_msrvtt,
    "msvd": read_msvd,
    "didemo": read_didemo,
}
