"""Search an audit: by a text, by a picture, or by one of its own rows; over its media or its captions.

    search(database, "a dog on a beach", n=20)
    search(database, like="000000123", over="captions", where="kind = 'video'")

Exact: every stored vector is compared. A video is compared by the vector of the whole clip.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from auditor.audit_folder.audit_files import stem
from auditor.query.database import AuditDatabase
from auditor.query.explain import find_row
from auditor.query.search_index import SIDES, Vectors, open_vectors
from auditor.query.vector_scan import Bools, Floats, Ints, Nearest, nearest
from auditor.workers.encoder_client import SearchError, Tower


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
    tower = get_encoder_client(database)
    if text is not None:
        return np.asarray(tower.texts([text])[0], np.float32)
    try:
        return np.asarray(tower.image(image or "")[0], np.float32)
    except SearchError as error:
        raise SearchError(f"cannot search by {image}: {error}") from None


def get_encoder_client(database: AuditDatabase) -> Tower:
    """The audit's model, in a process that starts with the first question."""
    model = database.manifest.get("model") or {}
    if not model.get("spec"):
        raise SearchError(f"{database.path} does not say which model made it; search it by example (--like KEY)")
    return database.cached("tower", lambda: Tower(str(model["spec"]), str(model.get("fingerprint") or "")))


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
    shard = np.array([numbers.get(stem(file), -1) for file in database.files.all], np.int64)[table["file"].to_numpy()]
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
    files = {stem(file): number for number, file in enumerate(database.files.all)}
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
