"""Find the wrong sentence of long captions: paragraphs of a photo's five captions, some with one of another photo.

    python -m tests.bench.long_captions [--tune]

In every fifth paragraph the last sentence is that of another photo (`sentence`), or the whole caption is (`caption`).
`short` captions are two sentences that fit into the text encoder's context; `filler` paragraphs end with a sentence
that says nothing about the photo; `similar` sentences are of the most similar photo. Methods that give a caption one
vector compare it with the photo. Settings were chosen on Flickr8k's training photos (--tune); its validation photos and
the photos that people judged are reported. Writes bench-results/long_captions.json.
"""

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from auditor.console import print_table
from auditor.score.statistics.mismatch import fit_mismatch
from auditor.score.statistics.mismatch_statistic import compute_statistic
from auditor.score.statistics.part_mismatch import fit_parts, judge_captions
from auditor.score.statistics.rivals import ReferenceSample, measure_pairs
from auditor.sweep.caption_tokens import CaptionTokens, CaptionVectors, arrange_vectors, tokenize_captions
from auditor.vectors import Bools, Floats, MediaVectors
from tests.bench.flickr8k import CACHE, Photos, backbone, load_photos
from tests.bench.mismatch_flickr8k import auroc
from tests.conftest import SHARED

TUNED, REPORTED = "flickr8k/train-00000.tar", ("flickr8k/val-00000.tar", "human/photos-00000.tar")
MODEL = f"local-dir:{SHARED / 'models' / 'flickr8k-lite'}"
RESULTS = Path(__file__).resolve().parents[2] / "bench-results"
EVERY = 5  # one paragraph in so many is spoiled
FILLERS = (
    "The background is blurred.", "The lighting is natural and soft.", "The mood of the scene is calm.",
    "The photo was taken during the day.", "The colors are vivid.", "The overall atmosphere is relaxed.",
    "The scene suggests a moment of leisure.", "There are some objects in the background.",
)  # fmt: skip
Row = dict[str, Any]
Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Paragraphs:
    """A caption of several sentences for each photo, and which are wrong."""

    captions: list[str]
    wrong: Bools


class CachedEncoder:
    """Encodes each text once: paragraphs of the same sentences are compared with each other."""

    def __init__(self, name: str) -> None:
        self.path, self.vectors = CACHE / f"long-captions-{name}.npz", dict[bytes, Floats]()
        self.model = backbone(MODEL)
        if self.path.exists():
            with np.load(self.path) as stored:
                keys = (row.tobytes() for row in stored["tokens"])
                self.vectors = dict(zip(keys, stored["vectors"], strict=True))

    def encode(self, texts: CaptionTokens) -> CaptionVectors:
        rows = texts.tokens.numpy().astype(np.int32)
        new = [number for number, row in enumerate(rows) if row.tobytes() not in self.vectors]
        vectors = self.model.encode_tokens(texts.tokens[new]).cpu().numpy()
        self.vectors |= {rows[number].tobytes(): vector for number, vector in zip(new, vectors, strict=True)}
        if new:
            tokens = np.stack([np.frombuffer(key, np.int32) for key in self.vectors])
            self.path.parent.mkdir(parents=True, exist_ok=True)
            np.savez(self.path, tokens=tokens, vectors=np.stack(list(self.vectors.values())))
        return arrange_vectors(np.stack([self.vectors[row.tobytes()] for row in rows]), texts.captions)

    def encode_beginnings(self, captions: list[str]) -> Floats:
        """The vectors of the first context of captions."""
        tokens = self.model.tokens(captions)
        return self.encode(CaptionTokens(tokens, tokenize_captions(self.model, ["a"]).captions * len(captions))).text


def make_paragraphs(photos: Photos, kind: str) -> Paragraphs:
    """Paragraphs of the captions of each photo; `single`: only the first caption."""
    of_photo = [[photos.captions[row] for row in np.flatnonzero(photos.media == m)] for m in range(len(photos.keys))]
    sentences = [[text if text.endswith(".") else f"{text} ." for text in texts] for texts in of_photo]
    if kind in ("short", "single"):
        sentences = [sorted(texts, key=len)[: 2 if kind == "short" else 1] for texts in sentences]
    wrong = np.arange(len(sentences)) % EVERY == 0
    spoiled = [list(texts) for texts in sentences]
    sources = np.roll(np.flatnonzero(wrong), 1)
    if kind == "similar":
        cosine = photos.visual[wrong] @ photos.visual.T
        cosine[np.arange(len(sources)), np.flatnonzero(wrong)] = -1
        sources = cosine.argmax(axis=1)
    for photo, source in zip(np.flatnonzero(wrong), sources, strict=True):
        kept = [] if kind == "caption" else sentences[photo][:-1]
        spoiled[photo] = [*kept, *sentences[source][len(kept) :]]
    if kind == "filler":
        spoiled = [[*texts, FILLERS[photo % len(FILLERS)]] for photo, texts in enumerate(spoiled)]
    return Paragraphs([" ".join(texts) for texts in spoiled], wrong)


def estimate_p(photos: Photos, text: Floats) -> tuple[ReferenceSample, Floats]:
    reference = ReferenceSample(MediaVectors(photos.visual), text, np.arange(len(text)), scale=photos.scale)
    model = fit_mismatch(reference, bootstraps=0)
    assert model is not None and model.statistic is not None
    return reference, model.p(compute_statistic(model.statistic, reference, measure_pairs(reference, reference)))


def summarize_parts(photos: Photos, made: Paragraphs, vectors: CaptionVectors) -> dict[str, Floats]:
    """One vector for each caption: of one of its parts, or the mean of them."""
    parts, counts = vectors.parts.vectors.astype(np.float32), vectors.parts.counts
    first = np.cumsum(counts) - counts
    texts = tokenize_captions(backbone(MODEL), made.captions).captions
    ends = [np.array((caption.part_ends or "").split(), int) for caption in texts]
    lengths = np.concatenate([np.diff(places, prepend=0) for places in ends])
    cosine = np.einsum("nd,nd->n", photos.visual[vectors.parts.find_owners()], parts)
    picked = {
        name: np.array([start + values[start : start + n].argmax() for start, n in zip(first, counts, strict=True)])
        for name, values in (("longest part", lengths), ("most similar part", cosine))
    }
    mean = np.add.reduceat(parts, first, axis=0)
    mean /= np.linalg.norm(mean, axis=1, keepdims=True)
    return {**{name: parts[rows] for name, rows in picked.items()}, "mean of the parts": mean}


def run(photos: Photos, kind: str, encoder: CachedEncoder) -> list[Row]:
    made = make_paragraphs(photos, kind)
    vectors = encoder.encode(tokenize_captions(backbone(MODEL), made.captions))
    if kind == "single":
        return [describe(made, kind, "p_mismatch", estimate_p(photos, vectors.text)[1])]
    candidates = {"first context only": encoder.encode_beginnings(made.captions)}
    candidates |= summarize_parts(photos, made, vectors)
    rows = []
    for name, text in candidates.items():
        rows.append(describe(made, kind, f"cosine, {name}", -np.einsum("nd,nd->n", photos.visual, text)))
        if kind == "caption":
            rows.append(describe(made, kind, f"p_mismatch, {name}", estimate_p(photos, text)[1]))
    reference, p = estimate_p(photos, vectors.text)
    rows.append(describe(made, kind, "p_mismatch", p))
    scores = judge_captions(reference, vectors.parts, p, fit_parts(reference, vectors.parts, p))
    rows.append(describe(made, kind, "cosine, least similar part", -scores.similarity))
    rows.append(describe(made, kind, "p_part_mismatch", scores.p))
    right = scores.weakest == vectors.parts.counts - 1 - (kind == "filler")
    rows[-1]["right part named"] = float(right[made.wrong].mean()) if kind != "caption" else None
    return rows


def describe(made: Paragraphs, kind: str, name: str, suspicion: Floats) -> Row:
    row = {"spoiled": kind, "method": name, "auroc": auroc(-suspicion.astype(np.float64), made.wrong)}
    if name.startswith("p_"):
        flagged = suspicion >= 0.5
        row |= {"share": float(suspicion.mean()), "true share": float(made.wrong.mean())}
        row |= {"sound flagged": float(flagged[~made.wrong].mean()), "wrong flagged": float(flagged[made.wrong].mean())}
    return row


def measure_cost(photos: Photos) -> Row:
    """Processor seconds of tokenizing and encoding captions, and paragraphs of 20 of them."""
    model = backbone(MODEL)

    def measure(captions: list[str]) -> float:
        start = time.process_time()
        model.encode_tokens(tokenize_captions(model, captions).tokens)
        return time.process_time() - start

    singles = [caption.replace(".", "").strip() for caption in photos.captions[:2000]]
    paragraphs = [" . ".join(singles[start : start + 20]) for start in range(0, len(singles), 20)]
    measure(singles[:200])
    one, twenty = (min(measure(captions) for _ in range(3)) for captions in (singles[:100], paragraphs))
    return {"100 captions": one, "100 paragraphs of 20": twenty, "factor": twenty / one}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tune", action="store_true", help="use the photos on which settings were chosen")
    results: dict[str, Any] = {}
    for tar in (TUNED,) if parser.parse_args().tune else REPORTED:
        photos = load_photos(SHARED, 500 if tar.startswith("human") else 1000, tar)
        encoder = CachedEncoder(Path(tar).parent.name + "-" + Path(tar).stem)
        results[tar] = [
            row
            for kind in ("single", "sentence", "caption", "short", "filler", "similar")
            for row in run(photos, kind, encoder)
        ]
        print_table(results[tar], tar)
    results["cost"] = [measure_cost(photos)]
    print_table(results["cost"], "processor seconds of encoding")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "long_captions.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
