"""Reads the annotation files of MSR-VTT, MSVD and DiDeMo as they are handed around with CLIP4Clip."""

import csv
import io
import pickle
from pathlib import Path
from typing import Any

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


def read_msrvtt(root: Path) -> Listing:
    """The 1k-A protocol: 9,000 training videos with all their captions, 1,000 test videos with one caption each."""
    path = require(root, "MSRVTT_data.json")
    sentences: dict[str, list[tuple[str, str]]] = {}
    try:
        content = load_json(path)
        known = {str(video["video_id"]) for video in content["videos"]}
        for sentence in content["sentences"]:
            text = (str(sentence.get("sen_id", "")), one_line(sentence["caption"]))
            sentences.setdefault(str(sentence["video_id"]), []).append(text)
    except (KeyError, TypeError, AttributeError) as error:
        raise BenchmarkError(f"{path} is not MSR-VTT's: {error!r}") from None
    listing = Listing("msrvtt")
    for row in _table(require(root, "MSRVTT_train.9k.csv", "MSRVTT_train.7k.csv"), "video_id"):
        video = row["video_id"]
        if video not in known:
            note(listing.unannotated, "train", video)
            continue
        texts = sentences.get(video, [])
        listing.add(Entry(video, "train", video, tuple(t for _, t in texts), tuple(i for i, _ in texts)))
    for row in _table(require(root, "MSRVTT_JSFUSION_test.csv"), "video_id", "sentence"):
        keys = (row["key"],) if row.get("key") else ()
        listing.add(Entry(row["video_id"], "test", row["video_id"], (one_line(row["sentence"]),), keys))
    return listing


def _table(path: Path, *needed: str) -> list[dict[str, str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        missing = [name for name in needed if name not in (reader.fieldnames or [])]
        if missing:
            raise BenchmarkError(f"{path} has no column {missing[0]}")
        return [row for row in reader if row["video_id"]]


def read_msvd(root: Path) -> Listing:
    """`{train,val,test}_list.txt` and `raw-captions.pkl`: id -> list of sentences, each a list of words."""
    captions = load_captions(require(root, "raw-captions.pkl"))
    listing = Listing("msvd")
    for split in ("train", "val", "test"):
        for video in load_lines(require(root, f"{split}_list.txt")):
            if video in captions:
                listing.add(Entry(video, split, video, captions[video]))
            else:
                note(listing.unannotated, split, video)
    return listing


class WordsOnly(pickle.Unpickler):
    """Unpickles builtin containers and strings; any class or function in the file is refused, never called."""

    def find_class(self, module: str, name: str) -> Any:
        if module in {"builtins", "__builtin__"} and name in {"dict", "list", "tuple", "set", "frozenset", "str"}:
            return {"dict": dict, "list": list, "tuple": tuple, "set": set, "frozenset": frozenset, "str": str}[name]
        raise BenchmarkError(
            f"the pickle refers to {module}.{name}; captions are lists of words, nothing else is loaded"
        )


def load_captions(path: Path) -> dict[str, tuple[str, ...]]:
    try:
        content = WordsOnly(io.BytesIO(path.read_bytes()), encoding="utf-8", errors="replace").load()
    except BenchmarkError as error:
        raise BenchmarkError(f"{path}: {error}") from None
    except Exception as error:  # a broken pickle raises nearly anything
        raise BenchmarkError(f"{path} cannot be read as a pickle: {error!r}") from None
    if not isinstance(content, dict):
        raise BenchmarkError(f"{path} holds a {type(content).__name__}, not captions by video")
    return {str(video): _sentences(path, sentences) for video, sentences in content.items()}


def _sentences(path: Path, sentences: Any) -> tuple[str, ...]:
    if not isinstance(sentences, list | tuple):
        raise BenchmarkError(f"{path} has a {type(sentences).__name__} where a video's list of sentences should be")
    return tuple(_sentence(path, words) for words in sentences)


def _sentence(path: Path, words: Any) -> str:
    if isinstance(words, str):
        return one_line(words)
    if isinstance(words, list | tuple) and all(isinstance(word, str) for word in words):
        return one_line(" ".join(words))
    raise BenchmarkError(f"{path} has a sentence that is not a list of words")


def read_didemo(root: Path) -> Listing:
    """`{train,val,test}_data.json`: moments with a description; those of a video are joined to one paragraph."""
    listing = Listing("didemo")
    found = False
    for split in ("train", "val", "test"):
        path = first_existing(root, [f"{split}_data.json"])
        if path is None:
            continue
        found = True
        paragraphs: dict[str, list[str]] = {}
        try:
            for moment in load_json(path):
                paragraphs.setdefault(str(moment["video"]), []).append(one_line(moment["description"]))
        except (KeyError, TypeError) as error:
            raise BenchmarkError(f"{path} is not DiDeMo's: {error!r}") from None
        for video, sentences in paragraphs.items():
            entry = Entry(video.split(".")[0], split, video, (one_line(" ".join(sentences)),))
            listing.add(entry)
            if any(entry.captions) and not all(sentences):
                note(listing.caption_missing, split, entry.id)
    if not found:
        raise BenchmarkError(f"{root} has no train_data.json, val_data.json or test_data.json")
    return listing
