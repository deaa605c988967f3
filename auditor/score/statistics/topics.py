"""Topics: clusters of a corpus's media by their embeddings, which show how a filter shifts the corpus."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from auditor.vectors import Floats

ROUNDS = 20


def cluster_vectors(vectors: Floats, count: int, *, rounds: int, seed: int) -> Floats:
    """Unit centroids (C, D) of a spherical k-means."""
    import faiss

    points = {"min_points_per_centroid": 1, "max_points_per_centroid": len(vectors)}
    clusters = faiss.Kmeans(vectors.shape[1], count, niter=rounds, seed=seed, spherical=True, **points)
    clusters.train(np.ascontiguousarray(vectors, np.float32))
    return np.asarray(clusters.centroids, np.float32)


def fit_topics(visual: Floats, count: int, seed: int) -> Floats:
    """Centroids (T, D) of the topics, from all media of the sample; fewer topics if there are few media."""
    count = max(1, min(count, len(visual) // 10))
    return cluster_vectors(visual, count, rounds=ROUNDS, seed=seed)


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
