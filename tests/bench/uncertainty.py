"""Measure PAU's u: does it predict which items fail, is it stable, does it find vague captions and films of scenes?

    python -m tests.bench.uncertainty

Prototypes are fitted on the audited corpus itself, as an audit does. For photos with one caption each (Flickr8k `val`,
unseen by the encoder, and `train`, which it has seen): recall at 1 of the half with the lowest u, AUROC of failing,
rank correlation of u between two seeds and between heads fitted on two halves of the corpus, seconds; for comparison
the perplexity. "Other half" is u of photos that the head was not fitted on. Then u of vague captions among real ones,
of judged titles of drawings (tests/bench/found_corpora.py, skipped without the packages), and of films of three photos
among films of one, fitted on the same films and on other ones; and the seconds of a fit to 50,000 pairs. Frames are
encoded once and then cached. Writes bench-results/uncertainty.json. Five minutes on one core (OMP_NUM_THREADS=1).
"""

import io
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from auditor.console import print_table
from auditor.research.retrieval.analyses import compute_auroc
from auditor.score.statistics.ambiguity import measure_vagueness
from model.fit_prototypes import FitConfig, Target, compute_media_uncertainty, fit_prototypes
from model.pixels import fit_image
from model.prototypes import HeadConfig, PrototypeHead
from model.retrieval_target import FitPairs
from model.similarity import compute_retrieval_entropy, pool_frames
from tests.bench.flickr8k import CACHE, Encode, Photos, backbone, encoder, load_photos, read_photos
from tests.bench.found_corpora import DRAWINGS, load_drawings
from tests.support.perplexity import compute_log_perplexity

RESULTS = Path(__file__).resolve().parents[2] / "bench-results"
SETTINGS: tuple[tuple[str, int, Target], ...] = (
    ("paper's h", 8, "h"),
    ("K = 8", 8, "retrieval"),
    ("K = 64", 64, "retrieval"),
    ("K = 256", 256, "retrieval"),
)
VAGUE = ("This is a photo.", "A scene.", "Something outside.", "A picture of something.", "People.")
FILM_PHOTOS, FRAMES, SCENES = 200, 4, 3
MANY_PAIRS = 50_000


def one_caption_each(photos: Photos, seed: int = 0) -> tuple[FitPairs, list[str]]:
    generator = np.random.default_rng(seed)
    rows = [int(generator.choice(np.flatnonzero(photos.media == i))) for i in range(len(photos.visual))]
    captions = [photos.captions[row] for row in rows]
    pairs = FitPairs(F.normalize(torch.from_numpy(photos.visual)), F.normalize(torch.from_numpy(photos.text[rows])))
    return with_words(pairs, captions), captions


def with_words(pairs: FitPairs, captions: list[str]) -> FitPairs:
    return replace(pairs, vagueness=torch.from_numpy(measure_vagueness(captions, np.arange(len(captions)))))


def fit(
    pairs: FitPairs, scale: float, prototypes: int = 64, target: Target = "retrieval", seed: int = 0
) -> PrototypeHead:
    config = HeadConfig(pairs.visual.shape[1], prototypes, clip_evidence="frames")
    return fit_prototypes(pairs, config, target=target, logit_scale=scale, seed=seed)


def uncertainties(head: PrototypeHead, pairs: FitPairs) -> tuple[Tensor, Tensor]:
    return compute_media_uncertainty(head, pairs), head.uncertainty_text(pairs.text)


def auroc(values: Tensor, positive: Tensor) -> float:
    return compute_auroc(values.double().numpy(), positive.numpy())


def rank_correlation(values: Tensor, others: Tensor) -> float:
    return float(torch.corrcoef(torch.stack([values, others]).argsort(dim=1).argsort(dim=1).double())[0, 1])


def both(values: list[float], digits: int = 3) -> str:
    return " / ".join(f"{value:.{digits}f}" for value in values)


def prediction(pairs: FitPairs, scores: tuple[Tensor, Tensor]) -> dict[str, Any]:
    """Recall at 1 of the half kept and AUROC of failing, photos / captions."""
    similarity, truth = pairs.visual @ pairs.text.T, torch.arange(len(pairs.text))
    hits = [similarity.argmax(dim=dimension) == truth for dimension in (1, 0)]
    kept = [
        100 * float(hit[score.argsort(stable=True)[: len(hit) // 2]].float().mean())
        for hit, score in zip(hits, scores, strict=True)
    ]
    failing = [auroc(score, ~hit) for hit, score in zip(hits, scores, strict=True)]
    return {"R@1 of the half kept": both(kept, 1), "AUROC of failing": both(failing)}


def compare_settings(name: str, pairs: FitPairs, scale: float) -> list[dict[str, Any]]:
    even, odd = (torch.arange(start, len(pairs.text), 2) for start in (0, 1))
    perplexity = (
        compute_log_perplexity(pairs.visual, pairs.text, scale),
        compute_log_perplexity(pairs.text, pairs.visual, scale),
    )
    of_halves = [
        (
            compute_log_perplexity(pairs.visual, pairs.text[rows], scale),
            compute_log_perplexity(pairs.text, pairs.visual[rows], scale),
        )
        for rows in (even, odd)
    ]
    stable = both([rank_correlation(*sides) for sides in zip(*of_halves, strict=True)])
    rows = [{"corpus": name, "by": "perplexity", **prediction(pairs, perplexity), "seeds": "", "halves": stable}]
    logits = (scale * pairs.visual @ pairs.text.T).fill_diagonal_(-1e4)
    rivals = prediction(pairs, (compute_retrieval_entropy(logits, 1.0), compute_retrieval_entropy(logits.T, 1.0)))
    rows.append({"corpus": name, "by": "perplexity without the own partner", **rivals})
    for label, prototypes, target in SETTINGS:
        started = time.perf_counter()
        head = fit(pairs, scale, prototypes, target)
        seconds = time.perf_counter() - started
        scores = uncertainties(head, pairs)
        other_seed = uncertainties(fit(pairs, scale, prototypes, target, seed=1), pairs)
        heads = [fit(pairs.take_pairs(part), scale, prototypes, target) for part in (even, odd)]
        halves = [uncertainties(head, pairs) for head in heads]
        rows.append(
            {
                "corpus": name,
                "by": f"u, {label}",
                **prediction(pairs, scores),
                "seeds": both([rank_correlation(*sides) for sides in zip(scores, other_seed, strict=True)]),
                "halves": both([rank_correlation(*sides) for sides in zip(*halves, strict=True)]),
                "seconds": round(seconds, 2),
            }
        )
        unseen = pairs.take_pairs(odd)
        held_out = prediction(unseen, uncertainties(heads[0], unseen))
        rows.append({"corpus": f"{name}, other half", "by": f"u, {label}", **held_out})
    return rows


def find_vague_captions(pairs: FitPairs, captions: list[str], scale: float, encode: Encode) -> dict[str, Any]:
    """AUROC of vague captions that replace one in twenty."""
    chosen = np.random.default_rng(1).choice(len(captions), len(captions) // 20, replace=False)
    text, vectors = pairs.text.clone(), torch.from_numpy(encode(VAGUE))
    words, planted = list(captions), torch.zeros(len(captions), dtype=torch.bool)
    for number, row in enumerate(chosen.tolist()):
        text[row], words[row], planted[row] = (
            F.normalize(vectors[number % len(VAGUE)], dim=0),
            VAGUE[number % len(VAGUE)],
            True,
        )
    spoiled = with_words(replace(pairs, text=text), words)
    u = fit(spoiled, scale).uncertainty_text(spoiled.text)
    return {"of": "vague captions among real ones", "AUROC of u": auroc(u, planted)}


def find_undescriptive_titles(shared: Path) -> dict[str, Any]:
    """AUROC of titles that do not describe their drawing, judged by eye."""
    drawings = load_drawings(shared)
    pairs, _ = one_caption_each(drawings)
    lines = (shared / "data/openclipart/labels.tsv").read_text().splitlines()[1:]
    labels = {key: label for key, _, label in (line.split("\t") for line in lines)}
    rows = torch.tensor([row for row, key in enumerate(drawings.keys) if key in labels])
    vague = torch.tensor([labels[drawings.keys[row]] != "describes" for row in rows.tolist()])
    u = fit(pairs, drawings.scale).uncertainty_text(pairs.text)
    count = (
        f"{int(vague.sum())} titles that do not describe among {len(rows)} judged of {len(drawings.keys):,} drawings"
    )
    return {"of": count, "AUROC of u": auroc(u[rows], vague)}


def time_fit(pairs: FitPairs, captions: list[str], scale: float) -> dict[str, Any]:
    """Seconds to fit a head to as many pairs as an audit of many draws, and to measure u of all; pairs with noise."""
    rows = torch.arange(MANY_PAIRS) % len(pairs.text)
    generator = torch.Generator().manual_seed(0)
    visual, text = (
        F.normalize(side[rows] + 0.02 * torch.randn(len(rows), side.shape[1], generator=generator), dim=1)
        for side in (pairs.visual, pairs.text)
    )
    started, cpu_started = time.perf_counter(), time.process_time()
    drawn = torch.randperm(MANY_PAIRS, generator=generator)[: FitConfig().max_instances]
    sample = with_words(FitPairs(visual[drawn], text[drawn]), [captions[row] for row in rows[drawn].tolist()])
    uncertainties(fit(sample, scale), FitPairs(visual, text))
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
    cost = {"pairs": MANY_PAIRS, "threads": torch.get_num_threads(), "seconds": round(seconds, 1)}
    return cost | {"CPU seconds": round(cpu_seconds, 1)}


def encode_films(shared: Path) -> Tensor:
    """Frames (N, 4, D) of a slow pan over each photo."""
    model, generator = backbone(f"local-dir:{shared / 'models' / 'flickr8k-lite'}"), np.random.default_rng(0)
    cached = CACHE / f"films-{FILM_PHOTOS}-{FRAMES}-{model.fingerprint[:16]}.npy"
    if cached.exists():
        return torch.from_numpy(np.load(cached))
    films = []
    for data in read_photos(shared / "data" / "flickr8k" / "val-00000.tar", FILM_PHOTOS, pixels=True)[1]:
        image = Image.open(io.BytesIO(data)).convert("RGB")
        crops = []
        for _ in range(FRAMES):
            width, height = (round(side * generator.uniform(0.8, 0.95)) for side in image.size)
            x, y = generator.integers(image.width - width + 1), generator.integers(image.height - height + 1)
            crops.append(fit_image(model.pixels, image.crop((x, y, x + width, y + height))))
        films.append(model.encode_images(np.stack(crops)).cpu())
    frames = F.normalize(torch.stack(films).float(), dim=2)
    np.save(cached, frames.numpy())
    return frames


def find_films(shared: Path, pairs: FitPairs, scale: float) -> list[dict[str, Any]]:
    """AUROC of films of three photos among films of one, for fitted and for unseen films."""
    pans, generator = encode_films(shared), np.random.default_rng(2)
    order, frames, captions, joined = generator.permutation(FILM_PHOTOS).tolist(), [], [], []
    while len(order) >= SCENES:
        several = generator.random() < 0.15
        scenes = [order.pop() for _ in range(SCENES if several else 1)]
        frames.append(torch.cat([pans[scene] for scene in scenes] * (1 if several else SCENES)))
        captions.append(scenes[0])
        joined.append(several)
    clips, mask = torch.stack(frames), torch.ones(len(frames), SCENES * FRAMES, dtype=torch.bool)
    films, is_joined = FitPairs(pool_frames(clips, mask), pairs.text[captions], clips, mask), torch.tensor(joined)
    even, odd = (torch.arange(start, len(joined), 2) for start in (0, 1))
    head, half = fit(films, scale), fit(films.take_pairs(even), scale)
    count = f"{sum(joined)} films of three photos among {len(joined)}"
    return [
        {"of": count, "AUROC of u": auroc(compute_media_uncertainty(head, films), is_joined)},
        {"of": f"{count}, by the mean vector", "AUROC of u": auroc(head.uncertainty_visual(films.visual), is_joined)},
        {
            "of": "films not fitted on",
            "AUROC of u": auroc(compute_media_uncertainty(half, films.take_pairs(odd)), is_joined[odd]),
        },
    ]


def main() -> None:
    from tests.conftest import SHARED

    rows: list[dict[str, Any]] = []
    for name, tar in (("val", "flickr8k/val-00000.tar"), ("train", "flickr8k/train-00000.tar")):
        photos = load_photos(SHARED, 1000, tar)
        pairs, captions = one_caption_each(photos)
        rows += compare_settings(name, pairs, photos.scale)
        if name == "val":
            defects = [find_vague_captions(pairs, captions, photos.scale, encoder(SHARED))]
            defects += find_films(SHARED, pairs, photos.scale)
            defects += [find_undescriptive_titles(SHARED)] if DRAWINGS.exists() else []
            cost = time_fit(pairs, captions, photos.scale)
    print_table(rows, "u of photos / captions")
    print_table(defects, "what u finds")
    print_table([cost], "fit and u")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "uncertainty.json").write_text(
        json.dumps({"settings": rows, "defects": defects, "cost": cost}, indent=1)
    )


if __name__ == "__main__":
    main()
