"""The evidence behind one row: what else in the corpus fits its medium and its caption, and where its partner ranks.

    explain(AuditDatabase("audit/"), "000000123")

Candidates are all pairs of a corpus of up to 100,000 rows, and beyond that the reference sample that scoring compared
with. Shards are read one at a time, so memory is flat. No torch.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from auditor.audit_folder.audit_files import find_swept_shards
from auditor.audit_folder.embeddings import Embeddings, name_embeddings_file, parse_embeddings
from auditor.audit_folder.folder import Folder
from auditor.errors import AuditorError
from auditor.query import row_queries
from auditor.query.database import AuditDatabase
from auditor.query.prototype_evidence import PrototypeBelief, load_head
from auditor.query.sandbox import literal
from auditor.score.statistics.score_reasons import SiblingVotes, list_reasons
from auditor.vectors import Floats, MediaVectors

WHOLE_CORPUS = 100_000  # rows
REFERENCE = "reference.parquet"


class ExplainError(AuditorError):
    """A row that does not exist, or that has nothing to explain."""


@dataclass(frozen=True, slots=True)
class Fit:
    """A caption or medium of the corpus and how well it fits."""

    uid: str
    key: str
    caption_index: int
    shard: str
    caption: str | None
    similarity: float
    start: float | None = None  # seconds, of a timed caption
    end: float | None = None


@dataclass(frozen=True, slots=True)
class Frame:
    """One encoded frame of a video: when, and how well it fits the caption."""

    time: float | None
    similarity: float
    fits: bool | None


@dataclass(frozen=True)
class Explanation:
    """Why a row is flagged, or not. Ranks count from 1; `of` says among how many."""

    row: dict[str, Any]
    compared_with: str  # "corpus" or "reference"
    captions: list[Fit] = field(default_factory=list)  # that fit the medium best, other media's only
    media: list[Fit] = field(default_factory=list)  # that fit the caption best, other media only
    caption_rank: int | None = None  # of the own caption among `captions_of` for this medium
    captions_of: int = 0
    medium_rank: int | None = None
    media_of: int = 0
    frames: list[Frame] = field(default_factory=list)
    best_frame: int | None = None
    prototypes_visual: list[PrototypeBelief] = field(default_factory=list)
    prototypes_text: list[PrototypeBelief] = field(default_factory=list)
    duplicates: list[dict[str, Any]] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)  # what speaks for the pair and against it, in words

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Pair:
    """The vectors of one row."""

    medium: MediaVectors  # one
    text: Floats  # (1, D)
    times: tuple[float, ...]
    siblings: Floats  # (S, D) the medium's other captions


def explain(
    database: AuditDatabase,
    key: str,
    caption_index: int | None = None,
    shard: str | None = None,
    *,
    n: int = 5,
    whole_corpus: int = WHOLE_CORPUS,
) -> Explanation:
    """Everything known about one row, by key or uid; the first caption where none is named.

    Where `shard` is named, only its file is searched, for the uid.
    """
    row = row_queries.row(database, key, caption_index, shard) if shard else None
    row = row or find_row(database, key, caption_index)
    folder = database.files.folder
    pair = load_pair(folder, row)
    if pair is None:
        return Explanation(row, "nothing", duplicates=find_duplicates(database, row))
    whole = database.counts["rows"] <= whole_corpus or not folder.exists(REFERENCE)
    best_captions, best_media = Best(n), Best(n)
    own = float(pair.medium.own_similarity(pair.text)[0])
    for found in candidates(folder, whole):
        compare(row, pair, own, found, best_captions, best_media)
    prototypes_visual, prototypes_text = prototype_beliefs(folder, pair)
    frames, best_frame = explain_frames(database, row, pair)
    return Explanation(
        row=row,
        compared_with="corpus" if whole else "reference",
        captions=best_captions.fits(),
        media=best_media.fits(),
        caption_rank=best_captions.better + 1,
        captions_of=best_captions.seen + 1,
        medium_rank=best_media.better + 1,
        media_of=best_media.seen + 1,
        frames=frames,
        best_frame=best_frame,
        prototypes_visual=prototypes_visual,
        prototypes_text=prototypes_text,
        duplicates=find_duplicates(database, row),
        reasons=list_reasons(row, sibling_votes(database, row, pair)),
    )


def sibling_votes(database: AuditDatabase, row: dict[str, Any], pair: Pair) -> SiblingVotes | None:
    """What the medium's other captions say of this one; None where there are none, or nothing to judge them by."""
    middle = (database.manifest.get("statistics", {}).get(row["kind"]) or {}).get("middle")
    if middle is None or not len(pair.siblings):
        return None
    return SiblingVotes.count(pair.text[0], pair.siblings, middle)


def find_row(database: AuditDatabase, key: str, caption_index: int | None) -> dict[str, Any]:
    """The row of a key or uid."""
    row_queries.text("key", key)
    condition = f"(key = {literal(key)} OR uid = {literal(key)})"
    if caption_index is not None:
        condition += f" AND caption_index = {row_queries.whole('caption_index', caption_index)}"
    found: list[dict[str, Any]] = row_queries.fetch(database, condition, "status <> 'ok', caption_index", 1).to_pylist()
    if not found:
        which = f" with caption {caption_index}" if caption_index is not None else ""
        raise ExplainError(f"{database.path} has no row {key!r}{which}; `auditor worst {database.path}` lists keys")
    return found[0]


def load_pair(folder: Folder, row: dict[str, Any]) -> Pair | None:
    """The vectors of a row; None where it could not be encoded or the embeddings are gone."""
    try:
        found = parse_embeddings(folder.read_table(name_embeddings_file(row["shard"])))
    except FileNotFoundError:
        return None
    uid = found.facts.column("uid").to_pylist()
    index = found.facts.column("caption_index").to_pylist()
    for place, at in enumerate(found.rows.tolist()):
        if uid[at] == row["uid"] and index[at] == row["caption_index"]:
            medium = int(found.media_index[place])
            return Pair(
                of_kind(found.media.take(slice(medium, medium + 1)), row["kind"]),
                found.text[place : place + 1],
                found.times[medium] if found.times else (),
                found.text[(found.media_index == medium) & (np.arange(len(found.text)) != place)],
            )
    return None


def of_kind(media: MediaVectors, kind: str) -> MediaVectors:
    return media if kind == "video" else media.without_frames()


def candidates(folder: Folder, whole: bool) -> Iterator[Embeddings]:
    """The corpus shard by shard, or its reference sample."""
    if not whole:
        yield parse_embeddings(with_frames(folder.read_table(REFERENCE)))
        return
    for shard in find_swept_shards(folder):
        yield parse_embeddings(folder.read_table(name_embeddings_file(shard)))


def with_frames(table: pa.Table) -> pa.Table:
    """The reference keeps no frames: its videos are compared as a whole."""
    vector = table.schema.field("text").type
    for name, kind in (("frame_embeddings", pa.list_(vector)), ("frame_times", pa.list_(pa.float32()))):
        if name not in table.column_names:
            table = table.append_column(name, pa.nulls(table.num_rows, kind))
    return table


class Best:
    """The n best fits seen so far, and how many beat the row's own partner."""

    def __init__(self, n: int) -> None:
        self.n, self.better, self.seen = n, 0, 0
        self.found: list[Fit] = []

    def add(self, similarity: Floats, rows: npt.NDArray[np.int64], facts: pa.Table, own: float) -> None:
        self.seen += len(similarity)
        self.better += int((similarity > own).sum())
        top = np.argsort(-similarity, kind="stable")[: self.n]
        names = ("uid", "key", "caption_index", "shard", "caption", "start", "end")
        columns = [facts.column(name) for name in names if name in facts.column_names]  # older audits have no spans
        for place in top:
            at = int(rows[place])
            uid, key, index, shard, caption, *span = (column[at].as_py() for column in columns)
            self.found.append(Fit(uid, key, index, shard, caption, float(similarity[place]), *span))
        self.found = sorted(self.found, key=lambda fit: -fit.similarity)[: self.n]

    def fits(self) -> list[Fit]:
        return self.found


def compare(row: dict[str, Any], pair: Pair, own: float, found: Embeddings, captions: Best, media: Best) -> None:
    """Hold a row against one shard; captions and copies of its own medium do not count."""
    digest = np.array(found.facts.column("media_digest").to_pylist(), object)
    kind = np.array(found.facts.column("kind").to_pylist(), object)
    apart = (digest[found.rows] != row["media_digest"]) & (kind[found.rows] == row["kind"])
    by_caption = pair.medium.similarity(found.text)[0]
    captions.add(by_caption[apart], found.rows[apart], found.facts, own)

    medium, first = np.unique(found.media_index, return_index=True)
    rows = found.rows[first]
    chosen = (digest[rows] != row["media_digest"]) & (kind[rows] == row["kind"])
    medium, rows = medium[chosen], rows[chosen]
    fit = of_kind(found.media.take(medium), row["kind"]).similarity(pair.text)[:, 0]
    media.add(fit, rows, found.facts, own)


def explain_frames(database: AuditDatabase, row: dict[str, Any], pair: Pair) -> tuple[list[Frame], int | None]:
    """Each frame of a video against the caption, and the best of them."""
    if pair.medium.mask is None:
        return [], None
    saved = (database.manifest.get("statistics") or {}).get(row["kind"]) or {}
    threshold = saved.get("frame_threshold")
    similarity = pair.medium.frame_similarity(pair.text)[0]
    frames = [
        Frame(
            float(pair.times[i]) if i < len(pair.times) else None,
            float(similarity[i]),
            None if threshold is None else bool(similarity[i] >= threshold),
        )
        for i in np.flatnonzero(pair.medium.mask[0])
    ]
    return frames, int(similarity.argmax())


def prototype_beliefs(folder: Folder, pair: Pair) -> tuple[list[PrototypeBelief], list[PrototypeBelief]]:
    """Which prototypes the medium's and the caption's uncertainty come from."""
    head = load_head(folder)
    if head is None:
        return [], []
    of_visual, of_text = head.of_visual(pair.medium.visual[0]), head.of_text(pair.text[0])
    if folder.exists(REFERENCE):  # a prototype is best described by what is nearest to it
        reference = parse_embeddings(with_frames(folder.read_table(REFERENCE)))
        captions = (reference.text @ head.text.T).argmax(axis=0)
        media = np.searchsorted(reference.media_index, (reference.media.visual @ head.visual.T).argmax(axis=0))
        of_visual = likened(of_visual, reference.facts.column("caption").take(pa.array(reference.rows[captions])))
        of_text = likened(of_text, reference.facts.column("key").take(pa.array(reference.rows[media])))
    return of_visual, of_text


def likened(beliefs: list[PrototypeBelief], nearest: pa.ChunkedArray) -> list[PrototypeBelief]:
    return [replace(belief, like=nearest[belief.prototype].as_py()) for belief in beliefs]


def find_duplicates(database: AuditDatabase, row: dict[str, Any], most: int = 20) -> list[dict[str, Any]]:
    """The other rows of the group of duplicates that a row's medium belongs to."""
    first = row.get("duplicate_of") or row["uid"]
    others = f"duplicate_of = {literal(first)} AND uid <> {literal(row['uid'])}"
    found = row_queries.fetch(database, others, "", most).to_pylist()
    if first != row["uid"] and (original := row_queries.row(database, first)):
        found = [original, *found[: most - 1]]
    return [{name: other[name] for name in ("uid", "key", "caption_index", "shard", "caption")} for other in found]
