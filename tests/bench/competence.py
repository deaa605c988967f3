"""Measure on real corpora whether the encoder can judge them, and what an audit then says.

    python -m tests.bench.competence

Flickr8k (as it is, 40% swapped, all permuted, text vectors rotated at random), stamps in three languages and drawings
(tests/bench/found_corpora.py), all with the small photo model: relatedness and separation with standard errors, the
share of pairs that are judged, and the share of them flagged as mismatched. Then photos mixed with drawings: AUROC of
p_mismatch and its mean on the photos that are judged. Writes bench-results/competence.json, and the figure of
docs/method.md: docs/screenshots/competence.svg.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from auditor.console import print_table
from auditor.report.charts import draw_line_figure
from auditor.research.retrieval import analyses
from auditor.score.statistics.competence import SAMPLE, measure_competence, select_distinct, standardize_sides
from auditor.score.statistics.mismatch import fit_mismatch
from auditor.score.statistics.mismatch_statistic import compute_statistic
from auditor.score.statistics.rivals import ReferenceSample, measure_pairs
from auditor.score.statistics.siblings import collect_siblings
from auditor.vectors import Bools, Floats, Ints, MediaVectors
from tests.bench.flickr8k import Photos, load_photos
from tests.bench.found_corpora import load_drawings, load_stamps
from tests.bench.noise import part, spoil

PROJECT = Path(__file__).resolve().parents[2]
RESULTS, FIGURE = PROJECT / "bench-results", PROJECT / "docs" / "screenshots" / "competence.svg"


def reference_of(visual: Floats, text: Floats, captions: Sequence[str], group: Ints, scale: float) -> ReferenceSample:
    media = MediaVectors(np.ascontiguousarray(visual))
    return ReferenceSample(media, text, group, captions, collect_siblings(group, media, text), scale=scale)


def judge(reference: ReferenceSample, languages: Sequence[str] = ()) -> tuple[dict[str, Any], Bools, Floats]:
    """One line of the table, which pairs are judged, and their p_mismatch (NaN elsewhere)."""
    competence = measure_competence(reference, 0, {"language": languages} if languages else None)
    judged = competence.find_judged(reference, {"language": languages} if languages else None)
    p = np.full(len(reference), np.nan, np.float32)
    rows = np.flatnonzero(judged)
    kept = competence.keep_judged(reference, rows)
    model = fit_mismatch(kept, bootstraps=0)
    if model is not None and model.statistic is not None:
        p[rows] = model.p(compute_statistic(model.statistic, kept, measure_pairs(kept, kept)))
    whole = competence.corpus
    assert whole is not None
    return (
        {
            "pairs": len(reference),
            "relatedness": f"{whole.relatedness.value:.2f} ± {whole.relatedness.error:.2f}",
            "separation": f"{whole.separation.value:.1f} ± {whole.separation.error:.1f}",
            "judged": f"{judged.mean():.1%}",
            "flagged": f"{(p >= 0.5).mean():.1%}",
            "share": "no estimate" if model is None else f"{np.nanmean(p):.1%}",
        },
        judged,
        p,
    )


def photo_corpora(photos: Photos) -> dict[str, ReferenceSample]:
    def build(chosen: Photos, text: Floats | None = None) -> ReferenceSample:
        vectors = chosen.text if text is None else text
        return reference_of(chosen.visual[chosen.media], vectors, chosen.captions, chosen.media, chosen.scale)

    generator = np.random.default_rng(0)
    one = part(photos, np.arange(len(photos.keys)), 1)
    rotation = np.linalg.qr(generator.normal(size=(one.text.shape[1],) * 2))[0]
    order = generator.permutation(len(one.text))
    permuted = Photos(one.keys, [one.captions[i] for i in order], one.visual, one.text[order], one.media, one.scale)
    return {
        "Flickr8k": build(one),
        "Flickr8k, 40% swapped": build(spoil(one, "random", 0.4, 0).photos),
        "Flickr8k, all permuted": build(permuted),
        "Flickr8k, text rotated": build(one, np.asarray(one.text @ rotation, np.float32)),
    }


def draw_similarities(corpora: dict[str, ReferenceSample]) -> str:
    """Standardized similarities of pairs and of re-pairings, for each corpus."""
    edges = np.linspace(-4, 8, 49)
    centers = (edges[1:] + edges[:-1]) / 2
    series = {}
    for name, reference in corpora.items():
        rows = select_distinct(reference)[:SAMPLE]
        apart = reference.group[rows][:, None] != reference.group[rows][None]
        similarity = reference.media.take(rows).similarity(reference.text[rows]).astype(np.float64)
        scaled = standardize_sides(similarity, apart)
        for part_name, values in (("re-pairings", scaled[apart]), ("pairs", np.diagonal(scaled))):
            density = np.histogram(values, edges, density=True)[0]
            series[f"{name}: {part_name}"] = list(zip(centers.tolist(), np.sqrt(density).tolist(), strict=True))
    return draw_line_figure("Competence", "similarity, in deviations of re-pairings", "square root of density", series)


def main() -> None:
    shared = Path(__file__).resolve().parents[3] / "shared"
    photos, drawings = load_photos(shared), load_drawings(shared)
    corpora = photo_corpora(photos)
    lines = [{"corpus": name, **judge(reference)[0]} for name, reference in corpora.items()]
    stamps, languages = load_stamps(shared)
    spoken = np.array(languages)
    for chosen in (*np.unique(spoken), "all"):
        rows = np.flatnonzero((spoken == chosen) | (chosen == "all"))
        captions = [stamps.captions[row] for row in rows]
        visual, media = stamps.visual[stamps.media[rows]], stamps.media[rows]
        reference = reference_of(visual, stamps.text[rows], captions, media, stamps.scale)
        lines.append({"corpus": f"stamps, {chosen}", **judge(reference, spoken[rows].tolist())[0]})
    alone = reference_of(drawings.visual, drawings.text, drawings.captions, drawings.media, drawings.scale)
    lines.append({"corpus": "drawings", **judge(alone)[0]})
    FIGURE.write_text(draw_similarities({"photos": corpora["Flickr8k"], "drawings": alone}), encoding="utf-8")
    spoiled = spoil(part(photos, np.arange(len(photos.keys)), 1), "random", 0.2, 0)
    count = len(spoiled.wrong)
    mixed = reference_of(
        np.concatenate([spoiled.photos.visual[spoiled.photos.media], drawings.visual[:1200]]),
        np.concatenate([spoiled.photos.text, drawings.text[:1200]]),
        [*spoiled.photos.captions, *drawings.captions[:1200]],
        np.arange(count + 1200),
        photos.scale,
    )
    line, judged, p = judge(mixed)
    own, wrong = p[:count][judged[:count]], spoiled.wrong[judged[:count]]
    line["share"] = f"AUROC {analyses.compute_auroc(own, wrong):.3f}, mean {own.mean():.3f} of {wrong.mean():.3f}"
    lines.append({"corpus": f"photos ({judged[:count].mean():.0%} judged) and drawings", **line})
    print_table(lines)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "competence.json").write_text(json.dumps(lines, indent=1))


if __name__ == "__main__":
    main()
