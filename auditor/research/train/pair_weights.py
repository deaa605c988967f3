"""Weights of pairs for training on noisy corpora: what an audit thinks of a pair decides how much it counts.

They come from an audit, local or remote, corrected by people's labels where it has any; from the table that `auditor
weigh` writes; or from any Parquet with p_mismatch, where a pair weighs 1 - p_mismatch. A pair is found by key and
caption_index, as the audit and training count captions alike. Where the table also tells the caption (an audit does) it
must be the same one, and keys that several shards share are told apart by the shard.
"""

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa

from auditor.audit_folder.folder import Folder, split_target
from auditor.audit_folder.manifest import NAME as MANIFEST
from auditor.errors import AuditorError
from auditor.query.database import AuditDatabase
from auditor.query.sandbox import Limits
from auditor.research.train.training_reader import Draw

PAIR = ("key", "caption_index")
TELLING = ("shard", "caption")  # columns that an audit has besides


class PairWeightError(AuditorError):
    """A table of weights that cannot be used."""


class Rating(NamedTuple):
    """What the table says of one pair."""

    weight: float | None  # None: it was never scored, and weighs 1
    shard: str | None
    caption: int | None  # its hash


class PairWeights:
    """The weight of each (key, caption_index); 1 for pairs that the table does not know."""

    def __init__(self, ratings: dict[tuple[str, int], list[Rating]], path: str) -> None:
        self.ratings, self.path = ratings, path

    @classmethod
    def read(cls, path: str) -> "PairWeights":
        """From a Parquet file, a folder of them, or an audit."""
        ratings: dict[tuple[str, int], list[Rating]] = {}
        for key, index, weight, shard, caption in rows(path):
            known = ratings.setdefault((key, index), [])
            unscored = [rating for rating in known if rating.shard == shard and rating.weight is None]
            if weight is None and any(rating.shard == shard for rating in known):
                continue  # a repetition of the key, which is not trained on either
            for rating in unscored:
                known.remove(rating)
            known.append(Rating(weight, shard, None if caption is None else hash(caption)))
        return cls(ratings, path)

    def of(self, draws: Iterable[Draw]) -> list[float]:
        """The weight of each; that of joined captions is the mean of theirs."""
        return [sum(self.one(draw, index) for index in draw.captions) / len(draw.captions) for draw in draws]

    def one(self, draw: Draw, index: int) -> float:
        sample = draw.sample
        known = self.ratings.get((sample.key, index))
        if known is None:
            return 1.0
        mine = known if len(known) == 1 else [rating for rating in known if rating.shard == sample.shard]
        if len(mine) != 1:
            raise PairWeightError(
                f"{self.path} has several pairs of key {sample.key} and none of shard {sample.shard} alone: "
                "use an audit of this corpus"
            )
        if mine[0].caption not in (None, hash(sample.captions[index])):
            raise PairWeightError(
                f"{self.path} has another caption {index} for key {sample.key} than the corpus: "
                "audit it again as it is now, each line of a .txt as a caption"
            )
        return 1.0 if mine[0].weight is None else mine[0].weight


def rows(path: str) -> Iterator[tuple[str, int, float | None, str | None, str | None]]:
    """Key, caption_index, weight, shard and caption, the last two as far as they are there."""
    for batch in batches(path):
        absent = [None] * batch.num_rows
        names = batch.schema.names
        measure = "weight" if "weight" in names else "p_mismatch"
        weights = [None if x is None else weight_of(measure, x, path) for x in batch[measure].to_pylist()]
        pairs = [batch[name].to_pylist() for name in PAIR]
        told = [batch[name].to_pylist() if name in names else absent for name in TELLING]
        yield from zip(*pairs, weights, *told, strict=True)


def weight_of(measure: str, x: float, path: str) -> float:
    weight = x if measure == "weight" else 1.0 - x
    if not 0.0 <= weight < math.inf or (measure == "p_mismatch" and weight > 1.0):
        bounds = "be a number from 0 up" if measure == "weight" else "lie between 0 and 1"
        raise PairWeightError(f"{measure} of {path} must {bounds}, not {x:g}")
    return weight


def batches(path: str) -> Iterator[pa.RecordBatch]:
    """What there is of PAIR, a weight and TELLING: from an audit, a Parquet file or a folder of them."""
    folder = Folder(path)
    if folder.exists(MANIFEST):
        yield from audit_batches(path)
        return
    try:
        for parent, name in parquet_files(folder):
            with parent.open_table(name) as table:
                yield from table.iter_batches(columns=wanted_columns(path, table.schema_arrow.names))
    except (OSError, pa.ArrowInvalid) as error:
        raise PairWeightError(f"cannot read the weights of {path}: {error}") from error


def parquet_files(folder: Folder) -> Iterator[tuple[Folder, str]]:
    """A file itself, or all that a folder holds but hidden ones (`_SUCCESS`, `.part-…`), each with where it is."""
    if folder.fs.isfile(folder.root):
        yield split_target(folder.address(""))
        return
    found = [str(path).removeprefix(folder.root).lstrip("/") for path in sorted(folder.fs.find(folder.root))]
    names = [name for name in found if not any(part.startswith((".", "_")) for part in name.split("/"))]
    if not names:
        raise FileNotFoundError("no Parquet file is there")
    yield from ((folder, name) for name in names)


def audit_batches(path: str) -> Iterator[pa.RecordBatch]:
    with AuditDatabase(path, limits=Limits(seconds=None)) as database:
        if database.state != "complete":
            raise PairWeightError(f"{path} is not finished (state: {database.state}): finish the audit first")
        yield from database.sandbox.stream(f"SELECT {', '.join((*PAIR, 'p_mismatch', *TELLING))} FROM measured")


def wanted_columns(path: str, names: list[str]) -> list[str]:
    measure = "weight" if "weight" in names else "p_mismatch"
    if missing := [name for name in (*PAIR, measure) if name not in names]:
        raise PairWeightError(
            f"{path} has no column {missing[0]}; weights need {', '.join(PAIR)}, weight or p_mismatch"
        )
    return [*PAIR, measure, *(name for name in TELLING if name in names)]
