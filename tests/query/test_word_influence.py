"""Words and phrases that contradict the medium are found by leaving them out."""

from pathlib import Path

import numpy as np
import pytest

from auditor import Audit
from auditor.query.search import list_phrases, weigh_words
from auditor.workers.encoder_client import SearchError
from tests.support.planted import make_embeddings, write_planted

DIM = 64


class BagOfWords:
    """A tower whose vector of a text is the sum of its words' own, as a unit."""

    def vector(self, word: str) -> np.ndarray:
        return np.random.default_rng([ord(letter) for letter in word]).normal(size=DIM)

    def encode_texts(self, texts: list[str]) -> np.ndarray:
        sums = np.array([sum((self.vector(word) for word in text.split()), np.zeros(DIM)) for text in texts])
        return (sums / np.linalg.norm(sums, axis=1, keepdims=True)).astype(np.float32)


def test_the_wrong_words_are_those_that_speak_against_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    visual, text = make_embeddings(40, dim=DIM)
    visual[3] = BagOfWords().encode_texts(["a brown dog runs on grass"])[0]
    captions = [f"caption {number}" for number in range(40)]
    captions[3] = "a brown dog runs beside parked lorries on grass"
    write_planted(tmp_path / "audit", visual, text, captions=captions)
    monkeypatch.setattr("auditor.query.search.get_encoder_client", lambda _: BagOfWords())
    with Audit(tmp_path / "audit") as audit:
        row = audit.page("caption LIKE '%lorries%'").to_pylist()[0]
        told = weigh_words(audit.database, row)
        assert told.phrase == "beside parked lorries" and told.phrase_gain == pytest.approx(
            1 - told.similarity, abs=1e-3
        )
        against = [word.word for word in told.words if word.gain > 0]
        assert against == ["beside", "parked", "lorries"]
        with pytest.raises(SearchError, match="no words to weigh"):
            weigh_words(audit.database, {**row, "caption": " "})


def test_phrases_are_runs_and_never_the_whole() -> None:
    assert list_phrases(1) == [(0, 1)] and list_phrases(2) == [(0, 1), (1, 2)]
    assert list_phrases(4) == [(0, 1), (1, 2), (2, 3), (3, 4), (0, 2), (1, 3), (2, 4), (0, 3), (1, 4)]
