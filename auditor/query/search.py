"""Search an audit: by a text, by a picture, or by one of its own rows; over its media or its captions.

    search(database, "a dog on a beach", n=20)
    search(database, like="000000123", over="captions", where="kind = 'video'")

Exact: every stored vector is compared. A video is compared by the vector of the whole clip.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from auditor.audit_folder.audit_files import get_shard_name
from auditor.query.database import AuditDatabase
from auditor.query.explain import find_row, load_pair
from auditor.query.search_index import SIDES, Bools, Floats, Ints, Nearest, Vectors, nearest, open_vectors
from auditor.workers.encoder_client import EncoderClient, SearchError


@dataclass(frozen=True, slots=True)
class Found:
    """A row that is near, and how near."""

    uid: str
    key: str
    caption_index: int
    caption: str | None
    similarity: float
    shard: str
    start: float | None = None  # seconds, of a timed caption
    end: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def search(
    database: AuditDatabase,
    text: str | None = None,
    *,
    like: str | None = None,
    caption_index: int | None = None,  # which caption of `like`
    image: str | Path | None = None,
    over: str = "media",
    where: str | None = None,
    n: int = 20,
) -> list[Found]:
    """The n nearest rows, best first; of a medium with several captions the first that meets `where`."""
    check(text, like, image, over, n)
    vectors = vectors_of(database, over)
    allowed, rows = allowed_places(database, vectors, over, where)
    if like is not None:
        place = place_of(database, vectors, over, like, caption_index)
        query = np.asarray(vectors.matrix[place], np.float32)
        allowed = np.ones(len(vectors), bool) if allowed is None else allowed
        allowed[place] = False  # itself is no answer
    else:
        query = encoded(database, text, image)
    found = nearest(vectors.matrix, query, n, allowed)
    return name_found(database, vectors, found, rows)


def check(text: str | None, like: str | None, image: str | Path | None, over: str, n: int) -> None:
    """Refuse a search that asks for nothing, or for two things at once."""
    if sum(given is not None for given in (text, like, image)) != 1 or (text is not None and not text.strip()):
        raise SearchError("search by one of: a text, a key (like), a picture (image)")
    if over not in SIDES:
        raise SearchError(f"there is nothing called {over!r} to search: it is {' or '.join(SIDES)}")
    if n < 1:
        raise SearchError(f"n is the number of rows to find, at least 1, not {n}")


def vectors_of(database: AuditDatabase, over: str) -> Vectors:
    """Opened once: the file is mapped, so this holds nothing in memory."""
    return database.cached(f"vectors of {over}", lambda: open_vectors(database.files.folder, SIDES[over]))


def encoded(database: AuditDatabase, text: str | None, image: str | Path | None) -> Floats:
    client = get_encoder_client(database)
    if text is not None:
        return np.asarray(client.encode_texts([text])[0], np.float32)
    try:
        return np.asarray(client.encode_image(image or "")[0], np.float32)
    except SearchError as error:
        raise SearchError(f"cannot search by {image}: {error}") from None


def get_encoder_client(database: AuditDatabase) -> EncoderClient:
    """The audit's model, in a process that starts with the first question."""
    model = database.manifest.get("model") or {}
    if not model.get("spec"):
        raise SearchError(f"{database.path} does not say which model made it; search it by example (--like KEY)")
    return database.cached(
        "encoder client", lambda: EncoderClient(str(model["spec"]), str(model.get("fingerprint") or ""))
    )


def place_of(database: AuditDatabase, vectors: Vectors, over: str, key: str, caption_index: int | None) -> int:
    """Where the vector of a row stands."""
    row = find_row(database, key, caption_index)
    if row["status"] != "ok":
        raise SearchError(f"{key} could not be encoded ({row['status']}), so nothing can be like it")
    number = database.rows(
        f"SELECT file_row_number AS number FROM ({database.view(database.files.shard(row['shard']), located=True)}) "
        f"WHERE uid = '{row['uid']}' AND caption_index = {int(row['caption_index'])} AND status = 'ok' LIMIT 1"
    )[0]["number"]
    places = np.flatnonzero(vectors.shard == vectors.shards.index(row["shard"]))
    return int(places[np.searchsorted(vectors.row[places], number, "right") - 1])  # a medium stands in its first row


def allowed_places(
    database: AuditDatabase, vectors: Vectors, over: str, where: str | None
) -> tuple[Bools | None, Ints | None]:
    """Which vectors a condition admits, and for each the row of its shard that meets it."""
    if where is None or not where.strip():
        return None, None
    condition = database.where(where)
    located = f"({database.view(located=True, extended=database.extends(condition))})"
    if "review" in condition.lower():
        located = f"(SELECT * FROM {located} LEFT JOIN verdicts USING (uid, caption_index))"
    table = database.run(
        f"SELECT file, file_row_number AS number FROM {located} AS samples WHERE status = 'ok' AND {condition}"
    )
    numbers = {shard: number for number, shard in enumerate(vectors.shards)}
    shard = np.array([numbers.get(get_shard_name(file), -1) for file in database.files.all], np.int64)[table["file"].to_numpy()]
    return meeting(vectors, shard, table["number"].to_numpy().astype(np.int64), exact=over == "captions")


def meeting(vectors: Vectors, shard: Ints, number: Ints, *, exact: bool) -> tuple[Bools, Ints]:
    """Places of rows among the vectors: their own, or for media that of the last first caption before them."""
    order = np.lexsort((number, shard))[::-1]  # the first row of a medium is written last, and stays
    have = (vectors.shard.astype(np.int64) << 32) + vectors.row
    want = (shard[order] << 32) + number[order]
    place = np.searchsorted(have, want, "right") - 1
    there = (place >= 0) & (shard[order] >= 0)
    there &= have[place] == want if exact else (have[place] >> 32) == shard[order]
    allowed = np.zeros(len(vectors), bool)
    rows = vectors.row.astype(np.int64)
    allowed[place[there]] = True
    rows[place[there]] = number[order][there]
    return allowed, rows


def name_found(database: AuditDatabase, vectors: Vectors, found: Nearest, rows: Ints | None) -> list[Found]:
    """The rows at the places, in their order."""
    if not len(found):
        return []
    files = {get_shard_name(file): number for number, file in enumerate(database.files.all)}
    row_of = vectors.row if rows is None else rows
    places = [(files[vectors.shards[vectors.shard[place]]], int(row_of[place])) for place in found.place]
    numbers = sorted({file for file, _ in places})
    listed = ", ".join(f"({numbers.index(file)}, {row}, {i})" for i, (file, row) in enumerate(places))
    named = database.rows(
        'SELECT uid, key, caption_index, caption, shard, "start", "end", position '
        f"FROM ({database.view(database.files.only(numbers), located=True)}) "
        f"JOIN (VALUES {listed}) place(file, file_row_number, position) USING (file, file_row_number) ORDER BY position"
    )
    return [
        Found(similarity=float(similarity), **{name: value for name, value in row.items() if name != "position"})
        for row, similarity in zip(named, found.similarity.tolist(), strict=True)
    ]


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
    similarity = pair.medium.similarity(get_encoder_client(database).encode_texts(texts))[0]
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
