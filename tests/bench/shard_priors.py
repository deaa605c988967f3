"""Count wrong decisions with and without the prior of the shard, for noise in few shards and for even noise.

    python -m tests.bench.shard_priors --shared ../shared

1,000 pairs in 20 shards: photos of Flickr8k with one caption each, and generated ones. A decision is p_mismatch at 0.5;
it is wrong if it differs from the planted truth. Prints one JSON object per line.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import numpy.typing as npt

from auditor.score.shard_priors import EDGES, compute_priors, shift_log_odds
from auditor.score.statistics.mismatch import compute_log_odds, fit_mismatch
from auditor.score.statistics.mismatch_statistic import compute_statistic
from auditor.score.statistics.rivals import ReferenceSample, measure_pairs
from auditor.vectors import Floats, MediaVectors
from tests.support.planted import SCALE, make_embeddings

SHARDS, ROWS = 20, 50
Rates = npt.NDArray[np.float64]


def noises() -> Iterator[tuple[str, Rates]]:
    """Share of wrong captions of each shard."""
    places = np.arange(SHARDS)
    yield "three shards 40%, others 2%", np.where(places % 7 == 2, 0.4, 0.02)
    yield "one shard 90%, others 5%", np.where(places == 4, 0.9, 0.05)
    for rate in (0.0, 0.02, 0.08, 0.2):
        yield f"all {rate:.0%}", np.full(SHARDS, rate)


def pairs(shared: Path | None, generator: np.random.Generator) -> tuple[Floats, Floats, float]:
    """Media and captions in random order."""
    if shared is None:
        return *make_embeddings(SHARDS * ROWS, int(generator.integers(1 << 30)), noise=2.5), SCALE
    from tests.bench.flickr8k import load_photos

    photos = load_photos(shared, SHARDS * ROWS)
    first, count = np.unique(photos.media, return_index=True, return_counts=True)[1:]
    order = generator.permutation(len(photos.visual))
    text = photos.text[first + generator.integers(0, count)]
    return photos.visual[order], text[order], photos.scale


def wrong(shared: Path | None, rates: Rates, seed: int) -> tuple[int, int, int]:
    """Wrong decisions without and with priors, and shards that stand out."""
    generator = np.random.default_rng([seed, 1])
    visual, text, scale = pairs(shared, generator)
    moved = np.arange(len(text))
    chosen = generator.permutation(np.flatnonzero(generator.random(len(text)) < np.repeat(rates, ROWS)))
    moved[chosen] = np.roll(chosen, 1)
    reference = ReferenceSample(MediaVectors(visual), text[moved], np.arange(len(text)), scale=scale)
    model = fit_mismatch(reference)
    assert model is not None and model.statistic is not None
    p = model.p(compute_statistic(model.statistic, reference, measure_pairs(reference, reference)))
    by_shard = p.reshape(SHARDS, ROWS)
    counts = [
        np.histogram(np.clip(compute_log_odds(row.astype(float)), EDGES[0], EDGES[-1]), EDGES)[0] for row in by_shard
    ]
    names = [str(i) for i in range(SHARDS)]
    priors = compute_priors(names, np.stack(counts))
    new = np.concatenate(
        [shift_log_odds(row, priors.get(name, 0.0)) for name, row in zip(names, by_shard, strict=True)]
    )
    bad = moved != np.arange(len(text))
    return int(((p >= 0.5) != bad).sum()), int(((new >= 0.5) != bad).sum()), len(priors)


@click.command()
@click.option("--shared", type=click.Path(path_type=Path, exists=True))
@click.option("--trials", default=5, show_default=True)
def main(shared: Path | None, trials: int) -> None:
    for corpus, place in (("generated", None), *([("photos", shared)] if shared else [])):
        for name, rates in noises():
            found = np.array([wrong(place, rates, seed) for seed in range(trials)]).sum(axis=0).tolist()
            row = dict(zip(("wrong before", "wrong after", "shards named"), found, strict=True))
            print(json.dumps({"corpus": corpus, "noise": name, **row}), flush=True)


if __name__ == "__main__":
    main()
