"""Shards in tiers of quality: `auditor filter … --tiers 3 --out DIR` writes DIR/tier-1/ (the best) to DIR/tier-3/.

Tiers hold equally many pairs, ranked by one column; pairs without a value stand in the last, which is larger where
there are many of them. open_clip trains on
several sources with a factor for each: a tier's is the share of its pairs that are expected to match, over that of the
best tier. A run that was killed goes on with the tier it was in; tiers.json is written last.
"""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from auditor.audit_folder.folder import TEMPORARY, Folder
from auditor.keep.export_plan import PLAN, clear
from auditor.keep.export_shards import REMOVED, Plan, export_shards, write_removed
from auditor.keep.export_target import ExportError, Progress, refuse_in_corpus, target_form
from auditor.keep.kept_rows import KeptRows
from auditor.keep.rule_effects import Clause, find_top
from auditor.schema import COLUMNS

LISTED = "tiers.json"
OURS = ("tier-", LISTED, REMOVED, TEMPORARY)  # what an export into tiers leaves in its folder


@dataclass(frozen=True, slots=True)
class Tier:
    """One folder of shards."""

    folder: str
    pairs: int
    samples: int
    shards: int
    expected_good: float | None  # share of its pairs that match, by p_mismatch
    factor: float = 1.0

    @property
    def shards_spec(self) -> str:
        """As open_clip and webdataset take it: DIR/tier-1/{00000..00012}.tar."""
        plan = Plan(self.samples, self.shards)
        first, last = (plan.name(shard).removesuffix(".tar") for shard in (0, self.shards - 1))
        return f"{self.folder}/{first if first == last else f'{{{first}..{last}}}'}.tar"


@dataclass(frozen=True, slots=True)
class Tiers:
    """What was written."""

    target: str
    by: str
    tiers: tuple[Tier, ...]

    @property
    def open_clip(self) -> str:
        """The options of open_clip_train that train on it."""
        data = "::".join(tier.shards_spec for tier in self.tiers)
        factors = "::".join(f"{tier.factor:.3g}" for tier in self.tiers)
        samples = sum(tier.samples for tier in self.tiers)
        return (
            f"--train-data '{data}' --train-data-upsampling-factors {factors} "
            f"--dataset-type webdataset --dataset-resampled --train-num-samples {samples}"
        )


def export_tiers(
    kept: KeptRows,
    target: str,
    count: int,
    by: str,
    *,
    shard_size: int,
    force: bool = False,
    progress: Progress | None = None,
) -> Tiers:
    """Write the kept samples as `count` folders of shards, the best first."""
    if target_form(target) != "webdataset":
        raise ExportError(f"tiers are folders of shards: {target} is a file")
    refuse_in_corpus(kept, target)
    kept.with_media()  # or an error, before anything is cleared
    folder = Folder(target)
    if folder.exists(LISTED) and not force:
        raise ExportError(f"{target} exists; --force replaces it")
    if strange := [name for name in folder.entries() if not name.startswith(OURS)]:
        raise ExportError(f"{target} holds something else ({min(strange)}); choose another folder")
    if force:
        clear_tiers(folder)
    written = []
    for number, part in enumerate(tier_rows(kept, count, by), 1):
        place = Folder(f"{target.rstrip('/')}/tier-{number}")
        done = export_shards(part, place, shard_size=shard_size, progress=progress, part=True)
        written.append(Tier(done.target, done.captions, done.rows, done.shards, expected_good(part)))
    write_removed(kept, folder)
    tiers = [with_factor(tier, written[0].expected_good) for tier in written]
    folder.write_json(LISTED, {"by": by, "tiers": [asdict(tier) for tier in tiers]})
    return Tiers(target, by, tuple(tiers))


def clear_tiers(folder: Folder) -> None:
    """Remove what an earlier export into tiers has written, and nothing else."""
    folder.remove(LISTED)
    for name in folder.names("", ""):
        if name.startswith("tier-"):
            place = Folder(f"{folder.url.rstrip('/')}/{name}")
            if place.exists(PLAN):
                clear(place, ())
            if not place.entries():
                folder.remove(name)


def with_factor(tier: Tier, best: float | None) -> Tier:
    factor = tier.expected_good / best if tier.expected_good is not None and best else 1.0
    return Tier(tier.folder, tier.pairs, tier.samples, tier.shards, tier.expected_good, factor)


def tier_rows(kept: KeptRows, count: int, by: str) -> Iterator[KeptRows]:
    """The kept rows of each tier: as many in each, unless those without a value are more than a tier holds."""
    column = kept.database.column(by)
    usable = f"{kept.database.stored_table(kept.condition, column)} WHERE {kept.condition} AND {column} IS NOT NULL"
    ranked: int = kept.database.rows(f"SELECT count(*) AS n FROM {usable}")[0]["n"]
    if ranked < count:
        raise ExportError(f"{ranked:,} kept pairs with {by} cannot be divided into {count:,} tiers")
    divided = kept.count if kept.count - ranked <= kept.count // count else ranked
    ties = COLUMNS[by].tie_breaker if by in COLUMNS else ""
    better = "FALSE"
    for tier in range(1, count + 1):
        wanted = round(divided * tier / count)
        within = "TRUE" if tier == count else find_top(kept.database, wanted, by, column, usable, ties)
        yield kept.narrowed(Clause("tier", f"({within}) AND NOT ({better})"))
        better = within


def expected_good(part: KeptRows) -> float | None:
    mean = part.database.rows(
        f"SELECT avg(CAST(1 - p_mismatch AS DOUBLE)) AS x FROM {part.source} WHERE {part.condition}"
    )[0]["x"]
    return None if mean is None or math.isnan(mean) else float(mean)
