"""Drift of new rows: intervals have their coverage, and random differences of topics do not count as changes."""

import numpy as np

from auditor.score.statistics.growth import compare_means, compare_topics


def test_a_difference_of_means_lies_in_its_interval_in_about_95_of_100_runs() -> None:
    chance = np.random.default_rng(0)
    inside = clear = 0
    for _ in range(400):
        found = compare_means(
            "x", chance.normal(0, 1, 300).astype(np.float32), chance.normal(0.3, 2, 200).astype(np.float32)
        )
        inside += found.low <= 0.3 <= found.high
        clear += compare_means(
            "x", chance.normal(size=200).astype(np.float32), chance.normal(size=99).astype(np.float32)
        ).clear
    assert 0.92 <= inside / 400 <= 0.98
    assert clear / 400 <= 0.09


def test_missing_values_do_not_count() -> None:
    old = np.array([1, np.nan, 3], np.float32)
    found = compare_means("x", old, old + 1)
    assert (found.old, found.new, found.difference) == (2.0, 3.0, 1.0)


def test_topics_differ_only_if_their_distribution_does() -> None:
    chance = np.random.default_rng(1)
    shares = np.array([0.4, 0.3, 0.2, 0.1])
    same = [
        compare_topics(chance.multinomial(2000, shares), chance.multinomial(300, shares), seed) for seed in range(40)
    ]
    assert sum(found.clear for found in same) <= 2
    other = compare_topics(chance.multinomial(2000, shares), chance.multinomial(300, shares[::-1]))
    assert other.clear and abs(other.difference - 0.4) < 0.1 and other.low <= other.difference <= other.high
