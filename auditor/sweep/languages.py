"""The language of captions by py3langid's model, one at a time or many at once with the same result.

py3langid walks an automaton over the bytes of a text, counts the features it passes and adds up their weights for each
language. For many captions the automaton is stepped for all of them together, and the sums are one sparse product.
Adding in another order changes the last digits of a probability: where it is close to `SURE`, py3langid has the word.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from auditor.vectors import Floats

SHORTEST = 12  # characters; what is shorter has no language
SURE = 0.9  # probability of a language; below it there is none
CLOSE = 0.005  # to SURE: far more than rounding can change
TOGETHER = 2**20  # bytes of the captions that are walked together
FEW = 32  # captions; to walk fewer together takes longer than one after another
STEPS = 256  # that are walked together in any case

Ints = npt.NDArray[np.integer[Any]]


def language(caption: str) -> str | None:
    """ISO 639-1 code; None where the text is too short or too mixed to tell, or there is no detector."""
    if len(caption) < SHORTEST or (identifier := _identifier()) is None:
        return None
    code, probability = identifier.classify(caption)
    return str(code) if probability >= SURE else None


def languages(captions: Sequence[str]) -> list[str | None]:
    """What `language` says of each."""
    found: list[str | None] = [None] * len(captions)
    if (walker := _walker()) is None:
        return found
    for places, texts in _by_length(captions, walker):
        alone = _alone(texts)
        for place in places[:alone]:
            found[place] = language(captions[place])
        codes, probabilities = walker.classify(texts[alone:])
        for place, code, probability in zip(places[alone:], codes, probabilities.tolist(), strict=True):
            if abs(probability - SURE) < CLOSE:
                found[place] = language(captions[place])
            elif probability > SURE:
                found[place] = code
    return found


@lru_cache(maxsize=1)
def _identifier() -> Any:
    """None where the detector is not installed."""
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError:
        return None
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


@lru_cache(maxsize=1)
def _walker() -> "Walker | None":
    identifier = _identifier()
    if identifier is None:
        return None
    bases = np.asarray(identifier.tk_row).astype(np.int64) << 8
    return Walker(identifier, np.asarray(identifier.tk_nextmove), bases, np.array(identifier.tk_output, np.int32))


def _by_length(captions: Sequence[str], walker: "Walker") -> Iterator[tuple[list[int], list[bytes]]]:
    """Places and bytes of the captions that are long enough, the longest first, some at a time."""
    texts = [(place, walker.encode(text)) for place, text in enumerate(captions) if len(text) >= SHORTEST]
    texts.sort(key=lambda one: len(one[1]), reverse=True)
    ends = np.cumsum([len(text) for _, text in texts]) // TOGETHER
    cuts = [0, *(np.flatnonzero(np.diff(ends)) + 1).tolist(), len(texts)]
    for start, stop in pairwise(cuts):
        if start < stop:
            places, some = zip(*texts[start:stop], strict=True)
            yield list(places), list(some)


def _alone(texts: Sequence[bytes]) -> int:
    """How many of the longest had better be walked one by one."""
    limit = max(STEPS, len(texts[FEW - 1]) if len(texts) >= FEW else 0)
    return sum(len(text) > limit for text in texts)


@dataclass(frozen=True, slots=True, eq=False)
class Walker:
    """The arrays of py3langid's model. From a state with base b, byte c leads to the state moves[b + c]."""

    identifier: Any
    moves: Ints
    bases: Ints  # of each state
    features: Ints  # what a state shows to have been seen, -1 where nothing

    def encode(self, caption: str) -> bytes:
        return bytes(self.identifier._encode(caption))

    def classify(self, texts: Sequence[bytes]) -> tuple[list[str | None], Floats]:
        """The likeliest language of each text and its probability; the texts come with the longest first."""
        if not texts:
            return [], np.zeros(0, np.float32)
        lengths = np.array([len(text) for text in texts])
        scores, known = self._scores(*self._walk(b"".join(texts), lengths), len(texts))
        scores *= (1 / np.sqrt(lengths, dtype=np.float64)).astype(np.float32)[:, None]
        scores -= scores.max(1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(1, keepdims=True)
        for first, again in self.identifier._alias_pairs:  # two columns of one language
            scores[:, first] += scores[:, again]
            scores[:, again] = 0
        best = scores.argmax(1)
        classes = [str(code) for code in self.identifier.nb_classes]
        return [classes[i] for i in best.tolist()], np.where(known, scores[np.arange(len(texts)), best], 0)

    def _walk(self, text: bytes, lengths: Ints) -> tuple[Ints, Ints]:
        """The features that the texts pass, and which text each is of."""
        letters = np.frombuffer(text, np.uint8)
        here = np.cumsum(lengths) - lengths  # the next letter of each text
        state: Ints = np.zeros(len(lengths), np.int64)
        longer = len(lengths) - np.searchsorted(lengths[::-1], np.arange(lengths[0]), side="right")
        passed = []
        for count in longer.tolist():  # texts that have a letter at this place
            state = self.moves.take(self.bases.take(state[:count]) + letters.take(here[:count]))
            here += 1
            passed.append(state)
        seen = self.features.take(np.concatenate(passed))
        rows = np.arange(len(seen)) - np.repeat(np.cumsum(longer) - longer, longer)
        return seen[seen >= 0], rows[seen >= 0]

    def _scores(self, seen: Ints, rows: Ints, count: int) -> tuple[Floats, npt.NDArray[np.bool_]]:
        """Log-posterior (N, languages) of each text, and whether it had any feature."""
        from scipy.sparse import csr_array

        used, columns = _compact(seen, len(self.identifier.nb_ptc))
        shape = (count, len(used))
        visits = csr_array((np.ones(len(rows), np.float32), (rows, columns)), shape=shape)
        visits.sum_duplicates()
        np.log1p(visits.data, out=visits.data)
        found: Floats = visits @ self.identifier.nb_ptc[used].astype(np.float32)
        return found + self.identifier.nb_pc, np.diff(visits.indptr) > 0


def _compact(values: Ints, largest: int) -> tuple[Ints, Ints]:
    """The distinct values and where each value is among them."""
    there = np.zeros(largest, bool)
    there[values] = True
    return np.flatnonzero(there), (np.cumsum(there) - 1)[values]
