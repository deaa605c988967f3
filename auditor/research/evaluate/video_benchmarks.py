"""Reads the annotation files of MSR-VTT, MSVD and DiDeMo, as distributed with CLIP4Clip."""

import csv
import io
import pickle
from pathlib import Path
from typing import Any

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


def read_msrvtt(root: Path) -> BenchmarkListing:
    """Read the 1k-A protocol: 9,000 training videos with all captions, 1,000 test videos with one caption each."""
    path = require_file(root, "MSRVTT_data.json")
    sentences: dict[str, list[tuple[str, str]]] = {}
    try:
        content = load_json(path)
        video_ids = {str(video["video_id"]) for video in content["videos"]}
        for sentence in content["sentences"]:
            text = (str(sentence.get("sen_id", "")), flatten_caption(sentence["caption"]))
            sentences.setdefault(str(sentence["video_id"]), []).append(text)
    except (KeyError, TypeError, AttributeError) as error:
        raise BenchmarkError(f"{path} is not MSR-VTT's: {error!r}") from None
    listing = BenchmarkListing("msrvtt")
    for row in _read_csv_rows(require_file(root, "MSRVTT_train.9k.csv", "MSRVTT_train.7k.csv"), "video_id"):
        video = row["video_id"]
        if video not in video_ids:
            add_name(listing.unannotated, "train", video)
            continue
        texts = sentences.get(video, [])
        listing.add(BenchmarkEntry(video, "train", video, tuple(t for _, t in texts), tuple(i for i, _ in texts)))
    for row in _read_csv_rows(require_file(root, "MSRVTT_JSFUSION_test.csv"), "video_id", "sentence"):
        keys = (row["key"],) if row.get("key") else ()
        listing.add(BenchmarkEntry(row["video_id"], "test", row["video_id"], (flatten_caption(row["sentence"]),), keys))
    return listing


def _read_csv_rows(path: Path, *needed: str) -> list[dict[str, str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        missing = [name for name in needed if name not in (reader.fieldnames or [])]
        if missing:
            raise BenchmarkError(f"{path} has no column {missing[0]}")
        return [row for row in reader if row["video_id"]]


def read_msvd(root: Path) -> BenchmarkListing:
    """Read `{train,val,test}_list.txt` and `raw-captions.pkl`: id -> list of sentences, each a list of words."""
    captions = load_msvd_captions(require_file(root, "raw-captions.pkl"))
    listing = BenchmarkListing("msvd")
    for split in ("train", "val", "test"):
        for video in load_lines(require_file(root, f"{split}_list.txt")):
            if video in captions:
                listing.add(BenchmarkEntry(video, split, video, captions[video]))
            else:
                add_name(listing.unannotated, split, video)
    return listing


class CaptionUnpickler(pickle.Unpickler):
    """Unpickles only built-in containers and strings; refuses every other class or function in the file."""

    def find_class(self, module: str, name: str) -> Any:
        if module in {"builtins", "__builtin__"} and name in {"dict", "list", "tuple", "set", "frozenset", "str"}:
            return {"dict": dict, "list": list, "tuple": tuple, "set": set, "frozenset": frozenset, "str": str}[name]
        raise BenchmarkError(
            f"the pickle refers to {module}.{name}; captions are lists of words, nothing else is loaded"
        )


def load_msvd_captions(path: Path) -> dict[str, tuple[str, ...]]:
    try:
        content = CaptionUnpickler(io.BytesIO(path.read_bytes()), encoding="utf-8", errors="replace").load()
    except BenchmarkError as error:
        raise BenchmarkError(f"{path}: {error}") from None
    except Exception as error:  # a broken pickle raises almost any exception
        raise BenchmarkError(f"{path} cannot be read as a pickle: {error!r}") from None
    if not isinstance(content, dict):
        raise BenchmarkError(f"{path} holds a {type(content).__name__}, not captions by video")
    return {str(video): _join_sentences(path, sentences) for video, sentences in content.items()}


def _join_sentences(path: Path, sentences: Any) -> tuple[str, ...]:
    if not isinstance(sentences, list | tuple):
        raise BenchmarkError(f"{path} has a {type(sentences).__name__} where a video's list of sentences should be")
    return tuple(_join_words(path, words) for words in sentences)


def _join_words(path: Path, words: Any) -> str:
    if isinstance(words, str):
        return flatten_caption(words)
    if isinstance(words, list | tuple) and all(isinstance(word, str) for word in words):
        return flatten_caption(" ".join(words))
    raise BenchmarkError(f"{path} has a sentence that is not a list of words")


def read_didemo(root: Path) -> BenchmarkListing:
    """Read `{train,val,test}_data.json`: the descriptions of a video's moments are joined to one paragraph."""
    listing = BenchmarkListing("didemo")
    has_annotations = False
    for split in ("train", "val", "test"):
        path = find_first_file(root, [f"{split}_data.json"])
        if path is None:
            continue
        has_annotations = True
        paragraphs: dict[str, list[str]] = {}
        try:
            for moment in load_json(path):
                paragraphs.setdefault(str(moment["video"]), []).append(flatten_caption(moment["description"]))
        except (KeyError, TypeError) as error:
            raise BenchmarkError(f"{path} is not DiDeMo's: {error!r}") from None
        for video, sentences in paragraphs.items():
            entry = BenchmarkEntry(video.split(".")[0], split, video, (flatten_caption(" ".join(sentences)),))
            listing.add(entry)
            if any(entry.captions) and not all(sentences):
                add_name(listing.caption_missing, split, entry.id)
    if not has_annotations:
        raise BenchmarkError(f"{root} has no train_data.json, val_data.json or test_data.json")
    return listing
