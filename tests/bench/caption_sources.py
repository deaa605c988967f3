"""Measure whether the best of three sources of captions is chosen, on Flickr8k photos with planted defects.

    python -m tests.bench.caption_sources [--photos 1000] [--tar flickr8k/val-00000.tar] [--alt-noise 0.4]
    python -m tests.bench.caption_sources --drawings 1000

`refined` is the longest caption of a photo; 20% of them are replaced by one boilerplate caption, 10% by a caption of a
similar photo (the 2nd to 6th nearest). `raw` is the shortest caption, and always right. `alt` is the one of middle
length; with --alt-noise, half of that share are file names and half captions of a random photo. A choice is right if
the chosen caption was written for the photo.

Prints the share of right choices where `refined` is planted, and in the other rows the share of wrong choices, and of
choices other than `refined`, which is right there. --prefer is used with --max-p-mismatch 0.5 --max-caption-count 10
--no-generated-defects. The order was chosen on human/photos-00000.tar (500 photos) and train-00000,
but results on val-00000 had been seen before.

--drawings audits random drawings of openclipart with the titles, descriptions and keywords of their makers instead, in
which nothing is planted, and prints the summary's comparison of the three sources.
"""

import argparse
import csv
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import auditor
from auditor import Audit
from auditor.console import print_table
from tests.bench.filter_pools import read_metadata
from tests.bench.flickr8k import CACHE, load_photos
from tests.bench.found_corpora import DRAWINGS, MOST_PIXELS, count_pixels
from tests.conftest import SHARED

BOILERPLATE = {
    "train": "The video features a person or several people in a scene with various objects around them.",
    "val": "This is a beautiful moment captured outdoors, showing people enjoying the day together.",
}
SOURCES = ("alt", "raw", "refined")
DRAWING_SOURCES = ("title", "description", "keywords")


@dataclass(frozen=True)
class SourceTable:
    """A table of photos with three captions each, and which of them were written for the photo."""

    rows: list[dict[str, str]]
    right: dict[tuple[str, str], bool]  # by key and source
    planted: dict[str, str]  # key -> the defect of `refined`
    folder: Path


def plant_sources(tar: str, photos: int, alt_noise: float = 0.0, seed: int = 0) -> SourceTable:
    loaded = load_photos(SHARED, photos, tar)
    generator = np.random.default_rng(seed)
    part = "val" if "val" in tar else "train"
    count = len(loaded.keys)
    own = [[loaded.captions[row] for row in np.flatnonzero(loaded.media == photo)] for photo in range(count)]
    near = np.argsort(-(loaded.visual @ loaded.visual.T), axis=1)[:, 2:7]
    draw = generator.permutation(count)
    defect = dict.fromkeys(draw[: round(0.2 * count)].tolist(), "boilerplate")
    defect |= dict.fromkeys(draw[round(0.2 * count) : round(0.3 * count)].tolist(), "similar")
    rows, right, planted = [], {}, {}
    for photo, key in enumerate(loaded.keys):
        ordered = sorted(own[photo], key=len)
        texts = {"alt": ordered[len(ordered) // 2], "raw": ordered[0], "refined": ordered[-1]}
        chance = generator.random()
        if chance < alt_noise:
            other = own[(photo + int(generator.integers(1, count))) % count]
            texts["alt"] = f"DSC_{photo:04d}.JPG" if chance < alt_noise / 2 else str(generator.choice(other))
        if photo in defect:
            planted[key] = defect[photo]
            other = own[int(generator.choice(near[photo]))]
            texts["refined"] = BOILERPLATE[part] if defect[photo] == "boilerplate" else str(generator.choice(other))
        rows.append({"file_name": f"{key}.jpg", **texts})
        right |= {(key, source): texts[source] in own[photo] for source in SOURCES}
    return SourceTable(rows, right, planted, CACHE / f"sources-{Path(tar).stem}-{photos}-{alt_noise:g}-{seed}")


def audit_sources(table: SourceTable, tar: str) -> Audit:
    """Write the photos and the table, and audit them."""
    table.folder.mkdir(parents=True, exist_ok=True)
    names = {row["file_name"] for row in table.rows}
    with tarfile.open(SHARED / "data" / tar) as opened:
        for member in opened:
            if member.name in names and not (table.folder / member.name).exists():
                opened.extract(member, table.folder, filter="data")
    with (table.folder / "photos.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["file_name", *SOURCES])
        writer.writeheader()
        writer.writerows(table.rows)
    out = table.folder.with_name(f"{table.folder.name}-audit")
    model = f"local-dir:{SHARED / 'models' / 'flickr8k-lite'}"
    table_path = str(table.folder / "photos.csv")
    return auditor.audit(table_path, out, model=model, caption=SOURCES, quiet=True)


def measure_choice(table: SourceTable, chosen: dict[str, str]) -> dict[str, Any]:
    """The shares of right choices; `chosen` is the source by key."""
    measured: dict[str, Any] = {}
    for name in ("boilerplate", "similar"):
        keys = [key for key, defect in table.planted.items() if defect == name]
        measured[name] = np.mean([table.right.get((key, chosen.get(key, "")), False) for key in keys])
    measured["planted"] = np.mean([table.right.get((key, chosen.get(key, "")), False) for key in table.planted])
    others = {key for key, _ in table.right} - set(table.planted)
    measured["wrong in others"] = np.mean([not table.right.get((key, chosen.get(key, "")), False) for key in others])
    measured["not refined in others"] = np.mean([chosen.get(key) != "refined" for key in others])
    return {name: f"{share:.1%}" for name, share in measured.items()}


def choose_by_order(audit: Audit, order: str) -> dict[str, str]:
    rows = audit.sql(
        f"SELECT key, arg_min(caption_source, row({order})) AS source FROM samples WHERE status = 'ok' GROUP BY key"
    )
    return {row["key"]: row["source"] for row in rows.to_pylist()}


def choose_by_rules(audit: Audit, **rules: Any) -> dict[str, str]:
    rows = audit.keep(**rules).to_arrow(["key", "caption_source"])
    return dict(zip(rows["key"].to_pylist(), rows["caption_source"].to_pylist(), strict=True))


def list_choices(audit: Audit) -> dict[str, dict[str, str]]:
    rules: dict[str, Any] = {"max_p_mismatch": 0.5, "max_caption_count": 10, "no_generated_defects": True}
    return {
        "similarity": choose_by_order(audit, "-similarity"),
        "p_mismatch, then similarity": choose_by_order(audit, "p_mismatch, -similarity"),
        "--best-caption": choose_by_rules(audit, best_caption=True),
        "--prefer refined,raw,alt": choose_by_rules(audit, prefer=("refined", "raw", "alt"), **rules),
    }


def write_drawings(folder: Path, count: int, seed: int) -> Path:
    """A table of random drawings with a title, and their description and keywords, those that they have."""
    files = [file for file in sorted((DRAWINGS / "png").rglob("*.png")) if count_pixels(file) < MOST_PIXELS]
    rows: list[dict[str, str]] = []
    for number in np.random.default_rng(seed).permutation(len(files)):
        svg = DRAWINGS / "svg" / files[number].relative_to(DRAWINGS / "png").with_suffix(".svg")
        texts = list(read_metadata(svg.read_text("utf-8", "replace"))) if svg.exists() else [""]
        if texts[0] and len(rows) < count:
            rows.append({"image": str(files[number]), **dict(zip(DRAWING_SOURCES, texts, strict=True))})
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "drawings.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["image", *DRAWING_SOURCES])
        writer.writeheader()
        writer.writerows(rows)
    return folder / "drawings.csv"


def compare_drawings(count: int, seed: int) -> None:
    folder = CACHE / f"drawing-sources-{count}-{seed}"
    table = write_drawings(folder, count, seed)
    model = f"local-dir:{SHARED / 'models' / 'flickr8k-lite'}"
    options: Any = {"caption": DRAWING_SOURCES, "media_root": (str(DRAWINGS),), "quiet": True}
    with auditor.audit(table, folder / "audit", model=model, **options) as audit:
        print(audit.summary())
        comparison = audit.sources()
        print_table(comparison.tabulate(), f"{count:,} drawings")
        print("\n".join([*comparison.lines(), audit.keep(best_caption=True).describe_sources()]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--photos", type=int, default=1000)
    parser.add_argument("--tar", default="flickr8k/val-00000.tar")
    parser.add_argument("--alt-noise", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--drawings", type=int)
    options = parser.parse_args()
    if options.drawings:
        compare_drawings(options.drawings, options.seed)
        return
    table = plant_sources(options.tar, options.photos, options.alt_noise, options.seed)
    audit = audit_sources(table, options.tar)
    choices = list_choices(audit)
    rows = [{"choice": name, **measure_choice(table, chosen)} for name, chosen in choices.items()]
    print_table(rows, f"{options.photos:,} photos of {options.tar}")


if __name__ == "__main__":
    main()
