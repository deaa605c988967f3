"""Compare the mismatch statistic with people's judgments of Flickr8k photos and captions (crowd and experts).

    python -m tests.bench.human

Retrieval systems proposed the pairs, so the wrong captions are related ones; pairs of a photo and its own caption are
excluded. Each photo belongs to one of two halves: settings were chosen on the first, the second is reported.
`agreement`: judged pairs within a corpus of the photos with one other caption each, and with all four others of the
photo as siblings. `audit`: a corpus of judged pairs, half of them mismatched according to people. Writes
bench-results/human.json.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import kendalltau

from auditor.console import print_table
from auditor.score.statistics.mismatch import fit_mismatch
from auditor.score.statistics.mismatch_statistic import compute_statistic
from auditor.score.statistics.rivals import ReferenceSample, measure_pairs
from auditor.score.statistics.siblings import Siblings, collect_siblings
from auditor.score.statistics.word_evidence import Vocabulary, WordFrequencies, encode_words
from auditor.vectors import Ints, MediaVectors
from tests.bench.flickr8k import Photos, encoder, load_photos
from tests.bench.mismatch_flickr8k import OWN, auroc, lemon_of, normalize_distribution
from tests.bench.noise import halves

TAR = "human/photos-00000.tar"
RESULTS = Path(__file__).resolve().parents[2] / "bench-results"
SEEDS = (0, 1)
ASKED = 2  # index of the caption of each photo that people judged
Doubles = npt.NDArray[np.float64]
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Opinions:
    """People's judgments of pairs (photo, caption), without pairs of a photo and its own caption."""

    photo: Ints  # (N,)
    caption: Ints  # (N,) row of the caption
    said: npt.NDArray[np.float64]  # (N, G) share of the crowd that says it fits (G = 1), or the experts' grades 1 to 4

    def take(self, rows: npt.NDArray[Any]) -> "Opinions":
        return Opinions(self.photo[rows], self.caption[rows], self.said[rows])

    def of(self, photos: Ints) -> "Opinions":
        """The judgments about some photos."""
        return self.take(np.isin(self.photo, photos))

    @property
    def fits(self) -> Doubles:
        return self.said[:, 0]


def read_opinions(shared: Path, photos: Photos, name: str) -> Opinions:
    """Read crowd.tsv or expert.tsv, by rows of the photos and captions."""
    place = {key: row for row, key in enumerate(photos.keys)}
    first = np.searchsorted(photos.media, np.arange(len(photos.keys)))
    rows = [line.split("\t") for line in (shared / "data" / "human" / f"{name}.tsv").read_text().splitlines()]
    captions = [row[1].split(".jpg#") for row in rows]
    found = Opinions(
        np.array([place[row[0].removesuffix(".jpg")] for row in rows], np.int64),
        np.array([first[place[key]] + int(number) for key, number in captions], np.int64),
        np.array([[float(value) for value in row[2 : 3 if name == "crowd" else 5]] for row in rows]),
    )
    return found.take(photos.media[found.caption] != found.photo)


def kendall(x: Doubles, y: Doubles, variant: str) -> float:
    """Kendall's tau b or c, times 100."""
    return 100 * float(kendalltau(x, y, variant=variant).statistic)


def clear(crowd: Opinions) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Pairs that nobody or most people say fit, and which of them nobody does."""
    known = (crowd.fits == 0) | (crowd.fits > 0.5)
    return known, crowd.fits[known] == 0


def others(photos: Photos, chosen: Ints, captions: int, seed: int) -> list[int]:
    """Rows of this many captions of each photo that nobody judged."""
    generator = np.random.default_rng(seed)
    rows: list[int] = []
    for photo in chosen:
        own = np.flatnonzero(photos.media == photo)
        rows += sorted(generator.choice(np.delete(own, ASKED), captions, replace=False).tolist())
    return rows


def corpus_of(photos: Photos, photo: Ints, caption: Ints) -> ReferenceSample:
    """A corpus of pairs; captions of one photo are siblings."""
    media, text = MediaVectors(photos.visual[photo]), photos.text[caption]
    siblings = collect_siblings(photo, media, text)
    return ReferenceSample(media, text, photo, [photos.captions[row] for row in caption], siblings, scale=photos.scale)


def with_siblings(photos: Photos, pairs: ReferenceSample) -> ReferenceSample:
    """Judged pairs with the other captions of their photos."""
    own = np.array(others(photos, np.arange(len(photos.keys)), 4, 0))
    text = photos.text[own]
    similarity = np.einsum("nd,nd->n", photos.visual[photos.media[own]], text)
    owner = np.repeat(np.arange(len(pairs)), 4)
    row = (pairs.group[:, None] * 4 + np.arange(4)).ravel()
    return replace(pairs, siblings=Siblings(owner, row, text, similarity))


def statistics(corpus: ReferenceSample, pairs: ReferenceSample, words: Vocabulary, seed: int) -> dict[str, Doubles]:
    """Each method's score of pairs within a corpus; low is suspicious."""
    found = measure_pairs(pairs, corpus)
    scores = {"cosine": found.similarity, "LEMoN": lemon_of(pairs, corpus), "rival margin": found.rival_margin}
    scores |= {"negCLIPLoss": found.similarity_normalised}
    scores |= {"Distribution Normalization": normalize_distribution(pairs, corpus)}
    for name, known in (("auditor without words", None), (OWN, words)):
        model = fit_mismatch(corpus, seed=seed, words=known)
        assert model is not None and model.statistic is not None
        scores[name] = compute_statistic(model.statistic, pairs, found)
    return {name: np.asarray(score, np.float64) for name, score in scores.items()}


def agreement(photos: Photos, crowd: Opinions, expert: Opinions, words: Vocabulary, captions: int) -> Rows:
    """AUROC and tau-b of the crowd, tau-c of the experts' single grades: means over corpora."""
    found: dict[str, list[list[float]]] = {}
    for seed in SEEDS:
        rows = np.array(others(photos, np.arange(len(photos.keys)), captions, seed))
        corpus = corpus_of(photos, photos.media[rows], rows)
        scores = []
        for opinions in (crowd, expert):
            pairs = replace(corpus_of(photos, opinions.photo, opinions.caption), siblings=None)
            pairs = pairs if captions == 1 else with_siblings(photos, pairs)
            scores.append(statistics(corpus, pairs, words, seed))
        known, wrong = clear(crowd)
        for name in scores[0]:
            by_crowd, by_experts = scores[0][name], np.repeat(scores[1][name], expert.said.shape[1])
            taus = kendall(by_crowd, crowd.fits, "b"), kendall(by_experts, expert.said.ravel(), "c")
            found.setdefault(name, []).append([auroc(by_crowd[known], wrong), *taus])
    names = ("auroc", "crowd tau-b", "expert tau-c")
    return [
        {"captions": captions, "method": name, **dict(zip(names, np.mean(all_, axis=0).tolist(), strict=True))}
        for name, all_ in found.items()
    ]


def even_half(photo: Ints, wrong: npt.NDArray[np.bool_], alone: bool, generator: np.random.Generator) -> Ints:
    """A random draw of as many wrong pairs as right ones; with `alone`, one caption per photo."""
    order = generator.permutation(len(wrong))
    right, bad = order[~wrong[order]], order[wrong[order]]
    if alone:
        right = right[np.unique(photo[right], return_index=True)[1]]
        bad = bad[~np.isin(photo[bad], photo[right])]
        bad = generator.permutation(bad[np.unique(photo[bad], return_index=True)[1]])
    count = min(len(right), len(bad))
    return np.sort(np.concatenate([generator.permutation(right)[:count], bad[:count]]))


def audits(photos: Photos, crowd: Opinions, words: Vocabulary, captions: int | None) -> Rows:
    """A corpus of judged pairs, half of them wrong: with all captions of a photo, or with one."""
    known, wrong = clear(crowd)
    photo, caption = crowd.photo[known], crowd.caption[known]
    found: dict[str, list[list[float]]] = {}
    for seed in SEEDS:
        rows = even_half(photo, wrong, captions is not None, np.random.default_rng(seed))
        corpus = corpus_of(photos, photo[rows], caption[rows])
        model = fit_mismatch(corpus, seed=seed, words=words)
        assert model is not None
        for name, score in statistics(corpus, corpus, words, seed).items():
            share = model.pi0 if name == OWN else np.nan
            found.setdefault(name, []).append([len(rows), auroc(score, wrong[rows]), wrong[rows].mean(), share])
    names = ("pairs", "auroc", "people say", "at least")
    return [
        {"captions": captions or "all", "method": name, **dict(zip(names, np.mean(all_, axis=0).tolist(), strict=True))}
        for name, all_ in found.items()
    ]


def main() -> None:
    from tests.conftest import SHARED

    photos = load_photos(SHARED, 500, TAR)
    crowd, expert = (read_opinions(SHARED, photos, name) for name in ("crowd", "expert"))
    words = encode_words(WordFrequencies.count(photos.captions).informative_words(), encoder(SHARED))
    results: dict[str, Rows] = {"agreement": [], "audit": []}
    for half, chosen in zip(("tuned on", "reported"), halves(photos), strict=True):
        for captions in (1, 4):
            rows = agreement(photos, crowd.of(chosen), expert.of(chosen), words, captions)
            results["agreement"] += [{"half": half, **row} for row in rows]
        for one in (1, None):
            results["audit"] += [{"half": half, **row} for row in audits(photos, crowd.of(chosen), words, one)]
    print_table(results["agreement"], "people's judgments of related captions")
    print_table(results["audit"], "a corpus of judged pairs, half of them wrong")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "human.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
