"""Export shards in quality tiers: `auditor filter ... --tiers 3 --out DIR` writes DIR/tier-1/ (best) to DIR/tier-3/.

Tiers hold equally many pairs, ranked by one column; pairs without a value are in the last tier, which is larger if
there are many of them. open_clip trains on several sources with a factor for each: a tier's factor is the expected
share of its pairs that match, divided by that of the best tier. An interrupted export resumes with its current tier;
tiers.json is written last.
"""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from auditor.audit_folder.folder import TEMPORARY, Folder
from auditor.keep.export_shards import REMOVED, ShardPlan, export_shards, write_removed_rows
from auditor.keep.export_target import (
    PLAN,
    ExportError,
    Progress,
    check_outside_corpus,
    clear_export,
    parse_target_form,
)
from auditor.keep.kept_rows import KeptRows
from auditor.keep.ranked_rows import find_top_condition

LISTED = "tiers.json"
OURS = ("tier-", LISTED, REMOVED, TEMPORARY)  # the files of an export into tiers


@dataclass(frozen=True, slots=True)
class Tier:
    """One folder of shards."""

    folder: str
    pairs: int
    samples: int
    shards: int
    expected_good: float | None  # share of its pairs that match, by p_mismatch
    factor: float

    @property
    def shards_spec(self) -> str:
        """The shards in the notation of open_clip and webdataset: DIR/tier-1/{00000..00012}.tar."""
        plan = ShardPlan(self.samples, self.shards)
        first, last = (plan.name(shard).removesuffix(".tar") for shard in (0, self.shards - 1))
        return f"{self.folder}/{first if first == last else f'{{{first}..{last}}}'}.tar"


@dataclass(frozen=True, slots=True)
class Tiers:
    """The tiers that were written."""

    target: str
    by: str
    tiers: tuple[Tier, ...]

    @property
    def open_clip(self) -> str:
        """The options of open_clip_train that train on the tiers."""
        data = "::".join(tier.shards_spec for tier in self.tiers)
        factors = "::".join(f"{tier.factor:.3g}" for tier in self.tiers)
        samples = sum(tier.samples for tier in self.tiers)
        return (
            f"--train-data '{data}' --train-data-upsampling-factors {factors} "
            f"--dataset-type webdataset --dataset-resampled --train-num-samples {samples}"
        )


def export_tiers(
    subset: KeptRows,
    target: str,
    count: int,
    rank_column: str,
    *,
    shard_size: int,
    force: bool = False,
    progress: Progress | None = None,
) -> Tiers:
    """Write the kept samples as `count` folders of shards, the best first."""
    if parse_target_form(target) != "webdataset":
        raise ExportError(f"tiers are folders of shards: {target} is a file")
    check_outside_corpus(subset, target)
    subset.with_media()  # raises an error before anything is cleared
    folder = Folder(target)
    if folder.exists(LISTED) and not force:
        raise ExportError(f"{target} exists; --force replaces it")
    if strange := [name for name in folder.entries() if not name.startswith(OURS)]:
        raise ExportError(f"{target} holds other files ({min(strange)}); choose another folder")
    if force:
        clear_tiers(folder)
    tiers: list[Tier] = []
    for number, part in enumerate(split_tiers(subset, count, rank_column), 1):
        place = Folder(f"{target.rstrip('/')}/tier-{number}")
        result = export_shards(part, place, shard_size=shard_size, progress=progress, part=True)
        good = estimate_good_share(part)
        best = tiers[0].expected_good if tiers else good
        factor = good / best if good is not None and best else 1.0
        tiers.append(Tier(result.target, result.captions, result.rows, result.shards, good, factor))
    write_removed_rows(subset, folder)
    folder.write_json(LISTED, {"by": rank_column, "tiers": [asdict(tier) for tier in tiers]})
    return Tiers(target, rank_column, tuple(tiers))


def clear_tiers(folder: Folder) -> None:
    """Remove the files of an earlier export into tiers and nothing else."""
    folder.remove(LISTED)
    for name in folder.names("", ""):
        if name.startswith("tier-"):
            place = Folder(f"{folder.url.rstrip('/')}/{name}")
            if place.exists(PLAN):
                clear_export(place, ())
            if not place.entries():
                folder.remove(name)


def split_tiers(subset: KeptRows, count: int, rank_column: str) -> Iterator[KeptRows]:
    """Yield the kept rows of each tier; tiers are equal unless more rows lack a value than a tier holds."""
    database, column = subset.database, subset.database.column(rank_column)
    usable = f"{database.stored_table(subset.condition, column)} WHERE {subset.condition} AND {column} IS NOT NULL"
    ranked: int = database.rows(f"SELECT count(*) AS n FROM {usable}")[0]["n"]
    if ranked < count:
        raise ExportError(f"{ranked:,} kept pairs with {rank_column} cannot be divided into {count:,} tiers")
    divided = subset.count if subset.count - ranked <= subset.count // count else ranked
    better = "FALSE"
    for tier in range(1, count + 1):
        rows = round(divided * tier / count)
        top = find_top_condition(database, rows, rank_column, usable) if tier < count else "TRUE"
        yield KeptRows(database, subset.rules, tier=f"({top}) AND NOT ({better})")
        better = top


def estimate_good_share(part: KeptRows) -> float | None:
    mean = part.database.rows(f"SELECT avg(CAST(1 - p_mismatch AS DOUBLE)) AS x FROM {part.from_clause}")[0]["x"]
    return None if mean is None or math.isnan(mean) else float(mean)
