"""Which words of a caption speak against its medium: the similarity with each word, or a few together, left out.

    weigh_words(database, row)      # asks the audit's text tower, in its own process

Where leaving a word out makes the caption fit better, that word speaks against the medium.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from auditor.query.database import AuditDatabase
from auditor.query.explain import load_pair
from auditor.query.search import get_encoder_client
from auditor.workers.encoder_client import SearchError

MOST = 60  # words that are weighed, from the first
LONGEST_PHRASE = 3  # words


@dataclass(frozen=True, slots=True)
class WordWeight:
    """A word and what leaving it out gains in similarity: above 0 it speaks against the medium."""

    word: str
    gain: float


@dataclass(frozen=True, slots=True)
class Weighed:
    """A caption word by word, and the phrase without which it would fit best."""

    similarity: float
    words: list[WordWeight]
    phrase: str
    phrase_gain: float


def weigh_words(database: AuditDatabase, row: dict[str, Any]) -> Weighed:
    """Raises SearchError where the row has no vectors or the model is not at hand."""
    pair = load_pair(database.files.folder, row)
    words = (row["caption"] or "").split()[:MOST]
    if pair is None or not words:
        raise SearchError("there is nothing to weigh: the row has no embedding or no words")
    spans = phrases(len(words))
    texts = [" ".join(words), *(without(words, first, last) for first, last in spans)]
    similarity = pair.medium.similarity(get_encoder_client(database).texts(texts))[0]
    whole = float(similarity[0])
    gains = {span: float(value) - whole for span, value in zip(spans, similarity[1:].tolist(), strict=True)}
    best = max(gains, key=lambda span: (gains[span], span[0] - span[1]))
    singles = [WordWeight(word, gains.get((place, place + 1), 0.0)) for place, word in enumerate(words)]
    return Weighed(whole, singles, " ".join(words[best[0] : best[1]]), gains[best])


def phrases(words: int) -> list[tuple[int, int]]:
    """All runs of one to three words; never the whole caption, unless it is one word."""
    spans = [(at, at + size) for size in range(1, LONGEST_PHRASE + 1) for at in range(words - size + 1)]
    return [span for span in spans if span[1] - span[0] < words] or [(0, 1)]


def without(words: Sequence[str], first: int, last: int) -> str:
    return " ".join([*words[:first], *words[last:]])
