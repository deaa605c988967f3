"""Prompt columns on real photos: AUROC, the share with its interval, false alarms, and learning from examples.

    python -m tests.bench.prompt_columns [SHARD]

*Prompts*: what Flickr8k's captions say is the truth (a photo of a dog: two of its five captions name one). *Planted*:
drawings, watermarked photos and screenshots of text among photos (tests/bench/planted_pictures.py), in several shares;
the corpus is drawn at random, and `covered` counts the draws in which the 90% interval holds the true share. *Nothing*:
prompts that apply to no photo; each estimate would be a false alarm. *Examples*: `--by` with 10, 20 and 50 marked
pictures. Settings were chosen on train-00000; val-00000 is the shard to report.
"""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from auditor.choose.learned_direction import compute_area, learn_direction
from auditor.choose.prompt_files import Prompt, make_prompts, read_prompt_file
from auditor.choose.prompt_mixture import PromptMixture, count_margins, fit_prompt_mixture
from auditor.console import print_table
from auditor.vectors import Bools, Floats
from tests.bench.flickr8k import Encode, encoder, load_photos
from tests.bench.planted_pictures import encode_pictures

SHARED = Path(__file__).resolve().parents[3] / "shared"
DRAWS = 20
NOUNS = {
    "a dog": r"\bdogs?\b|\bpupp",
    "snow": r"\bsnow|\bski",
    "water": r"\bwater\b|\bpool\b|\bocean\b|\blake\b|\bswim|\bsurf|\briver\b|\bbeach\b",
    "a child": r"\bchild|\bkid|\bboys?\b|\bgirls?\b|\bbaby\b|\btoddler",
    "a bicycle": r"\bbi(cycl|ke)|\bcycl",
    "a football game": r"\bfootball\b|\bsoccer\b",
    "a person climbing": r"\bclimb",
    "a motorcycle": r"\bmotor|\bdirt bike",
}
NOTHING = """
a map, a logo, a QR code, a satellite image, an x-ray, a microscope image, the inside of an airplane, a spaceship
a castle, an elephant, a tiger, a shark, a penguin, a wedding cake, a piano, a violin, a volcano, a chess board
a collage, a banknote, a passport, a bar chart, a sheet of music, a circuit board, a coat of arms
""".strip()
PLANTED = {
    "drawings": ("medium", "drawing"),
    "watermarks": ("text", "watermark"),
    "screenshots": ("text", "screenshot_of_text"),
}


def compute_direction(prompt: Prompt, encode: Encode) -> Floats:
    sides = [encode(texts).mean(axis=0) for texts in (prompt.texts, prompt.against)]
    return np.asarray(sides[0] / np.linalg.norm(sides[0]) - sides[1] / np.linalg.norm(sides[1]), np.float32)


@dataclass(frozen=True)
class Corpus:
    vectors: Floats
    truth: Bools


def draw_corpus(photos: Floats, planted: Floats, share: float, seed: int) -> Corpus:
    """A random half of the photos, and as many planted pictures as make the share."""
    random = np.random.default_rng(seed)
    chosen = photos[random.permutation(len(photos))[: len(photos) // 2]]
    count = min(round(share / (1 - share) * len(chosen)), len(planted))
    return Corpus(
        np.concatenate([chosen, planted[random.permutation(len(planted))[:count]]]),
        np.arange(len(chosen) + count) >= len(chosen),
    )


def judge(vectors: Floats, truth: Bools, direction: Floats) -> dict[str, Any]:
    margins = vectors @ direction
    fitted = fit_prompt_mixture(count_margins(margins))
    row: dict[str, Any] = {"true": truth.mean(), "auroc": compute_area(margins[truth], margins[~truth])}
    row |= dict.fromkeys(("share", "low", "high", "precision", "recall"))
    if isinstance(fitted, PromptMixture):
        p = fitted.p(margins)
        row |= {"share": fitted.share, "low": fitted.low, "high": fitted.high}
        row |= {"precision": truth[p >= 0.5].mean() if (p >= 0.5).any() else np.nan, "recall": (p >= 0.5)[truth].mean()}
    return row


def summarize(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Means over draws; `estimates` and `covered` count draws."""
    estimated = [row for row in rows if row["share"] is not None]
    covered = sum(row["low"] <= row["true"] <= row["high"] for row in estimated)
    names = ("share", "low", "high", "precision", "recall")
    means = {name: float(np.mean([row[name] for row in estimated])) if estimated else None for name in names}
    fixed = {name: float(np.mean([row[name] for row in rows])) for name in ("true", "auroc")}
    return {**fixed, "estimates": f"{len(estimated)} of {len(rows)}", "covered": covered, **means}


def measure_nouns(shard: str, encode: Encode) -> list[dict[str, Any]]:
    photos = load_photos(SHARED, 1000, f"flickr8k/{shard}.tar")
    rows = []
    for text, pattern in NOUNS.items():
        hits = [bool(re.search(pattern, caption.lower())) for caption in photos.captions]
        truth = np.bincount(photos.media, hits, len(photos.keys)) >= 2
        for prompt in make_prompts([f"a photo of {text}", text]):
            (wording,) = prompt.texts
            rows.append({"prompt": wording, **judge(photos.visual, truth, compute_direction(prompt, encode))})
    return rows


def measure_planted(pictures: dict[str, Floats], encode: Encode) -> list[dict[str, Any]]:
    rows = []
    for name, (file, column) in PLANTED.items():
        prompt = next(prompt for prompt in read_prompt_file(file) if prompt.name == column)
        direction = compute_direction(prompt, encode)
        for share in (0.05, 0.1, 0.3):
            corpora = [draw_corpus(pictures["photos"][:750], pictures[name], share, seed) for seed in range(DRAWS)]
            rows.append({"planted": name, **summarize([judge(c.vectors, c.truth, direction) for c in corpora])})
    return rows


def measure_examples(pictures: dict[str, Floats]) -> list[dict[str, Any]]:
    """Learn from balanced examples; judge on a corpus of the others, a tenth of them planted."""
    rows = []
    for name in PLANTED:
        for count in (10, 20, 50):
            found, inside = [], 0
            for seed in range(DRAWS):
                random = np.random.default_rng([seed, count])
                planted, photos = (random.permutation(pictures[key]) for key in (name, "photos"))
                photos, half = (
                    photos if name != "watermarks" else random.permutation(pictures["photos"][:750]),
                    count // 2,
                )
                labels = np.arange(2 * half) < half
                learned = learn_direction(np.concatenate([planted[:half], photos[:half]]), labels)
                corpus = draw_corpus(photos[half:], planted[half:], 0.1, seed)
                found.append(judge(corpus.vectors, corpus.truth, learned.direction))
                inside += learned.auroc[1] <= found[-1]["auroc"] <= learned.auroc[2]
            rows.append({"planted": name, "examples": count, **summarize(found), "AUROC inside its interval": inside})
    return rows


def main() -> None:
    shard = sys.argv[1] if len(sys.argv) > 1 else "val-00000"
    encode, pictures = encoder(SHARED), encode_pictures(SHARED, shard)
    print_table(measure_nouns(shard, encode), f"prompts, {shard}")
    print_table(measure_planted(pictures, encode), f"planted, {shard}")
    absent = make_prompts([f"a photo of {text}" for line in NOTHING.splitlines() for text in line.split(", ")])
    alarms = [judge(pictures["photos"], np.arange(1000) < 1, compute_direction(prompt, encode)) for prompt in absent]
    print(
        f"prompts that apply to nothing: {sum(row['share'] is not None for row in alarms)} estimates of {len(alarms)}"
    )
    print_table(measure_examples(pictures), f"examples, {shard}")


if __name__ == "__main__":
    main()
