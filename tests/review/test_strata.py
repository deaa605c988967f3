import numpy as np
import pytest

from auditor.review.strata import Stratification, draw_rows, stratify_rows


def make_stratification(labels: int = 100, rows: int = 5000) -> tuple[Stratification, np.ndarray]:
    generator = np.random.default_rng(3)
    p = np.where(generator.random(rows) < 0.1, generator.beta(8, 2, rows), generator.beta(1, 30, rows))
    return stratify_rows(p, p, p >= 0.5, p >= 0.2, labels), p


@pytest.mark.parametrize("labels", [1, 4, 37, 100, 4999, 5000, 9000])
def test_all_labels_are_given_and_no_stratum_gets_more_than_it_has(labels: int) -> None:
    found, _ = make_stratification(labels)
    assert (found.labels <= found.rows).all()
    assert found.labels.sum() == min(max(labels, 3), 5000)  # three groups with at least one label each


def test_rows_of_a_stratum_share_flag_and_filter_and_are_neighbours_in_suspicion() -> None:
    found, p = make_stratification()
    for h in range(len(found.labels)):
        inside = found.stratum == h
        assert set(p[inside] >= 0.5) == {bool(found.flagged[h])}
        assert set(p[inside] >= 0.2) == {bool(found.removed[h])}
        same = (found.flagged[found.stratum] == found.flagged[h]) & (found.removed[found.stratum] == found.removed[h])
        between = same & (p > p[inside].min()) & (p < p[inside].max())
        assert (found.stratum[between] == h).all()


def test_uncertain_rows_get_more_labels_each_than_sure_ones() -> None:
    found, p = make_stratification()
    rate = (found.labels / found.rows)[found.stratum]
    assert rate[(p > 0.3) & (p < 0.7)].mean() > 3 * rate[p < 0.02].mean()


def test_a_draw_has_no_row_twice_and_its_beginning_is_spread_over_the_strata() -> None:
    found, _ = make_stratification()
    rows, strata = draw_rows(found, seed=1)
    assert len(set(rows.tolist())) == len(rows) == 100
    assert (np.bincount(strata, minlength=len(found.labels)) == found.labels).all()
    half = np.bincount(strata[:50], minlength=len(found.labels))
    assert np.abs(half - found.labels / 2).max() <= 1
    assert (draw_rows(found, seed=1)[0] == rows).all() and (draw_rows(found, seed=2)[0] != rows).any()
