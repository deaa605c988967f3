"""Compare measures of ambiguity: PAU's u, mean similarity h, and how much of the corpus fits.

    python -m tests.bench.ambiguity_flickr8k

On the validation photos of Flickr8k: recall at 1 after removing the most ambiguous share (and the area under that
curve), how well each measure separates captions cut to their first noun phrase ("A man") from whole ones, and the flags
for corpora with no, few and many vague captions. Writes bench-results/ambiguity_flickr8k.json.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from auditor.console import print_table
from auditor.score.statistics.ambiguity import AmbiguityScale, compute_absolute_thresholds, measure_vagueness
from auditor.score.statistics.rivals import PairEmbeddings, PairMeasures, ReferenceSample, measure_pairs
from auditor.score.statistics.word_evidence import WordFrequencies
from auditor.vectors import Floats, Ints, MediaVectors
from tests.bench.flickr8k import Encode, Photos, encoder, first_noun_phrase, load_photos, nouns
from tests.bench.mismatch_flickr8k import auroc

RESULTS = Path(__file__).resolve().parents[2] / "bench-results"
SHARES = np.arange(0, 95, 5) / 100
Hits = npt.NDArray[np.bool_]


def recall_curve(hit: Hits, ambiguity: Floats) -> list[float]:
    """Recall at 1 after removing the most ambiguous share."""
    order = np.argsort(ambiguity, kind="stable")
    return [float(hit[order[: round(len(hit) * (1 - share))]].mean()) for share in SHARES]


def first_hits(photos: Photos) -> tuple[Hits, Hits]:
    """Whether each photo ranks one of its captions first, and each caption its photo (in the whole gallery)."""
    similarity = MediaVectors(photos.visual).similarity(photos.text)
    of_photo = photos.media[similarity.argmax(axis=1)] == np.arange(len(photos.visual))
    of_caption = similarity.argmax(axis=0) == photos.media
    return of_photo, of_caption


def uncertainties(photos: Photos, text: Floats, captions: Sequence[str]) -> tuple[Floats, Floats]:
    """u of every photo and of these captions, by prototypes fitted on this corpus as the product does."""
    import torch

    from model.fit_prototypes import fit_prototypes
    from model.prototypes import HeadConfig
    from model.retrieval_target import FitPairs

    visual, words = photos.visual[photos.media], measure_vagueness(captions, photos.media)
    groups, vagueness = torch.from_numpy(photos.media), torch.from_numpy(words)
    pairs = FitPairs(torch.from_numpy(visual), torch.from_numpy(text), groups=groups, vagueness=vagueness)
    config = HeadConfig(dim=visual.shape[1], prototypes=64, clip_evidence="frames")
    head = fit_prototypes(pairs, config, target="retrieval", logit_scale=photos.scale)
    with torch.inference_mode():
        return head.uncertainty_visual(torch.from_numpy(photos.visual)).numpy(), head.uncertainty_text(
            pairs.text
        ).numpy()


def compared(photos: Photos, encode: Encode) -> dict[str, Any]:
    reference = ReferenceSample(
        MediaVectors(photos.visual[photos.media]), photos.text, photos.media, scale=photos.scale
    )
    found = against(reference, photos.text, photos)
    one = np.unique(photos.media, return_index=True)[1]  # one row per photo
    known = nouns(photos.captions)
    short = [first_noun_phrase(caption, known) for caption in photos.captions]
    cut = np.array([i for i, caption in enumerate(short) if caption], np.int64)
    vague_text = encode([short[i] or "" for i in cut])
    spoiled = photos.text.copy()
    spoiled[cut] = vague_text
    vague = against(reference, spoiled, photos)
    u_visual, u_text = uncertainties(photos, photos.text, photos.captions)
    # A head standardizes u over its corpus: whole and cut captions are compared in a corpus that has both.
    doubled = replace(photos, media=np.tile(photos.media, 2))
    words = [cut or whole for cut, whole in zip(short, photos.captions, strict=True)]
    u_both = uncertainties(doubled, np.concatenate([photos.text, spoiled]), [*photos.captions, *words])[1]
    u_whole, u_vague = u_both[: len(spoiled)], u_both[len(spoiled) :]
    photo_hit, caption_hit = first_hits(photos)
    frequencies = WordFrequencies.count(photos.captions)
    whole, less = (
        frequencies.bits([shorter or caption for shorter, caption in zip(some, photos.captions, strict=True)])
        for some in ([None] * len(short), short)
    )
    scale = AmbiguityScale.fit(found, whole)
    predictors: dict[str, tuple[Floats, ...]] = {
        "u (PAU)": (u_visual, u_text, u_vague, u_whole),
        "h (mean similarity)": (
            found.mean_similarity_visual[one],
            found.mean_similarity_text,
            vague.mean_similarity_text,
        ),
        "matches": (found.matches_visual[one], found.matches_text, vague.matches_text),
        "ambiguity": (
            scale.score_media(found)[one],
            scale.score_captions(found, whole),
            scale.score_captions(vague, less),
        ),
    }
    rows = []
    for name, (visual, text, cut_text, *whole_text) in predictors.items():
        compared_text = whole_text[0] if whole_text else text
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
                # probability that a cut caption is more ambiguous than a whole one
                "cut captions AUROC": auroc(
                    -np.concatenate([compared_text[cut], cut_text[cut]]).astype(np.float64),
                    np.repeat([False, True], len(cut)),
                ),
                "raised by cutting": float((cut_text[cut] > compared_text[cut]).mean()),
            }
        )
    return {
        "rows": rows,
        "shares": SHARES.tolist(),
        "flags": [flagged(photos, one) for one in corpora(photos, short, cut, encode)],
    }


def against(reference: ReferenceSample, text: Floats, photos: Photos) -> PairMeasures:
    pairs = PairEmbeddings(reference.media, text, reference.group)
    return measure_pairs(pairs, reference, media=len(photos.visual), captions=len(text))


@dataclass(frozen=True)
class Corpus:
    """The photos with some captions made vague."""

    name: str
    captions: list[str]
    text: Floats
    vague: Hits


def corpora(photos: Photos, short: Sequence[str | None], cut: Ints, encode: Encode) -> Iterator[Corpus]:
    """Unchanged; with captions cut to their first noun phrase; with three in four that say nothing."""
    generator = np.random.default_rng(0)
    for rate in (0.0, 0.05, 0.2):
        chosen = generator.choice(cut, round(rate * len(photos.text)), replace=False)
        words = {int(i): short[i] or "" for i in chosen}
        yield made_vague(f"{rate:.0%} cut", photos, words, encode)
    for phrase in ("a photo of something", "image", "A man"):
        chosen = np.flatnonzero(generator.random(len(photos.text)) < 0.75)
        yield made_vague(f"75% {phrase!r}", photos, dict.fromkeys(chosen.tolist(), phrase), encode)


def made_vague(name: str, photos: Photos, words: dict[int, str], encode: Encode) -> Corpus:
    text, vague = photos.text.copy(), np.zeros(len(photos.text), bool)
    if words:
        kinds = sorted(set(words.values()))
        known = dict(zip(kinds, encode(kinds), strict=True))
        text[list(words)] = [known[word] for word in words.values()]
        vague[list(words)] = True
    return Corpus(name, [words.get(i, caption) for i, caption in enumerate(photos.captions)], text, vague)


def flagged(photos: Photos, corpus: Corpus) -> dict[str, Any]:
    """The flags of a corpus, and for comparison the top 5%."""
    reference = ReferenceSample(
        MediaVectors(photos.visual[photos.media]), corpus.text, photos.media, scale=photos.scale
    )
    found = against(reference, corpus.text, photos)
    cuts = compute_absolute_thresholds({"image": len(photos.visual)}, {"image": len(corpus.text)})
    by_words = WordFrequencies.count(corpus.captions).share(corpus.captions) >= cuts["caption_share"]
    flag = by_words | (found.matches_text >= cuts["ambiguous_text"])
    top = found.matches_text >= np.quantile(found.matches_text, 0.95)
    vague, sound = corpus.vague, ~corpus.vague
    return {
        "corpus": corpus.name,
        "vague": float(vague.mean()),
        "flagged": float(flag.mean()),
        "of the vague": float(flag[vague].mean()) if vague.any() else None,
        "of the others": float(flag[sound].mean()),
        "of the vague, top 5%": float(top[vague].mean()) if vague.any() else None,
        "photos flagged": float((found.matches_visual >= cuts["ambiguous_visual"]).mean()),
    }


def main() -> None:
    from tests.conftest import SHARED

    photos = load_photos(SHARED)
    results = compared(photos, encoder(SHARED))
    print_table(results["rows"])
    print_table(results["flags"])
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "ambiguity_flickr8k.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
