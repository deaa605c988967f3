"""The evidence behind one row: what else in the corpus fits its medium and its caption, and how its own partner ranks.

    explain_row(AuditDatabase("audit/"), "000000123")

Candidates are all pairs of a corpus of up to 100,000 rows; in a larger corpus, the reference sample of scoring. Shards
are read one at a time, so memory use does not grow with the corpus. No torch.
"""

import contextlib
import io
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from auditor.audit_folder.audit_files import find_swept_shards
from auditor.audit_folder.edit_records import CaptionEdit
from auditor.audit_folder.embeddings import REFERENCE, Embeddings, read_embeddings, read_reference
from auditor.audit_folder.folder import Folder
from auditor.audit_folder.tag_estimates import list_tags
from auditor.console import print_table
from auditor.errors import AuditorError
from auditor.notebook_view import NotebookView
from auditor.query import row_queries
from auditor.query.database import AuditDatabase
from auditor.query.prototype_evidence import PrototypeBelief, load_stored_head
from auditor.query.sandbox import quote_literal
from auditor.schema import list_column_names
from auditor.schema.caption_spans import tabulate_caption_spans
from auditor.score.statistics.score_reasons import SiblingVotes, describe_caption_text, list_reasons
from auditor.terminal import print_line
from auditor.vectors import Floats, MediaVectors

WHOLE_CORPUS = 100_000  # rows


class ExplainError(AuditorError):
    """A row that does not exist or cannot be explained."""


@dataclass(frozen=True, slots=True)
class Fit:
    """A row of the corpus, and the similarity of its caption or medium to what is compared with it."""

    uid: str
    key: str
    caption_index: int
    shard: str
    caption: str | None
    similarity: float
    start: float | None = None  # seconds, of a timed caption
    end: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


FIT_COLUMNS = [column.name for column in fields(Fit) if column.name != "similarity"]


@dataclass(frozen=True, slots=True)
class Frame:
    """One encoded frame of a video: its time, and its similarity to the caption."""

    time: float | None
    similarity: float
    fits: bool | None


@dataclass(frozen=True, repr=False)
class Explanation(NotebookView):
    """Why a row is flagged or not. Ranks start at 1; `captions_of` and `media_of` count the candidates."""

    row: dict[str, Any]
    compared_with: str  # "corpus" or "reference"
    captions: list[Fit] = field(default_factory=list)  # of other media that fit this medium best
    media: list[Fit] = field(default_factory=list)  # other media that fit the caption best
    caption_rank: int | None = None  # of its caption among `captions_of`
    captions_of: int = 0
    medium_rank: int | None = None
    media_of: int = 0
    frames: list[Frame] = field(default_factory=list)
    best_frame: int | None = None
    prototypes_visual: list[PrototypeBelief] = field(default_factory=list)
    prototypes_text: list[PrototypeBelief] = field(default_factory=list)
    duplicates: list[dict[str, Any]] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)  # sentences for and against the pair
    edits: list[CaptionEdit] = field(default_factory=list)  # of the caption by hand; the first one is applied
    tags: list[str] = field(default_factory=list)  # its prompt columns, in words

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __repr__(self) -> str:
        return format_explanation(self)

    def describe_ranks(self) -> list[str]:
        """How its caption and its medium rank among those it is compared with; empty if it was not encoded."""
        if self.caption_rank is None or self.medium_rank is None:
            return []
        kind, place = self.row["kind"], f"in the {self.compared_with}"
        return [
            f"its caption is number {self.caption_rank:,} of the {self.captions_of:,} captions of {kind}s {place} for "
            "this medium",
            f"its medium is number {self.medium_rank:,} of the {self.media_of:,} {kind}s {place} for this caption",
        ]


@dataclass(frozen=True)
class PairVectors:
    medium: MediaVectors  # exactly one
    text: Floats  # (1, D)
    times: tuple[float, ...]
    siblings: Floats  # (S, D) other captions of the medium


def explain_row(
    database: AuditDatabase,
    key: str,
    caption_index: int | None = None,
    shard: str | None = None,
    *,
    n: int = 5,
    whole_corpus: int = WHOLE_CORPUS,
) -> Explanation:
    """Explain the scores of one row, by key or uid; its first caption if no caption is given.

    If `shard` is given, `key` is a uid and only the file of that shard is searched.
    """
    row = row_queries.read_row(database, key, caption_index, shard) if shard else None
    row = row or find_row(database, key, caption_index)
    folder = database.files.folder
    edits = database.read_row_edits().find(row)
    pair = load_pair(folder, row)
    if pair is None:
        return Explanation(row, "nothing", duplicates=find_duplicates(database, row), edits=edits)
    whole = database.counts["rows"] <= whole_corpus or not folder.exists(REFERENCE)
    own_similarity = float(pair.medium.own_similarity(pair.text)[0])
    captions, media = BestFits(n, own_similarity), BestFits(n, own_similarity)
    for embeddings in iterate_candidates(folder, whole):
        compare_with_shard(row, pair, embeddings, captions, media)
    prototypes_visual, prototypes_text = find_prototype_beliefs(folder, pair)
    statistics = database.statistics.get(row["kind"]) or {}
    calibration = statistics.get("groups", {}).get(row.get("calibration_group") or "", statistics)
    votes = None
    if (middle := calibration.get("middle")) is not None and len(pair.siblings):  # scoring may save no threshold
        votes = SiblingVotes.count(pair.text[0], pair.siblings, middle)
    frames, best_frame = explain_frames(pair, statistics.get("frame_threshold"))
    return Explanation(
        row=row,
        compared_with="corpus" if whole else "reference",
        captions=captions.fits,
        media=media.fits,
        caption_rank=captions.better + 1,
        captions_of=captions.seen + 1,
        medium_rank=media.better + 1,
        media_of=media.seen + 1,
        frames=frames,
        best_frame=best_frame,
        prototypes_visual=prototypes_visual,
        prototypes_text=prototypes_text,
        duplicates=find_duplicates(database, row),
        reasons=[*describe_caption_text(row), *list_reasons(row, votes, calibration.get("evidence"))],
        edits=edits,
        tags=[tag.describe_row(row) for tag in list_tags(database.files.sources)],
    )


def find_row(database: AuditDatabase, key: str, caption_index: int | None) -> dict[str, Any]:
    row_queries.check_text("key", key)
    condition, words = f"(key = {quote_literal(key)} OR uid = {quote_literal(key)})", ""
    if caption_index is not None:
        condition += f" AND caption_index = {row_queries.check_whole_number('caption_index', caption_index)}"
        words = f" with caption {caption_index}"
    order = "status <> 'ok', caption_index"
    rows: list[dict[str, Any]] = row_queries.fetch_rows(database, condition, order, 1).to_pylist()
    if not rows:
        raise ExplainError(f"{database.path} has no row {key!r}{words}; `auditor worst {database.path}` lists keys")
    return rows[0]


def load_pair(folder: Folder, row: dict[str, Any]) -> PairVectors | None:
    """Load the vectors of a row; None if it was not encoded or the embeddings were deleted."""
    try:
        embeddings = read_embeddings(folder, row["shard"])
    except FileNotFoundError:
        return None
    uids, indices = (embeddings.facts.column(name).to_pylist() for name in ("uid", "caption_index"))
    for place, number in enumerate(embeddings.rows.tolist()):
        if uids[number] == row["uid"] and indices[number] == row["caption_index"]:
            medium = int(embeddings.media_index[place])
            return PairVectors(
                drop_image_frames(embeddings.media.take(slice(medium, medium + 1)), row["kind"]),
                embeddings.text[place : place + 1],
                embeddings.times[medium] if embeddings.times else (),
                embeddings.text[(embeddings.media_index == medium) & (np.arange(len(embeddings.text)) != place)],
            )
    return None


def drop_image_frames(media: MediaVectors, kind: str) -> MediaVectors:
    return media if kind == "video" else media.without_frames()


def iterate_candidates(folder: Folder, whole: bool) -> Iterator[Embeddings]:
    if not whole:
        yield read_reference(folder)
        return
    for shard in find_swept_shards(folder):
        yield read_embeddings(folder, shard)


class BestFits:
    """The n best fits so far, and the number of candidates that beat the row's own partner."""

    def __init__(self, n: int, own_similarity: float) -> None:
        self.n, self.own_similarity = n, own_similarity
        self.better = self.seen = 0
        self.fits: list[Fit] = []

    def add(self, similarity: Floats, rows: npt.NDArray[np.int64], facts: pa.Table) -> None:
        self.seen += len(similarity)
        self.better += int((similarity > self.own_similarity).sum())
        top = np.argsort(-similarity, kind="stable")[: self.n]
        best = facts.select(FIT_COLUMNS).take(pa.array(rows[top])).to_pylist()
        fits = [Fit(**row, similarity=value) for row, value in zip(best, similarity[top].tolist(), strict=True)]
        self.fits = sorted([*self.fits, *fits], key=lambda fit: -fit.similarity)[: self.n]


def compare_with_shard(
    row: dict[str, Any], pair: PairVectors, embeddings: Embeddings, captions: BestFits, media: BestFits
) -> None:
    """Compare a row with one shard; captions and copies of its own medium are skipped."""
    digest, kind = (np.array(embeddings.facts[name].to_pylist(), object) for name in ("media_digest", "kind"))
    is_candidate = ((digest != row["media_digest"]) & (kind == row["kind"]))[embeddings.rows]
    by_caption = pair.medium.similarity(embeddings.text)[0]
    captions.add(by_caption[is_candidate], embeddings.rows[is_candidate], embeddings.facts)

    medium, first = np.unique(embeddings.media_index, return_index=True)
    medium, first = medium[is_candidate[first]], first[is_candidate[first]]
    fit = drop_image_frames(embeddings.media.take(medium), row["kind"]).similarity(pair.text)[:, 0]
    media.add(fit, embeddings.rows[first], embeddings.facts)


def explain_frames(pair: PairVectors, threshold: float | None) -> tuple[list[Frame], int | None]:
    if pair.medium.mask is None:
        return [], None
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


def find_prototype_beliefs(folder: Folder, pair: PairVectors) -> tuple[list[PrototypeBelief], list[PrototypeBelief]]:
    head = load_stored_head(folder)
    if head is None:
        return [], []
    of_visual, of_text = head.of_visual(pair.medium), head.of_text(pair.text[0])
    if folder.exists(REFERENCE):  # a prototype is described by its nearest neighbor
        reference = read_reference(folder)
        captions = (reference.text @ head.text.T).argmax(axis=0)
        media = np.searchsorted(reference.media_index, (reference.media.visual @ head.visual.T).argmax(axis=0))
        of_visual = describe_prototypes(of_visual, reference.facts["caption"].take(pa.array(reference.rows[captions])))
        of_text = describe_prototypes(of_text, reference.facts["key"].take(pa.array(reference.rows[media])))
    return of_visual, of_text


def describe_prototypes(beliefs: list[PrototypeBelief], nearest: pa.ChunkedArray) -> list[PrototypeBelief]:
    return [replace(belief, like=nearest[belief.prototype].as_py()) for belief in beliefs]


def find_duplicates(database: AuditDatabase, row: dict[str, Any], limit: int = 20) -> list[dict[str, Any]]:
    first = row.get("duplicate_of") or row["uid"]
    condition = f"duplicate_of = {quote_literal(first)} AND uid <> {quote_literal(row['uid'])}"
    duplicates = row_queries.fetch_rows(database, condition, "", limit).to_pylist()
    if first != row["uid"] and (original := row_queries.read_row(database, first)):
        duplicates = [original, *duplicates[: limit - 1]]
    return [{name: other[name] for name in ("uid", "key", "caption_index", "shard", "caption")} for other in duplicates]


def format_explanation(explanation: Explanation) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as page:
        print_explanation(explanation)
    return page.getvalue().rstrip()


def print_explanation(explanation: Explanation) -> None:
    row = explanation.row
    span = f", {row['start']:g} to {row['end']:g} s" if None not in (row.get("start"), row.get("end")) else ""
    source = f" of {row['caption_source']}" if row.get("caption_source") else ""
    header = f"{row['key']} caption {row['caption_index']}{source}{span} ({row['kind']}, {row['status']})"
    print_line(f"{header}: {row['caption'] or ''}")
    for number, edit in enumerate(explanation.edits):
        print_line(
            f"  {'replaced edit' if number else 'edited'} by {edit.reviewer}, {edit.time[:10]}: {edit.new_caption}"
        )
    if row["status"] != "ok":
        print_line(f"  {row['error_message']}")
    names = [name for name in list_column_names("headline", "detail") if row.get(name) is not None]
    print_table([{"measure": name, "value": row[name]} for name in names])
    if parts := tabulate_caption_spans(row):
        print_table(parts, "parts of the caption, with the probability that they do not describe the medium")
    for reason in explanation.reasons:
        print_line(f"  {reason}")
    for line in (*explanation.describe_ranks(), *explanation.tags):
        print_line(line)
    if explanation.caption_rank is not None:
        print_table(tabulate_fits(explanation.captions), "captions of other media that fit this medium best")
        print_table(tabulate_fits(explanation.media), "other media that fit this caption best")
    if explanation.frames:
        frames = [
            {"time": frame.time, "similarity": frame.similarity, "fits": frame.fits}
            | {"": "best" if position == explanation.best_frame else ""}
            for position, frame in enumerate(explanation.frames)
        ]
        print_table(frames, "frames against the caption")
    for side, beliefs in (("medium", explanation.prototypes_visual), ("caption", explanation.prototypes_text)):
        if beliefs:
            like = "the caption nearest to it" if side == "medium" else "the medium nearest to it"
            print_table(tabulate_prototypes(beliefs, like), f"prototypes behind the uncertainty of the {side}")
    if explanation.duplicates:
        print_table(explanation.duplicates, "duplicates of this medium")


def tabulate_fits(matches: list[Fit]) -> list[dict[str, Any]]:
    timed = any(fit.start is not None for fit in matches)
    return [
        {"similarity": fit.similarity, "key": fit.key}
        | ({"start": fit.start, "end": fit.end} if timed else {})
        | {"caption": fit.caption}
        for fit in matches
    ]


def tabulate_prototypes(beliefs: list[PrototypeBelief], like: str, limit: int = 4) -> list[dict[str, Any]]:
    return [
        {"prototype": belief.prototype, "cosine": belief.cosine, "belief": belief.belief}
        | ({like: belief.like} if belief.like is not None else {})
        for belief in beliefs[:limit]
    ]
