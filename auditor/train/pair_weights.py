"""Weights of pairs for training on noisy corpora: what an audit thinks of a pair decides how much it counts.

A pair is found by key and caption_index, as the audit and training count captions alike. Where the table also tells the
caption (an audit does) it must be the same one, and keys that several shards share are told apart by the shard.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.dataset as ds

from auditor.errors import AuditorError
from auditor.train.reader import Draw

COLUMNS = ("key", "caption_index", "p_mismatch")
TELLING = ("shard", "caption")  # columns that an audit has besides


class PairWeightError(AuditorError):
    """A table of weights that cannot be used."""


class Rating(NamedTuple):
    """What the table says of one pair."""

    p_mismatch: float | None  # None: it was never scored
    shard: str | None
    caption: int | None  # its hash

    @property
    def weight(self) -> float:
        return 1.0 if self.p_mismatch is None else 1.0 - self.p_mismatch


class PairWeights:
    """1 - p_mismatch of each (key, caption_index); 1 for pairs that the table does not know."""

    def __init__(self, ratings: dict[tuple[str, int], list[Rating]], path: str) -> None:
        self.ratings, self.path = ratings, path

    @classmethod
    def read(cls, path: str) -> "PairWeights":
        """From a Parquet file, a folder of them, or an audit."""
        ratings: dict[tuple[str, int], list[Rating]] = {}
        for key, index, p, shard, caption in rows(path):
            if p is not None and not 0.0 <= p <= 1.0:
                raise PairWeightError(f"p_mismatch of {path} must lie between 0 and 1")
            known = ratings.setdefault((key, index), [])
            unscored = [rating for rating in known if rating.shard == shard and rating.p_mismatch is None]
            if p is None and any(rating.shard == shard for rating in known):
                continue  # a repetition of the key, which is not trained on either
            for rating in unscored:
                known.remove(rating)
            known.append(Rating(p, shard, None if caption is None else hash(caption)))
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
        return mine[0].weight


def rows(path: str) -> Iterator[tuple[str, int, float | None, str | None, str | None]]:
    """Key, caption_index, p_mismatch, shard and caption, the last two as far as they are there."""
    for batch in read_columns(path).to_batches():
        absent = [None] * batch.num_rows
        columns = [batch[name].to_pylist() if name in batch.schema.names else absent for name in (*COLUMNS, *TELLING)]
        yield from zip(*columns, strict=True)


def read_columns(path: str) -> pa.Table:
    samples = Path(path) / "samples"
    try:
        source = ds.dataset(str(samples if samples.is_dir() else path), format="parquet")
        missing = [name for name in COLUMNS if name not in source.schema.names]
        if missing:
            raise PairWeightError(f"{path} has no column {missing[0]}; weights need {', '.join(COLUMNS)}")
        return source.to_table(columns=[*COLUMNS, *(name for name in TELLING if name in source.schema.names)])
    except (OSError, pa.ArrowInvalid) as error:
        raise PairWeightError(f"cannot read the weights of {path}: {error}") from error
