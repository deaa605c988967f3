"""Weights of pairs for training on noisy corpora: what an audit thinks of a pair decides how much it counts."""

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds

from model.errors import ModelError

COLUMNS = ("key", "caption_index", "p_mismatch")


class PairWeightError(ModelError):
    """A table of weights that cannot be used."""


class PairWeights:
    """1 - p_mismatch of each (key, caption_index); 1 for pairs that the table does not know."""

    def __init__(self, weights: dict[tuple[str, int], float]) -> None:
        self.weights = weights

    @classmethod
    def read(cls, path: str) -> "PairWeights":
        """From a Parquet file, a folder of them, or an audit."""
        samples = Path(path) / "samples"
        try:
            source = ds.dataset(str(samples if samples.is_dir() else path), format="parquet")
            missing = [name for name in COLUMNS if name not in source.schema.names]
            if missing:
                raise PairWeightError(f"{path} has no column {missing[0]}; weights need {', '.join(COLUMNS)}")
            table = source.to_table(columns=list(COLUMNS))
        except (OSError, pa.ArrowInvalid) as error:
            raise PairWeightError(f"cannot read the weights of {path}: {error}") from error
        keys, indices, mismatch = (table.column(name).to_pylist() for name in COLUMNS)
        # Rows that were never scored have no p_mismatch and say nothing.
        known = {(k, i): 1.0 - p for k, i, p in zip(keys, indices, mismatch, strict=True) if p is not None}
        if any(not 0.0 <= weight <= 1.0 for weight in known.values()):
            raise PairWeightError(f"p_mismatch of {path} must lie between 0 and 1")
        return cls(known)

    def of(self, keys: Iterable[str], caption_index: Iterable[int]) -> list[float]:
        return [self.weights.get(pair, 1.0) for pair in zip(keys, caption_index, strict=True)]
