"""Topics: clusters of a corpus's media by their embeddings, which show how a filter shifts the corpus."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from auditor.vectors import Floats

ROUNDS = 20


def fit_topics(visual: Floats, count: int, seed: int) -> Floats:
    """Centroids (T, D) of a spherical k-means; fewer topics if there are few media."""
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


def assign_topics(visual: Floats, centroids: Floats) -> npt.NDArray[np.int16]:
    nearest: npt.NDArray[np.int16] = (visual @ centroids.T).argmax(axis=1).astype(np.int16)
    return nearest


def select_typical_captions(
    text: Floats, topics: npt.NDArray[np.int16], captions: Sequence[str], topic_count: int, count: int = 3
) -> list[list[str]]:
    """For each topic, the captions farthest along the direction from the mean caption to the topic's mean."""
    mean = text.mean(axis=0)
    typical = []
    for topic in range(topic_count):
        members = np.flatnonzero(topics == topic)
        direction = (text[members].mean(axis=0) if len(members) else mean) - mean
        order = members[np.argsort(-(text[members] @ direction), kind="stable")]
        typical.append(list(dict.fromkeys(" ".join(captions[row].split()) for row in order.tolist()))[:count])
    return typical
