"""Search an audit by a text, an image or one of its own rows; over its media or its captions.

    search(database, "a dog on a beach", n=20)
    search(database, like="000000123", over="captions", where="kind = 'video'")

The search is exact: it compares every stored vector. A video is represented by the vector of the whole clip.
`weigh_words` measures how each word of a caption affects its similarity to the medium.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from auditor.audit_folder.audit_files import get_shard_name
from auditor.audit_folder.confirmed_places import choose_audit_model
from auditor.notebook_view import NotebookView
from auditor.query.database import AuditDatabase
from auditor.query.explain import FIT_COLUMNS, Fit, find_row, load_pair
from auditor.query.row_queries import read_rows_at
from auditor.query.search_index import SIDES, Nearest, VectorIndex, find_nearest, open_vectors
from auditor.vectors import Bools, Floats, Ints
from auditor.workers.encoder_client import EncoderClient, SearchError


class SearchResults(list[Fit], NotebookView):
    """The nearest rows, best first."""


def search(
    database: AuditDatabase,
    text: str | None = None,
    *,
    like: str | None = None,
    caption_index: int | None = None,  # of `like`
    image: str | Path | None = None,
    over: str = "media",
    where: str | None = None,
    n: int = 20,
    model: str | None = None,
) -> SearchResults:
    """Return the n rows nearest to a text, a row (`like`: key or uid) or an image, over "media" or "captions".

    A medium with several captions is represented by the first one that meets `where`. `model` is that of the audit, if
    this user did not make the audit; it is remembered.
    """
    if sum(query is not None for query in (text, like, image)) != 1 or (text is not None and not text.strip()):
        raise SearchError("search by one of: a text, a key (like), an image")
    if over not in SIDES:
        raise SearchError(f"over must be {' or '.join(SIDES)}, not {over!r}")
    if n < 1:
        raise SearchError(f"n must be at least 1, not {n}")
    # the file is mapped and takes no memory
    vectors = database.cached(f"vectors of {over}", lambda: open_vectors(database.files.folder, SIDES[over]))
    allowed, rows = find_allowed_places(database, vectors, over, where)
    if like is not None:
        place = find_row_place(database, vectors, like, caption_index)
        query = np.asarray(vectors.matrix[place], np.float32)
        allowed = np.ones(len(vectors), bool) if allowed is None else allowed
        allowed[place] = False  # the row itself is not a result
    else:
        query = encode_query(get_encoder_client(database, model), text, image)
    nearest = find_nearest(vectors.matrix, query, n, allowed)
    return SearchResults(read_hits(database, vectors, nearest, rows))


def encode_query(client: EncoderClient, text: str | None, image: str | Path | None) -> Floats:
    if text is not None:
        return np.asarray(client.encode_texts([text])[0], np.float32)
    try:
        return np.asarray(client.encode_image(image or "")[0], np.float32)
    except SearchError as error:
        raise SearchError(f"cannot search by {image}: {error}") from None


def get_encoder_client(database: AuditDatabase, name: str | None = None) -> EncoderClient:
    """Return the client of the audit's model, whose process starts with the first request."""
    model = database.manifest.get("model") or {}
    if not model.get("spec"):
        raise SearchError(f"{database.path} does not name the model that made it; search by example (--like KEY)")
    fingerprint = str(model.get("fingerprint") or "")
    spec = choose_audit_model(database.manifest, name)
    return database.cached(f"encoder client of {spec}", lambda: EncoderClient(spec, fingerprint))


def find_row_place(database: AuditDatabase, vectors: VectorIndex, key: str, caption_index: int | None) -> int:
    row = find_row(database, key, caption_index)
    if row["status"] != "ok":
        raise SearchError(f"{key} was not encoded ({row['status']}), so there is nothing to compare with")
    view = database.view(database.files.shard(row["shard"]), with_places=True)
    number = database.value(
        f"SELECT file_row_number FROM ({view}) "
        f"WHERE uid = '{row['uid']}' AND caption_index = {int(row['caption_index'])} AND status = 'ok' LIMIT 1"
    )
    places = np.flatnonzero(vectors.shard == vectors.shards.index(row["shard"]))
    # a medium has the number of its first row
    return int(places[np.searchsorted(vectors.row[places], number, "right") - 1])


def find_allowed_places(
    database: AuditDatabase, vectors: VectorIndex, over: str, where: str | None
) -> tuple[Bools | None, Ints | None]:
    """Return which vectors a condition allows, and for each vector the row of its shard that meets the condition."""
    if where is None or not where.strip():
        return None, None
    condition = database.where(where)
    table = database.run(
        f"SELECT file, file_row_number AS number FROM {database.placed_rows(condition)} "
        f"WHERE status = 'ok' AND {condition}"
    )
    shards = {shard: number for number, shard in enumerate(vectors.shards)}
    shard_of_file = np.array([shards.get(get_shard_name(file), -1) for file in database.files.all], np.int64)
    shard = shard_of_file[table["file"].to_numpy()]
    return match_places(vectors, shard, table["number"].to_numpy().astype(np.int64), exact=over == "captions")


def match_places(vectors: VectorIndex, shard: Ints, number: Ints, *, exact: bool) -> tuple[Bools, Ints]:
    """Match rows with vectors: with their own, or for media with that of the first caption before them."""
    order = np.lexsort((number, shard))[::-1]  # reversed, so that the first row of a medium overwrites the others
    stored_rows = (vectors.shard.astype(np.int64) << 32) + vectors.row
    matching_rows = (shard[order] << 32) + number[order]
    place = np.searchsorted(stored_rows, matching_rows, "right") - 1
    is_match = (place >= 0) & (shard[order] >= 0)
    is_match &= stored_rows[place] == matching_rows if exact else (stored_rows[place] >> 32) == shard[order]
    allowed = np.zeros(len(vectors), bool)
    rows = vectors.row.astype(np.int64)
    allowed[place[is_match]] = True
    rows[place[is_match]] = number[order][is_match]
    return allowed, rows


def read_hits(database: AuditDatabase, vectors: VectorIndex, nearest: Nearest, matches: Ints | None) -> list[Fit]:
    files = {get_shard_name(file): number for number, file in enumerate(database.files.all)}
    shards = [vectors.shards[number] for number in vectors.shard[nearest.place]]
    numbers = (vectors.row if matches is None else matches)[nearest.place].tolist()
    places = [{"file": files[s], "file_row_number": number} for s, number in zip(shards, numbers, strict=True)]
    rows = read_rows_at(database, places, FIT_COLUMNS).to_pylist()
    return [Fit(**row, similarity=value) for row, value in zip(rows, nearest.similarity.tolist(), strict=True)]


MOST_WORDS = 60  # words that are weighed, from the start of the caption
LONGEST_PHRASE = 3  # words


@dataclass(frozen=True, slots=True)
class WordWeight:
    """A word, and the gain in similarity without it; above 0, the word contradicts the medium."""

    word: str
    gain: float


@dataclass(frozen=True, slots=True)
class WeighedCaption:
    """The weights of a caption's words, and the phrase whose removal raises the similarity most."""

    similarity: float
    words: list[WordWeight]
    phrase: str
    phrase_gain: float


def weigh_words(database: AuditDatabase, row: dict[str, Any]) -> WeighedCaption:
    """Weigh the words of a caption. Raises SearchError if the row has no vectors or the model is missing."""
    pair = load_pair(database.files.folder, row)
    words = (row["caption"] or "").split()[:MOST_WORDS]
    if pair is None or not words:
        raise SearchError("the row has no embedding or no words to weigh")
    spans = list_phrases(len(words))
    texts = [" ".join(words), *(" ".join([*words[:first], *words[last:]]) for first, last in spans)]
    similarity = pair.medium.similarity(get_encoder_client(database).encode_texts(texts))[0]
    whole = float(similarity[0])
    gains = {span: float(value) - whole for span, value in zip(spans, similarity[1:].tolist(), strict=True)}
    best = max(gains, key=lambda span: (gains[span], span[0] - span[1]))
    singles = [WordWeight(word, gains.get((place, place + 1), 0.0)) for place, word in enumerate(words)]
    return WeighedCaption(whole, singles, " ".join(words[best[0] : best[1]]), gains[best])


def list_phrases(words: int) -> list[tuple[int, int]]:
    """List all phrases of one to three words; never the whole caption, unless it is one word."""
    spans = [(first, first + size) for size in range(1, LONGEST_PHRASE + 1) for first in range(words - size + 1)]
    return [span for span in spans if span[1] - span[0] < words] or [(0, 1)]
