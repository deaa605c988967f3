"""Which number says that a caption or photo is ambiguous: PAU's u, mean similarity h, or how much of the corpus fits.

    python -m tests.bench.ambiguity_flickr8k

On the validation photos of Flickr8k: recall at 1 of what is left when the most ambiguous share is removed (and the area
under that curve), how well each tells captions cut to their first noun phrase ("A man") from whole ones, and what a
default threshold would flag. Writes bench-results/ambiguity_flickr8k.json.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from auditor.console import table
from auditor.measure.ambiguity import OUTLYING
from auditor.measure.rivals import Measures, Reference, measure
from auditor.vectors import Floats, MediaVectors
from tests.bench.flickr8k import Encode, Photos, encoder, first_noun_phrase, load_photos, nouns
from tests.bench.mismatch_flickr8k import auroc

RESULTS = Path(__file__).resolve().parents[2] / "bench-results"
SHARES = np.arange(0, 95, 5) / 100
Hits = npt.NDArray[np.bool_]


def fence(matches: npt.NDArray[np.float32]) -> float:
    """Tukey's fence on the logarithm, beside the share that the flags go by."""
    low, high = np.quantile(np.log(np.maximum(matches, 1e-9)), [0.25, 0.75])
    return float(np.exp(high + 1.5 * (high - low)))


def recall_curve(hit: Hits, ambiguity: Floats) -> list[float]:
    """Recall at 1 of what is left when the most ambiguous share is removed."""
    order = np.argsort(ambiguity, kind="stable")
    return [float(hit[order[: round(len(hit) * (1 - share))]].mean()) for share in SHARES]


def first_hits(photos: Photos) -> tuple[Hits, Hits]:
    """Whether each photo finds one of its captions first, and each caption its photo (all photos and captions kept)."""
    similarity = MediaVectors(photos.visual).similarity(photos.text)
    of_photo = photos.media[similarity.argmax(axis=1)] == np.arange(len(photos.visual))
    of_caption = similarity.argmax(axis=0) == photos.media
    return of_photo, of_caption


def uncertainties(photos: Photos, text: Floats) -> tuple[Floats, Floats]:
    """u of every photo and of the given captions, by prototypes fitted on the corpus as the product does."""
    import torch

    from model.fit import fit_prototypes
    from model.prototypes import HeadConfig

    head = fit_prototypes(
        torch.from_numpy(photos.visual),
        torch.from_numpy(photos.text),
        HeadConfig(dim=photos.visual.shape[1]),
        seed=0,
    )
    with torch.inference_mode():
        return (
            head.uncertainty_visual(torch.from_numpy(photos.visual)).numpy(),
            head.uncertainty_text(torch.from_numpy(text)).numpy(),
        )


def compared(photos: Photos, encode: Encode) -> dict[str, Any]:
    reference = Reference(MediaVectors(photos.visual[photos.media]), photos.text, photos.media, photos.scale)
    found = against(reference, photos.text, photos)
    one = np.unique(photos.media, return_index=True)[1]  # a row of each photo
    known = nouns(photos.captions)
    short = [first_noun_phrase(caption, known) for caption in photos.captions]
    cut = np.array([i for i, caption in enumerate(short) if caption], np.int64)
    vague_text = encode([short[i] or "" for i in cut])
    spoiled = photos.text.copy()
    spoiled[cut] = vague_text
    vague = against(reference, spoiled, photos)
    u_visual, u_text = uncertainties(photos, photos.text)
    u_vague = uncertainties(photos, spoiled)[1]
    photo_hit, caption_hit = first_hits(photos)
    predictors = {
        "u (PAU)": (u_visual, u_text, u_vague),
        "h (mean similarity)": (
            found.mean_similarity_visual[one],
            found.mean_similarity_text,
            vague.mean_similarity_text,
        ),
        "matches": (found.matches_visual[one], found.matches_text, vague.matches_text),
    }
    rows = []
    for name, (visual, text, cut_text) in predictors.items():
        by_text, by_visual = recall_curve(caption_hit, text), recall_curve(photo_hit, visual)
        rows.append(
            {
                "predictor": name,
                "t2i R@1 all": by_text[0],
                "t2i half removed": by_text[10],
                "t2i area": float(np.mean(by_text)),
                "i2t R@1 all": by_visual[0],
                "i2t half removed": by_visual[10],
                "i2t area": float(np.mean(by_visual)),
                # how often a cut caption is more ambiguous than a whole one
                "cut captions AUROC": auroc(
                    -np.concatenate([text[cut], cut_text[cut]]).astype(np.float64),
                    np.repeat([False, True], len(cut)),
                ),
                "raised by cutting": float((cut_text[cut] > text[cut]).mean()),
            }
        )
    return {"rows": rows, "shares": SHARES.tolist(), "thresholds": flagged(photos, reference, spoiled, cut, found)}


def against(reference: Reference, text: Floats, photos: Photos) -> Measures:
    return measure(
        MediaVectors(reference.visual), text, reference.group, reference, media=len(photos.visual), captions=len(text)
    )


def flagged(photos: Photos, reference: Reference, spoiled: Floats, cut: Any, found: Measures) -> list[dict[str, Any]]:
    """What default thresholds flag when 0, 5 or 20% of the captions are cut to their first noun phrase."""
    rows = []
    for rate in (0.0, 0.05, 0.2):
        chosen = np.random.default_rng(0).choice(cut, round(rate * len(reference)), replace=False)
        text = reference.text.copy()
        text[chosen] = spoiled[chosen]
        vague = np.zeros(len(text), bool)
        vague[chosen] = True
        mixed = Reference(reference.media, text, reference.group, reference.scale)
        matches = against(mixed, text, photos).matches_text
        rules = {
            f"top {1 - OUTLYING:.0%}": float(np.quantile(matches, OUTLYING)),
            "5% of the corpus": 0.05 * len(photos.visual),
            "10% of the corpus": 0.10 * len(photos.visual),
            "fence": fence(matches),
        }
        for name, threshold in rules.items():
            flag = matches >= threshold
            rows.append(
                {
                    "cut captions": rate,
                    "rule": name,
                    "threshold": threshold,
                    "flagged": float(flag.mean()),
                    "precision": float(vague[flag].mean()) if flag.any() else 0.0,
                    "recall": float(flag[vague].mean()) if vague.any() else 0.0,
                }
            )
    return rows


def main() -> None:
    from tests.conftest import SHARED

    photos = load_photos(SHARED)
    results = compared(photos, encoder(SHARED))
    table(results["rows"])
    table(results["thresholds"])
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "ambiguity_flickr8k.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
