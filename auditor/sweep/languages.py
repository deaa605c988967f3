"""Detects the language of captions with py3langid's model, one at a time or many at once with the same result.

py3langid steps an automaton over the bytes of a text, counts the features it passes and adds up their weights for each
language. For many captions, this module steps the automaton for all of them together and adds up with one sparse
product. Another order of addition changes the last digits of a probability, so py3langid itself decides if one is close
to `SURE`. The model's arrays are private fields: py3langid's public API classifies one text at a time, several times
slower, and its `rank` and `classify` give no access to them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from auditor.vectors import Floats

SHORTEST = 12  # characters; a shorter text has no language
SURE = 0.9  # smallest probability of a detected language
CLOSE = 0.005  # distance from SURE, far more than rounding can change
BATCH_BYTES = 2**20  # of the captions that are processed together
FEW = 32  # captions; processing fewer together takes longer than one after another
STEPS = 256  # texts up to this length are always processed together

Ints = npt.NDArray[np.integer[Any]]


def detect_language(caption: str) -> str | None:
    """An ISO 639-1 code, or None if the text is too short or too mixed, or py3langid is not installed."""
    if len(caption) < SHORTEST or (identifier := _load_identifier()) is None:
        return None
    code, probability = identifier.classify(caption)
    return str(code) if probability >= SURE else None


def detect_languages(captions: Sequence[str]) -> list[str | None]:
    """`detect_language` of each caption."""
    detected: list[str | None] = [None] * len(captions)
    if (model := _load_model()) is None:
        return detected
    for indices, texts in _batch_by_length(captions, model):
        limit = max(STEPS, len(texts[FEW - 1]) if len(texts) >= FEW else 0)
        alone = sum(len(text) > limit for text in texts)  # the first ones are faster to process one by one
        for index in indices[:alone]:
            detected[index] = detect_language(captions[index])
        codes, probabilities = model.classify(texts[alone:])
        for index, code, probability in zip(indices[alone:], codes, probabilities.tolist(), strict=True):
            if abs(probability - SURE) < CLOSE:
                detected[index] = detect_language(captions[index])
            elif probability > SURE:
                detected[index] = code
    return detected


@lru_cache(maxsize=1)
def _load_identifier() -> Any:
    """py3langid's classifier, or None if it is not installed."""
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError:
        return None
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


@lru_cache(maxsize=1)
def _load_model() -> "LanguageModel | None":
    if (identifier := _load_identifier()) is None:
        return None
    bases = np.asarray(identifier.tk_row).astype(np.int64) << 8
    outputs = np.array(identifier.tk_output, np.int32)
    return LanguageModel(identifier, np.asarray(identifier.tk_nextmove), bases, outputs)


def _batch_by_length(captions: Sequence[str], model: "LanguageModel") -> Iterator[tuple[list[int], list[bytes]]]:
    """Yield the indices and bytes of the captions that are long enough, longest first, in batches."""
    texts = [(index, model.encode(text)) for index, text in enumerate(captions) if len(text) >= SHORTEST]
    texts.sort(key=lambda indexed: len(indexed[1]), reverse=True)
    ends = accumulate(len(text) for _, text in texts)
    batches = groupby(zip(ends, texts, strict=True), key=lambda ended: ended[0] // BATCH_BYTES)
    for _, batch in batches:
        indices, encoded = zip(*(text for _, text in batch), strict=True)
        yield list(indices), list(encoded)


@dataclass(frozen=True, slots=True, eq=False)
class LanguageModel:
    """The arrays of py3langid's model. From a state with base b, byte c leads to the state moves[b + c]."""

    identifier: Any
    moves: Ints
    bases: Ints  # of each state
    features: Ints  # the feature that a state completes, or -1

    def encode(self, caption: str) -> bytes:
        return bytes(self.identifier._encode(caption))

    def classify(self, texts: Sequence[bytes]) -> tuple[list[str | None], Floats]:
        """The most probable language of each text and its probability; the texts are sorted, longest first."""
        if not texts:
            return [], np.zeros(0, np.float32)
        lengths = np.array([len(text) for text in texts])
        scores, has_features = self._compute_scores(*self._find_features(b"".join(texts), lengths), len(texts))
        scores *= (1 / np.sqrt(lengths, dtype=np.float64)).astype(np.float32)[:, None]
        scores -= scores.max(1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(1, keepdims=True)
        for first, second in self.identifier._alias_pairs:  # two columns of one language
            scores[:, first] += scores[:, second]
            scores[:, second] = 0
        best = scores.argmax(1)
        classes = [str(code) for code in self.identifier.nb_classes]
        return [classes[i] for i in best.tolist()], np.where(has_features, scores[np.arange(len(texts)), best], 0)

    def _find_features(self, text: bytes, lengths: Ints) -> tuple[Ints, Ints]:
        letters = np.frombuffer(text, np.uint8)
        positions = np.cumsum(lengths) - lengths  # of the next letter of each text
        state: Ints = np.zeros(len(lengths), np.int64)
        longer = len(lengths) - np.searchsorted(lengths[::-1], np.arange(lengths[0]), side="right")
        states = []
        for count in longer.tolist():  # texts that have a letter at this position
            state = self.moves.take(self.bases.take(state[:count]) + letters.take(positions[:count]))
            positions += 1
            states.append(state)
        features = self.features.take(np.concatenate(states))
        rows = np.arange(len(features)) - np.repeat(np.cumsum(longer) - longer, longer)
        return features[features >= 0], rows[features >= 0]

    def _compute_scores(self, features: Ints, rows: Ints, count: int) -> tuple[Floats, npt.NDArray[np.bool_]]:
        """The log-posterior (N, languages) of each text, and whether it has any feature."""
        from scipy.sparse import csr_array

        present = np.zeros(len(self.identifier.nb_ptc), bool)
        present[features] = True
        columns = (np.cumsum(present) - 1)[features]
        used = np.flatnonzero(present)
        visits = csr_array((np.ones(len(rows), np.float32), (rows, columns)), shape=(count, len(used)))
        visits.sum_duplicates()
        np.log1p(visits.data, out=visits.data)
        weights: Floats = visits @ self.identifier.nb_ptc[used].astype(np.float32)
        return weights + self.identifier.nb_pc, np.diff(visits.indptr) > 0
