"""The part of a corpus that rules keep: count it, list it, export it, or read it from the corpus while training.

Nothing has to be rewritten. In your own loader, with open_clip's data format (jpg and txt in WebDataset shards)::

    import webdataset as wds
    from auditor import Audit

    keep = Audit("audit/").keep(max_p_mismatch=0.1, max_uncertainty_text=0.8).captions()
    data = wds.WebDataset("shards/{00000..00099}.tar", shardshuffle=100).map(keep)
    data = data.decode("pilrgb").rename(image="jpg;png;jpeg;webp", text="txt").to_tuple("image", "text")

In open_clip's training script `wds.map(keep)` goes before `wds.select(filter_no_caption_or_no_image)`. If every sample
has one caption, or is kept with all of them, `.predicate()` does the same for `select`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from auditor.corpus.raw_samples import read_kept_samples
from auditor.corpus.read_medium import MediaPlaces
from auditor.errors import AuditorError
from auditor.keep.caption_changes import CaptionChanges
from auditor.keep.export import export_subset
from auditor.keep.export_datasets import export_datasets
from auditor.keep.export_target import ExportResult
from auditor.keep.kept_rows import KeptRows, fetch_kept_shard
from auditor.keep.predicate import CaptionFilter, Predicate, make_caption_filter, make_predicate
from auditor.keep.rule_effects import RuleEffects, measure_rule_effects
from auditor.keep.subset_drift import Drift, measure_subset_drift
from auditor.keep.weights import Weighed, Weighing, write_row_weights
from auditor.notebook_view import NotebookView
from auditor.query.database import AuditDatabase
from auditor.query.sandbox import Limits, QueryError

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl


class Subset(KeptRows, NotebookView):
    """The usable rows of an audit that meet all rules, to write or read."""

    def __repr__(self) -> str:
        rules = ", ".join(f"{rule}={value!r}" for rule, value in self.rules.to_dict().items()) or "no rules"
        return f"Subset({rules}: {self.count:,} pairs, {self.media:,} media of {self.database.path!r})"

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """The kept rows as an Arrow table in corpus order, with all columns or those named."""
        if isinstance(columns, str):
            raise QueryError(f'columns must be a list of names: ["{columns}"]')
        selection = self.select_sql(columns or self.columns)
        return self.database.run(f"{selection} ORDER BY shard, media_path, media_offset, key, caption_index")

    def to_pandas(self, columns: Sequence[str] | None = None) -> "pd.DataFrame":
        frame: pd.DataFrame = self.to_arrow(columns).to_pandas()
        return frame

    def to_polars(self, columns: Sequence[str] | None = None) -> "pl.DataFrame":
        import polars as pl

        return pl.DataFrame(self.to_arrow(columns))

    def effects(self) -> RuleEffects:
        return measure_rule_effects(self.database, self.rules)

    def drift(self) -> Drift:
        return measure_subset_drift(self.database, self.rules)

    def samples(self) -> Iterator[dict[str, Any]]:
        """The kept samples in WebDataset's form: __key__, __url__ and the original bytes by extension."""
        for shard, _ in self.with_media():
            yield from read_kept_samples(self.shard(shard))

    def write(
        self, target: str | Path, *, force: bool = False, shard_size: int = 10_000, input_columns: bool = False
    ) -> ExportResult:
        """Write kept.npy, .parquet, .txt, .csv, .tsv, .jsonl or a folder of shards: see auditor.keep.export."""
        return export_subset(self, target, force=force, shard_size=shard_size, input_columns=input_columns)

    def weigh(
        self, target: str | Path, how: Weighing | None = None, *, spread: bool = False, force: bool = False
    ) -> Weighed:
        """Write weights.parquet or weights.npy: see auditor.keep.weights."""
        return write_row_weights(self, str(target), how or Weighing(), spread=spread, force=force)

    def to_datasets(self, folder: str | Path | None = None) -> Any:
        """A `datasets.Dataset` of the kept samples, stored in `folder` or in a temporary folder."""
        return export_datasets(self, folder)

    def webdataset(self) -> Any:
        """The kept samples from the corpus: a WebDataset pipeline if that is installed, otherwise a generator.

        The pipeline splits the shards among nodes and workers and supports .shuffle, .decode, .to_tuple and so on.
        """
        try:
            import webdataset as wds
        except ModuleNotFoundError:
            return self.samples()
        shards = [shard for shard, _ in self.with_media()]
        if not shards:
            raise AuditorError("no sample meets the rules: there is nothing to read")
        database = self.database
        opening = database.path, database.places, database.thresholds, database.limits
        reader = ShardReader(*opening, self.condition, self.rules.where, self.changes)
        # the nested list makes the shard names the first stage
        return wds.DataPipeline([shards], wds.split_by_node, wds.split_by_worker, reader)

    def predicate(self) -> Predicate:
        """For `select()` of your own WebDataset pipeline: true for samples with at least one caption to keep."""
        return make_predicate(self)

    def captions(self) -> CaptionFilter:
        """For `map()` of your own WebDataset pipeline: reduces samples to the captions to keep."""
        return make_caption_filter(self)


@dataclass(frozen=True)
class ShardReader:
    """A pipeline stage that turns shard names into samples.

    It can be pickled: each worker opens the audit itself and holds the rows of one shard at a time.
    """

    path: str
    places: MediaPlaces
    thresholds: Mapping[str, float]
    limits: Limits
    condition: str  # the rules as SQL when the pipeline was made, including the cut of keep_top
    where: str | None  # the user's own condition, which `condition` may refer to as a table of matching rows
    changes: CaptionChanges

    def __call__(self, shards: Iterator[str]) -> Iterator[dict[str, Any]]:
        with AuditDatabase(self.path, self.places, thresholds=self.thresholds, limits=self.limits) as database:
            database.where(self.where)  # builds that table
            self.changes.define(database.sandbox)
            for shard in shards:
                yield from read_kept_samples(fetch_kept_shard(database, self.condition, shard, self.changes))
