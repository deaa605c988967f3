"""Weights of pairs for training on noisy corpora: 1 - p_mismatch, or the weights of a table.

They come from an audit, from the table that `auditor weigh` writes, or from any Parquet file with p_mismatch. A pair is
looked up by key and caption_index. If the table has the caption, as an audit does, it must be equal to the corpus's.
Keys that occur in several shards are distinguished by the shard.
"""

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from auditor.audit_folder.folder import Folder, split_target
from auditor.audit_folder.manifest import MANIFEST_NAME, Manifest
from auditor.corpus.sample import Sample
from auditor.corpus.shard import DEFAULT_OPTIONS, CorpusOptions, load_saved_options
from auditor.keep.export_target import EMPTY_COLUMNS
from auditor.keep.rule_effects import build_clauses, conjoin_clauses
from auditor.query.database import AuditDatabase
from auditor.query.rules import Rules
from auditor.query.sandbox import Limits
from auditor.research.train.training_reader import Draw
from auditor.research.train.training_shards import TrainError

PAIR = ("key", "caption_index")
OPTIONAL_COLUMNS = ("shard", "caption")  # an audit has them


class PairRating(NamedTuple):
    """A row of the table for one pair."""

    weight: float | None  # None: the pair was not scored, and weighs 1
    shard: str | None
    caption: int | None  # hash of the caption


class PairWeights:
    """The weight of each (key, caption_index); 1 for pairs that are not in the table."""

    def __init__(self, ratings: dict[tuple[str, int], list[PairRating]], path: str) -> None:
        self.ratings, self.path = ratings, path

    @classmethod
    def read(cls, path: str, *, only_best: bool = False) -> "PairWeights":
        """Read a table of weights, or an audit: of all captions, or only of the best one of each medium."""
        weights = cls({}, path)
        for key, index, weight, shard, caption in read_weight_rows(path, only_best):
            ratings = weights.ratings.setdefault((key, index), [])
            if weight is None and any(rating.shard == shard for rating in ratings):
                continue  # a duplicate key, which training skips as well
            ratings[:] = [rating for rating in ratings if rating.shard != shard or rating.weight is not None]
            ratings.append(PairRating(weight, shard, None if caption is None else hash(caption)))
        return weights

    def weigh_draws(self, draws: Iterable[Draw]) -> list[float]:
        """The weight of each draw; joined captions weigh their mean."""
        return [sum(self.weigh_caption(draw, index) for index in draw.captions) / len(draw.captions) for draw in draws]

    def find_best_caption(self, sample: Sample) -> int:
        """The caption with the largest weight, the first of equal ones; one that is not in the table comes last."""
        weights = {
            index: self.weigh_caption(Draw(0, sample, (index,)), index)
            for index in range(len(sample.captions))
            if any(r.shard in (None, sample.shard) for r in self.ratings.get((sample.key, index), ()))
        }
        return max(weights, key=lambda index: weights[index], default=0)

    def weigh_caption(self, draw: Draw, index: int) -> float:
        sample = draw.sample
        matches = self.ratings.get((sample.key, index))
        if matches is None:
            return 1.0
        if len(matches) > 1:
            matches = [rating for rating in matches if rating.shard == sample.shard]
        if len(matches) != 1:
            raise TrainError(
                f"{self.path} has several pairs of key {sample.key}, but not exactly one of shard {sample.shard}: "
                "use an audit of this corpus"
            )
        if matches[0].caption not in (None, hash(sample.captions[index])):
            raise TrainError(
                f"caption {index} of key {sample.key} in {self.path} is not that of the corpus: "
                "audit the corpus again, with each line of a .txt as a caption"
            )
        return 1.0 if matches[0].weight is None else matches[0].weight


def read_audit_options(path: str | None) -> CorpusOptions:
    """How the corpus of an audit was read, so that its captions have the same numbers; the defaults if it is none."""
    folder = Folder(path) if path else None
    if folder is None or not folder.exists(MANIFEST_NAME):
        return DEFAULT_OPTIONS
    return load_saved_options(Manifest.load(folder).corpus)


def read_weight_rows(
    path: str, only_best: bool = False
) -> Iterator[tuple[str, int, float | None, str | None, str | None]]:
    """Key, caption_index, weight, shard and caption of each row; the last two are None if the table lacks them."""
    for batch in read_weight_batches(path, only_best):
        measure = find_measure(batch.schema.names)
        weights = [None if x is None else convert_to_weight(measure, x, path) for x in batch[measure].to_pylist()]
        pairs = [batch[name].to_pylist() for name in PAIR]
        absent = [None] * batch.num_rows
        optional = [batch[n].to_pylist() if n in batch.schema.names else absent for n in OPTIONAL_COLUMNS]
        yield from zip(*pairs, weights, *optional, strict=True)


def find_measure(names: list[str]) -> str:
    return "weight" if "weight" in names else "p_mismatch"


def convert_to_weight(measure: str, x: float, path: str) -> float:
    weight = x if measure == "weight" else 1.0 - x
    if not 0.0 <= weight < math.inf or (measure == "p_mismatch" and weight > 1.0):
        bounds = "be a number >= 0" if measure == "weight" else "be between 0 and 1"
        raise TrainError(f"{measure} of {path} must {bounds}, not {x:g}")
    return weight


def read_weight_batches(path: str, only_best: bool = False) -> Iterator[pa.RecordBatch]:
    """The columns of PAIR, the weight and OPTIONAL_COLUMNS of an audit, a Parquet file or a folder of them."""
    folder = Folder(path)
    if folder.exists(MANIFEST_NAME):
        with AuditDatabase(path, limits=Limits(seconds=None)) as database:
            if database.state != "complete":
                raise TrainError(f"{path} is not finished (state: {database.state}): finish the audit first")
            columns = ", ".join((*PAIR, "p_mismatch", *OPTIONAL_COLUMNS))
            rules = build_clauses(database, Rules(best_caption=True)) if only_best else {"all": "TRUE"}
            condition = conjoin_clauses(rules)
            yield from database.sandbox.stream(
                f"SELECT {columns} FROM {database.stored_table(condition)} WHERE {condition}"
            )
        return
    try:
        for parent, name in list_parquet_files(folder):
            with parent.open_table(name) as table:
                yield from read_file_batches(path, table)
    except (OSError, pa.ArrowInvalid) as error:
        raise TrainError(f"cannot read the weights of {path}: {error}") from error


def read_file_batches(path: str, table: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
    """The same columns of one file. An export leaves out p_mismatch if no pair of the audit has an estimate."""
    names = table.schema_arrow.names
    empty = (table.metadata.metadata or {}).get(EMPTY_COLUMNS.encode(), b"").decode().split(", ")
    if find_measure(names) in names or "p_mismatch" not in empty:
        yield from table.iter_batches(columns=choose_weight_columns(path, names))
        return
    columns = [name for name in choose_weight_columns(path, [*names, "p_mismatch"]) if name in names]
    for batch in table.iter_batches(columns=columns):
        yield batch.append_column("p_mismatch", pa.nulls(batch.num_rows, pa.float32()))


def list_parquet_files(folder: Folder) -> Iterator[tuple[Folder, str]]:
    """The file itself, or all files of a folder except hidden ones (`_SUCCESS`, `.part-…`), with their folders."""
    if folder.fs.isfile(folder.root):
        yield split_target(folder.address(""))
        return
    paths = [str(path).removeprefix(folder.root).lstrip("/") for path in sorted(folder.fs.find(folder.root))]
    names = [name for name in paths if not any(part.startswith((".", "_")) for part in name.split("/"))]
    if not names:
        raise FileNotFoundError("it holds no Parquet file")
    yield from ((folder, name) for name in names)


def choose_weight_columns(path: str, names: list[str]) -> list[str]:
    needed = [*PAIR, find_measure(names)]
    if absent := [name for name in needed if name not in names]:
        raise TrainError(f"{path} has no column {absent[0]}; weights need {', '.join(PAIR)}, weight or p_mismatch")
    return [*needed, *(name for name in OPTIONAL_COLUMNS if name in names)]
