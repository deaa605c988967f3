"""Topics: a corpus's media in a few clusters of their embeddings, so that a filter can show what it shifts."""

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]


def fit_topics(visual: Array, count: int, seed: int, rounds: int = 20) -> Array:
    """Centres (T, D) of a spherical k-means; fewer topics where there are few media."""
    count = max(1, min(count, len(visual) // 10))
    generator = np.random.default_rng(seed)
    centres = visual[generator.choice(len(visual), count, replace=False)]
    for _ in range(rounds):
        nearest = assign_topics(visual, centres)
        sums = np.zeros_like(centres)
        np.add.at(sums, nearest, visual)
        empty = np.bincount(nearest, minlength=count) == 0
        sums[empty] = visual[generator.choice(len(visual), int(empty.sum()))]
        moved = sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-12)
        if np.allclose(moved, centres, atol=1e-5):
            break
        centres = moved
    return centres.astype(np.float32)


def assign_topics(visual: Array, centres: Array) -> npt.NDArray[np.int16]:
    nearest: npt.NDArray[np.int16] = (visual @ centres.T).argmax(axis=1).astype(np.int16)
    return nearest
