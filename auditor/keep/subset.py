"""The part of a corpus that rules keep: counted, listed, or read straight from the corpus while training.

Nothing has to be rewritten. In your own loader, with open_clip's data format (jpg and txt in WebDataset shards)::

    import webdataset as wds
    from auditor import Audit

    keep = Audit("audit/").keep(max_p_mismatch=0.1, max_uncertainty_text=0.8).captions()
    data = wds.WebDataset("shards/{00000..00099}.tar", shardshuffle=100).map(keep)
    data = data.decode("pilrgb").rename(image="jpg;png;jpeg;webp", text="txt").to_tuple("image", "text")

In open_clip's own training script `wds.map(keep)` goes before `wds.select(filter_no_caption_or_no_image)`. Where every
sample has one caption, or is kept with all of them, `.predicate()` does the same for `select`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from auditor.corpus.raw_samples import read_kept
from auditor.errors import AuditorError
from auditor.keep.export import export
from auditor.keep.export_datasets import to_datasets
from auditor.keep.export_target import Exported
from auditor.keep.kept_rows import KeptRows, kept_shard
from auditor.keep.predicate import CaptionFilter, Predicate, make_caption_filter, make_predicate
from auditor.keep.rule_effects import Effects, rule_effects
from auditor.keep.subset_drift import Drift, find_drift
from auditor.keep.weights import Weighed, Weighing, weigh
from auditor.query.database import AuditDatabase
from auditor.query.rules import Threshold
from auditor.query.sandbox import Limits, QueryError

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl


class Subset(KeptRows):
    """The usable rows of an audit that meet all rules, to be written or read."""

    def __repr__(self) -> str:
        rules = ", ".join(f"{rule}={value!r}" for rule, value in self.rules.to_dict().items()) or "no rules"
        return f"Subset({rules}: {self.count:,} pairs, {self.media:,} media of {self.database.path!r})"

    def __len__(self) -> int:
        return self.count

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """The kept rows as an Arrow table, in corpus order, with all columns or those named."""
        if isinstance(columns, str):
            raise QueryError(f'columns is a list of names: ["{columns}"]')
        wanted = ", ".join(self.database.column(column, "columns") for column in columns or self.database.columns)
        order = "shard, media_path, media_offset, key, caption_index"
        return self.database.run(f"SELECT {wanted} FROM reviewed AS samples WHERE {self.condition} ORDER BY {order}")

    def to_pandas(self, columns: Sequence[str] | None = None) -> "pd.DataFrame":
        frame: pd.DataFrame = self.to_arrow(columns).to_pandas()
        return frame

    def to_polars(self, columns: Sequence[str] | None = None) -> "pl.DataFrame":
        import polars as pl

        return pl.DataFrame(self.to_arrow(columns))

    def effects(self) -> Effects:
        return rule_effects(self.database, self.rules)

    def drift(self) -> Drift:
        return find_drift(self.database, self.rules)

    def samples(self) -> Iterator[dict[str, Any]]:
        """Kept samples as WebDataset gives them: __key__, __url__ and the original bytes by extension."""
        for shard, _ in self.with_media():
            yield from read_kept(self.shard(shard))

    def write(
        self, target: str | Path, *, force: bool = False, shard_size: int = 10_000, input_columns: bool = False
    ) -> Exported:
        """Write kept.npy, .parquet, .txt, .csv, .tsv, .jsonl or a folder of shards: see auditor.keep.export."""
        return export(self, target, force=force, shard_size=shard_size, input_columns=input_columns)

    def weigh(
        self, target: str | Path, how: Weighing | None = None, *, spread: bool = False, force: bool = False
    ) -> Weighed:
        """Write weights.parquet or weights.npy: see auditor.keep.weights."""
        return weigh(self, str(target), how or Weighing(), spread=spread, force=force)

    def to_datasets(self, folder: str | Path | None = None) -> Any:
        """A `datasets.Dataset` of the kept samples; kept in `folder`, or for as long as it is used."""
        return to_datasets(self, folder)

    def webdataset(self) -> Any:
        """Kept samples straight from the corpus: a WebDataset pipeline where that is installed, else a generator.

        The pipeline divides the shards between nodes and workers and takes .shuffle, .decode, .to_tuple and so on.
        """
        try:
            import webdataset as wds
        except ModuleNotFoundError:
            return self.samples()
        shards = [shard for shard, _ in self.with_media()]
        if not shards:
            raise AuditorError("no sample meets the rules; there is nothing to read")
        of = self.database
        reader = ShardReader(of.path, of.moved_to, of.thresholds, of.limits, self.condition)
        # in a list of its own, a list of names is the first stage
        return wds.DataPipeline([shards], wds.split_by_node, wds.split_by_worker, reader)

    def predicate(self) -> Predicate:
        """For `select()` of your own WebDataset pipeline: True for samples with a caption to keep, kept whole."""
        return make_predicate(self)

    def captions(self) -> CaptionFilter:
        """For `map()` of your own WebDataset pipeline: samples with the captions to keep, without the others."""
        return make_caption_filter(self)


@dataclass(frozen=True)
class ShardReader:
    """The stage of a pipeline that turns names of shards into samples.

    Can be pickled: each worker opens the audit for itself, and holds the rows of one shard at a time.
    """

    path: str
    corpus: str | None
    thresholds: Mapping[str, Threshold]
    limits: Limits
    condition: str  # as the rules meant it when the pipeline was made, with the cut of keep_top

    def __call__(self, shards: Iterator[str]) -> Iterator[dict[str, Any]]:
        with AuditDatabase(self.path, self.corpus, thresholds=self.thresholds, limits=self.limits) as database:
            for shard in shards:
                yield from read_kept(kept_shard(database, self.condition, shard))
