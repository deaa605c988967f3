"""Compare one calibration for all pairs with one for each group, on groups that the encoder sees unequally.

    python -m tests.bench.calibration_groups [--part tune|report] [--kinds cipher offset ...] [--small] [--stamps]

Half of the photos of Flickr8k have captions in a cipher of English, which the small model cannot read, or with rarer
synonyms, which it reads worse; or their stored vectors have another geometry. Then 0 to 40% of the captions are
swapped, within the groups or across them. For each group: false mismatches (sound pairs with p of 0.5 or more; "best":
those of the cut that errs least, which needs the truth), AUROC and the error of the estimated share, calibrated
together and by groups (`auto`). `--small`: groups of 30 to 250 pairs.
`--stamps`: pictures of Debian's tuxpaint-stamps-default (TUXPAINT_STAMPS names another folder) with captions in
English and in languages that the model has never seen. Settings were chosen on the 500 photos of `tune`; the others are
reported. Keeps its figures in bench-results/calibration_groups/, so that it goes on where it was interrupted.
"""

import argparse
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from auditor.console import print_table
from auditor.score.calibration_groups import REST, fit_groups
from auditor.score.score_config import AUTO, BY_KIND
from auditor.score.statistics.competence import measure_competence
from auditor.score.statistics.mismatch import MismatchModel, fit_mismatch
from auditor.score.statistics.mismatch_statistic import compute_statistic
from auditor.score.statistics.rivals import ReferenceSample, measure_pairs
from auditor.sweep.languages import detect_languages
from auditor.vectors import Bools, Floats, Ints
from tests.bench.competence import reference_of
from tests.bench.flickr8k import CACHE, Photos, encoder, load_photos
from tests.bench.found_corpora import load_stamps
from tests.bench.mismatch_flickr8k import auroc

RESULTS = Path(__file__).resolve().parents[2] / "bench-results"
PARTS = {"tune": ("human/photos-00000.tar", 500), "report": ("flickr8k/val-00000.tar", 1000)}
LANGUAGES, GEOMETRIES = ("cipher", "synonyms"), ("offset", "gap", "cone", "rotation", "noise")
SIZES, SEEDS = (30, 60, 120, 250), (0, 1)
SWAPS = ((0.0, False), *((rate, across) for rate in (0.1, 0.2, 0.4) for across in (False, True)))
CIPHER = str.maketrans("abcdefghijklmnopqrstuvwxyz", "qwertyuiopasdfghjklzxcvbnm")
SYNONYMS = dict(
    re.findall(
        r"(\w+):(\w+)",
        "man:gentleman men:gentlemen woman:lady women:ladies boy:lad boys:lads girl:lass girls:lasses dog:hound "
        "dogs:hounds child:youngster children:youngsters people:folks person:individual water:liquid red:crimson "
        "brown:chestnut black:ebony white:ivory blue:azure green:emerald yellow:golden running:dashing runs:dashes "
        "jumping:bounding jumps:bounds playing:frolicking ball:orb shirt:blouse grass:lawn snow:powder beach:seashore "
        "field:meadow street:avenue bike:cycle bicycle:cycle mouth:jaws pool:lagoon jacket:parka mountain:peak "
        "ocean:sea building:structure little:tiny young:youthful large:huge small:petite standing:upright "
        "sitting:seated walking:strolling holding:gripping crowd:throng rock:boulder hat:headgear player:athlete "
        "soccer:footy toy:plaything stick:twig wall:barrier hill:mound",
    )
)


@dataclass(frozen=True)
class Corpus:
    """Photos with one group of pairs that differs from the others."""

    reference: ReferenceSample
    second: Bools  # (P,) rows of the group
    wrong: Bools

    @property
    def names(self) -> list[str | None]:
        return ["second" if row else "first" for row in self.second]


def translate(caption: str, kind: str) -> str:
    if kind == "cipher":
        return caption.lower().translate(CIPHER)
    return re.sub(r"[a-z]+", lambda word: SYNONYMS.get(word[0], word[0]), caption.lower())


def encode_translations(shared: Path, photos: Photos, kind: str) -> Floats:
    cached = CACHE / f"{kind}-{len(photos.captions)}-{photos.keys[0]}.npy"
    if not cached.exists():
        np.save(cached, encoder(shared)([translate(caption, kind) for caption in photos.captions]))
    return np.asarray(np.load(cached))


def unit(rows: npt.NDArray[Any]) -> Floats:
    return np.asarray(rows / np.linalg.norm(rows, axis=-1, keepdims=True), np.float32)


def bend(visual: Floats, text: Floats, kind: str) -> tuple[Floats, Floats]:
    """The vectors in another geometry."""
    generator = np.random.default_rng(99)
    direction = unit(generator.normal(size=visual.shape[1]))
    if kind == "offset":  # of the captions alone
        return visual, unit(text + 0.7 * direction)
    if kind == "gap":  # media and captions apart
        return unit(visual + direction), unit(text - direction)
    if kind == "cone":  # all close together
        return unit(visual + direction), unit(text + direction)
    if kind == "rotation":  # another space
        rotation = np.linalg.qr(generator.normal(size=(visual.shape[1],) * 2))[0]
        return unit(visual @ rotation), unit(text @ rotation)
    return visual, unit(text + unit(generator.normal(size=text.shape)))  # noise: a worse encoder


def build(shared: Path, photos: Photos, kind: str, captions: int, seed: int, size: int | None = None) -> Corpus:
    """Photos with this many captions each; the second group is changed: half of the photos, or `size` pairs."""
    generator = np.random.default_rng([seed, 5])
    count = len(photos.keys)
    rows = np.concatenate([generator.permutation(np.flatnonzero(photos.media == m))[:captions] for m in range(count)])
    is_second = np.zeros(count, bool)
    is_second[generator.permutation(count)[: count // 2 if size is None else size // captions]] = True
    media = photos.media[rows]
    second, texts = is_second[media], [photos.captions[row] for row in rows]
    visual, text = photos.visual[media].copy(), photos.text[rows].copy()
    if kind in LANGUAGES:
        text[second] = encode_translations(shared, photos, kind)[rows][second]
        texts = [translate(text, kind) if other else text for text, other in zip(texts, second, strict=True)]
    elif kind != "none":
        visual[second], text[second] = bend(visual[second], text[second], kind)
    reference = reference_of(visual, text, texts, media, photos.scale)
    return Corpus(reference, second, np.zeros(len(rows), bool))


def swap(corpus: Corpus, kind: str, rate: float, across: bool, seed: int) -> Corpus:
    """Swap captions. A language moves with the caption; other groups are those of the media."""
    generator = np.random.default_rng([seed, 9])
    reference, source = corpus.reference, np.arange(len(corpus.second))
    pools = [source] if across else [np.flatnonzero(corpus.second == group) for group in (False, True)]
    for pool in pools:
        chosen = generator.permutation(pool)[: round(rate * len(pool))]
        source[chosen] = np.roll(chosen, 1)
    texts = [reference.captions[row] for row in source]
    swapped = reference_of(reference.visual, reference.text[source], texts, reference.group, reference.scale)
    second = corpus.second[source] if kind in LANGUAGES else corpus.second
    return Corpus(swapped, second, reference.group[source] != reference.group)


def estimate(
    corpus: Corpus, columns: dict[str, list[str | None]], calibrate_by: str
) -> tuple[Floats, Floats, dict[str, Ints]]:
    """p and score of each pair (NaN: no estimate) and the rows of each calibration, as an audit computes them."""
    reference = corpus.reference
    competence = measure_competence(reference, 0, columns)
    rows = np.flatnonzero(competence.find_judged(reference, columns))
    sample = competence.keep_judged(reference, rows)

    def fit(chosen: ReferenceSample) -> MismatchModel | None:
        return fit_mismatch(chosen, captions=len(chosen), bootstraps=0)

    values = {name: [column[row] for row in rows] for name, column in columns.items()}
    groups = fit_groups(sample, values, calibrate_by, fit)
    p, score = np.full((2, len(reference)), np.nan, np.float32)
    names = np.array(values[groups.column] if groups.column else [REST] * len(rows), object)
    members = {}
    for name, part in groups.calibrations.items():
        is_member = ~np.isin(names, list(groups.calibrations)) if name == REST else names == name
        chosen = np.flatnonzero(is_member | (names == name))
        members[name] = rows[chosen]
        if len(chosen) and part.mismatch is not None and part.mismatch.statistic is not None:
            pairs = part.prepare(sample.take(chosen))
            score[rows[chosen]] = compute_statistic(
                part.mismatch.statistic, pairs, measure_pairs(pairs, part.reference)
            )
            p[rows[chosen]] = part.mismatch.p(score[rows[chosen]])
    return p, score, members


def find_best_cut(score: Floats, wrong: Bools) -> float:
    """The share of the sound pairs below the cut that errs least."""
    sound = np.append(0, np.cumsum(~wrong[np.argsort(score, kind="stable")]))
    return float(sound[(2 * sound - np.arange(len(sound))).argmin()] / max(1, sound[-1]))


def measure(corpus: Corpus, label: dict[str, Any], with_names: bool = True) -> Iterator[dict[str, Any]]:
    """A line for each group: together and by groups."""
    columns = {"language": corpus.names if with_names else detect_languages(corpus.reference.captions)}
    together, apart = (estimate(corpus, columns, by) for by in (BY_KIND, AUTO))
    for name, rows in (("first", np.flatnonzero(~corpus.second)), ("second", np.flatnonzero(corpus.second))):
        line = {**label, "group": name, "pairs": len(rows), "alone": name in apart[2]}
        for title, (p, score, _) in (("together", together), ("groups", apart)):
            judged = rows[~np.isnan(p[rows])]
            wrong = corpus.wrong[judged]
            line[f"judged {title}"] = len(judged) / len(rows)
            line[f"false {title}"] = float((p[judged[~wrong]] >= 0.5).sum() / max(1, (~corpus.wrong[rows]).sum()))
            line[f"auroc {title}"] = (
                auroc(score[judged].astype(float), wrong) if 0 < wrong.sum() < len(wrong) else np.nan
            )
            line[f"best {title}"] = find_best_cut(score[judged], wrong)
            line[f"share {title}"] = float(p[judged].mean() - wrong.mean()) if len(judged) else np.nan
        yield line


def summarize(lines: Sequence[dict[str, Any]], keys: Sequence[str]) -> list[dict[str, Any]]:
    """Mean (and worst) figures of the lines that are equal in `keys`."""
    rows = []
    for value in dict.fromkeys(tuple(line[key] for key in keys) for line in lines):
        same = [line for line in lines if tuple(line[key] for key in keys) == value]
        row = dict(zip(keys, value, strict=True)) | {"alone": f"{np.mean([line['alone'] for line in same]):.0%}"}
        for title in ("together", "groups"):
            false, judged, area, best = (
                [line[f"{name} {title}"] for line in same] for name in ("false", "judged", "auroc", "best")
            )
            off = np.abs([line[f"share {title}"] for line in same])
            row[f"judged {title}"] = f"{np.mean(judged):.0%}"
            row[f"false {title}"] = f"{np.mean(false):.1%} ({np.max(false):.1%})"
            row[f"best {title}"] = f"{np.mean(best):.1%}"
            row[f"AUROC {title}"] = "" if np.isnan(area).all() else f"{np.nanmean(area):.4f}"
            row[f"share off {title}"] = "" if np.isnan(off).all() else f"{np.nanmean(off):.3f}"
        gains = [line["auroc groups"] - line["auroc together"] for line in same]
        row["worst gain"] = "" if np.isnan(gains).all() else f"{np.nanmin(gains):+.4f}"
        rows.append(row)
    return rows


def measure_stamps(shared: Path, step: int) -> list[dict[str, Any]]:
    """For each language of the stamps: the share of its pairs that are judged and called mismatched."""
    stamps, languages = load_stamps(
        shared, ("en", "de", "fr", "es", "it", "pl", "tr", "vi", "ja", "el", "ru", "ar"), step
    )
    reference = reference_of(stamps.visual[stamps.media], stamps.text, stamps.captions, stamps.media, stamps.scale)
    spoken, detected = np.array(languages), detect_languages(stamps.captions)
    corpus = Corpus(reference, spoken != "en", np.zeros(len(spoken), bool))
    lines = []
    columns: dict[str, dict[str, list[str | None]]] = {
        "named": {"language": list(languages)},
        "detected": {"language": detected},
    }
    results = {title: estimate(corpus, values, AUTO)[0] for title, values in columns.items()}
    for language in dict.fromkeys(languages):
        rows = spoken == language
        line: dict[str, Any] = {"language": language, "pairs": int(rows.sum())}
        for title, p in results.items():
            line[f"no estimate, {title}"] = f"{np.isnan(p[rows]).mean():.1%}"
            line[f"called mismatched, {title}"] = f"{(p[rows] >= 0.5).mean():.1%}"
        lines.append(line)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", choices=PARTS, default="report")
    parser.add_argument("--kinds", nargs="+", default=[*LANGUAGES, *GEOMETRIES, "none"])
    parser.add_argument("--captions", nargs="+", type=int, default=[1, 5])
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--rates", nargs="+", type=float, default=sorted({rate for rate, _ in SWAPS}))
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--stamps", action="store_true")
    parser.add_argument("--step", type=int, default=1, help="take every step-th picture of the stamps")
    options = parser.parse_args()
    shared = Path(__file__).resolve().parents[3] / "shared"
    if options.stamps:
        print_table(measure_stamps(shared, options.step))
        return
    tar, limit = PARTS[options.part]
    photos = load_photos(shared, limit, tar)
    lines = []
    sizes = SIZES if options.small else (None,)
    for kind, captions, size, seed, (rate, across) in product(
        options.kinds, options.captions, sizes, options.seeds, SWAPS
    ):
        if rate not in options.rates:
            continue
        label = {"part": options.part, "kind": kind, "captions": captions, "size": size, "seed": seed, "rate": rate}
        label["swaps"] = "none" if not rate else "across" if across else "within"
        file = RESULTS / "calibration_groups" / ("-".join(map(str, label.values())) + ".json")
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            corpus = swap(build(shared, photos, kind, captions, seed, size), kind, rate, across, seed)
            file.write_text(json.dumps(list(measure(corpus, label))))
        lines += [line for line in json.loads(file.read_text()) if size is None or line["group"] == "second"]
    print_table(summarize(lines, ["kind", "captions", "size" if options.small else "swaps", "group"]))


if __name__ == "__main__":
    main()
