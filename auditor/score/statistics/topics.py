"""Topics: a corpus's media in a few clusters of their embeddings, so that a filter can show what it shifts."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from auditor.vectors import Floats

ROUNDS = 20


def fit_topics(visual: Floats, count: int, seed: int) -> Floats:
    """Centres (T, D) of a spherical k-means; fewer topics where there are few media."""
    import faiss

    count = max(1, min(count, len(visual) // 10))
    clusters = faiss.Kmeans(
        visual.shape[1],
        count,
        niter=ROUNDS,
        seed=seed,
        spherical=True,
        min_points_per_centroid=1,
        max_points_per_centroid=len(visual),  # all of them: the sample is small
    )
    clusters.train(np.ascontiguousarray(visual, np.float32))
    return np.asarray(clusters.centroids, np.float32)


def assign_topics(visual: Floats, centres: Floats) -> npt.NDArray[np.int16]:
    nearest: npt.NDArray[np.int16] = (visual @ centres.T).argmax(axis=1).astype(np.int16)
    return nearest


def typical_captions(
    text: Floats, topic: npt.NDArray[np.int16], captions: Sequence[str], topics: int, count: int = 3
) -> list[list[str]]:
    """For each topic the captions that lie furthest towards its own and away from those of all others."""
    middle = text.mean(axis=0)
    found = []
    for one in range(topics):
        members = np.flatnonzero(topic == one)
        towards = (text[members].mean(axis=0) if len(members) else middle) - middle
        order = members[np.argsort(-(text[members] @ towards), kind="stable")]
        found.append(list(dict.fromkeys(" ".join(captions[row].split()) for row in order.tolist()))[:count])
    return found
