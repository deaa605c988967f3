"""Topics are the clusters of the media, the same for the same seed, and fewer if there are few media."""

import numpy as np
import pytest

from auditor.score.statistics.topics import assign_topics, fit_topics, select_typical_captions
from tests.support.pairs import normalize_rows


def clusters(each: int, count: int = 4, dim: int = 16) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    label = np.repeat(np.arange(count), each)
    centres = 4 * np.eye(dim)[:count]
    return normalize_rows(centres[label] + 0.3 * generator.normal(size=(len(label), dim))), label


def test_clusters_are_found_and_media_assigned_to_them() -> None:
    visual, label = clusters(50)
    centres = fit_topics(visual, 4, seed=0)
    assert np.linalg.norm(centres, axis=1) == pytest.approx(1, abs=1e-5)
    topic = assign_topics(visual, centres)
    assert topic.dtype == np.int16
    assert len({(a, b) for a, b in zip(topic.tolist(), label.tolist(), strict=True)}) == 4  # one to one
    naive = [max(range(4), key=lambda t: float(centres[t] @ vector)) for vector in visual]
    assert topic.tolist() == naive


def test_the_same_seed_gives_the_same_topics() -> None:
    visual, _ = clusters(30)
    assert np.array_equal(fit_topics(visual, 5, seed=3), fit_topics(visual, 5, seed=3))


@pytest.mark.parametrize(("media", "topics"), [(1, 1), (19, 1), (35, 3), (400, 16)])
def test_few_media_have_few_topics(media: int, topics: int) -> None:
    visual, _ = clusters(100)
    assert fit_topics(visual[:media], 16, seed=0).shape == (topics, 16)


def test_equal_media_give_finite_centroids() -> None:
    assert np.isfinite(fit_topics(np.repeat(clusters(1)[0][:1], 60, axis=0), 4, seed=0)).all()


def test_typical_captions_distinguish_a_topic_from_the_others() -> None:
    text, label = clusters(20)
    captions = [f"{'abcd'[one]} {number % 5}" for number, one in enumerate(label.tolist())]
    found = select_typical_captions(text, label.astype(np.int16), captions, 5)
    assert [{caption[0] for caption in some} for some in found] == [{"a"}, {"b"}, {"c"}, {"d"}, set()]
    assert all(len(set(some)) == 3 for some in found[:4])
    towards = text[label == 1].mean(axis=0) - text.mean(axis=0)
    best = max(np.flatnonzero(label == 1), key=lambda row: float(text[row] @ towards))
    assert found[1][0] == captions[best]
