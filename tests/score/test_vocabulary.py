"""Vocabulary of a corpus: encoded once per model, stored with the audit, and omitted without an encoder."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from auditor.audit_folder.folder import Folder
from auditor.score.vocabulary import FILE, load_vocabulary
from auditor.vectors import Floats
from tests.support.pairs import normalize_rows


class Tower:
    """Encodes texts by their letters and records them."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, texts: Sequence[str]) -> Floats:
        self.asked += texts
        return normalize_rows(np.array([[text.count(letter) + 0.1 for letter in "abcdefgo"] for text in texts]))


def test_words_are_encoded_once_for_a_model(tmp_path: Path) -> None:
    folder, tower = Folder(tmp_path), Tower()
    first = load_vocabulary(folder, ["dog", "beach"], "model-1", tower)
    assert first is not None and first.names == ("dog", "beach") and tower.asked == ["a dog", "a beach"]
    again = load_vocabulary(folder, ["dog", "beach", "face"], "model-1", tower)
    assert again is not None and tower.asked[2:] == ["a face"]
    assert np.array_equal(again.vectors[:2], first.vectors)
    load_vocabulary(folder, ["dog"], "model-2", tower)
    assert tower.asked[3:] == ["a dog"]


def test_without_an_encoder_only_stored_words_of_the_model_are_used(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    assert load_vocabulary(folder, ["dog"], "model-1", None) is None
    load_vocabulary(folder, ["dog"], "model-1", Tower(), keep=False)
    assert not folder.exists(FILE)
    load_vocabulary(folder, ["dog"], "model-1", Tower())
    known = load_vocabulary(folder, ["dog", "beach"], "model-1", None)
    assert known is not None and known.names == ("dog",)
    assert load_vocabulary(folder, ["dog"], "model-2", None) is None
