"""Conditions of shapes select the points inside them; a simplified lasso keeps its form."""

import math
from pathlib import Path

import duckdb
import numpy as np
import pytest

from auditor.query import map_queries
from auditor.query.database import AuditDatabase
from auditor.query.map_queries import (
    CORNERS,
    Shape,
    build_shapes_condition,
    compute_map_density,
    decode_shapes,
    encode_shapes,
    list_topic_labels,
    sample_points,
    simplify_lasso,
)
from tests.support.synthetic import write_audit


def inside(shape: Shape, x: float, y: float) -> bool:
    """By the angle that the corners turn around a point."""
    turned = 0.0
    for (ax, ay), (bx, by) in zip(shape, [*shape[1:], shape[0]], strict=True):
        a, b = math.atan2(ay - y, ax - x), math.atan2(by - y, bx - x)
        turned += (b - a + math.pi) % (2 * math.pi) - math.pi
    return abs(turned) > math.pi


def selected(shapes: list[Shape], points: np.ndarray) -> list[bool]:
    values = ", ".join(f"({i}, {x}, {y})" for i, (x, y) in enumerate(points.tolist()))
    found = duckdb.sql(
        f"SELECT coalesce({build_shapes_condition(shapes, 'map_x', 'map_y')}, FALSE) AS chosen "
        f"FROM (VALUES {values}, (99999, NULL, NULL)) t(i, map_x, map_y) ORDER BY i"
    ).fetchall()
    return [row[0] for row in found]


STAR = [(0.9 * math.cos(a) * r, 0.9 * math.sin(a) * r) for a, r in zip(np.arange(10) * math.pi / 5, [1, 0.4] * 5)]  # noqa: B905


@pytest.mark.parametrize(
    "shape", [STAR, [(-0.5, -0.5), (0.5, -0.5), (0.5, 0.5)], [(0, 0), (0.8, 0), (0.8, 0.3), (0.2, 0.3), (0.2, 0.9)]]
)
def test_a_lasso_holds_what_lies_in_it(shape: Shape) -> None:
    points = np.random.default_rng(0).uniform(-1, 1, (500, 2))
    naive = [inside(shape, x, y) for x, y in points.tolist()]
    assert selected([shape], points) == [*naive, False] and 0 < sum(naive) < 500


def test_a_box_and_several_shapes() -> None:
    points = np.random.default_rng(1).uniform(-1, 1, (300, 2))
    box = [(0.2, 0.9), (-0.3, 0.1)]
    x, y = points.T
    in_box = (x >= -0.3) & (x <= 0.2) & (y >= 0.1) & (y <= 0.9)
    assert selected([box], points)[:-1] == in_box.tolist()
    together = [a or inside(STAR, *point) for a, point in zip(in_box.tolist(), points.tolist(), strict=True)]
    assert selected([box, STAR], points)[:-1] == together
    assert selected([], points) == [False] * 301


def test_a_lasso_of_many_corners_keeps_its_form() -> None:
    angle = np.linspace(0, 2 * np.pi, 400, endpoint=False)
    radius = 0.6 + 0.2 * np.sin(3 * angle)
    drawn = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    few = simplify_lasso([(x, y) for x, y in drawn.tolist()])
    assert 8 <= len(few) <= CORNERS
    points = np.random.default_rng(2).uniform(-1, 1, (1000, 2))
    full = [(x, y) for x, y in drawn.tolist()]
    differ = sum(inside(full, x, y) != inside(few, x, y) for x, y in points.tolist())
    assert differ <= 20
    assert simplify_lasso(STAR) == [(round(x, 3), round(y, 3)) for x, y in STAR]


def test_shapes_survive_a_url_and_nonsense_does_not() -> None:
    shapes = [[(0.1, -0.2), (0.5, 0.25)], simplify_lasso(STAR)]
    assert decode_shapes(encode_shapes(shapes)) == shapes
    for text in ("", "x", "1,2", "1,2;nan,3", "1,2;3", "1e9,2;3,4", "'; DROP TABLE x;--"):
        assert decode_shapes(text) == []


def test_points_are_the_first_rows_by_hash_with_their_own_values(tmp_path: Path) -> None:
    with AuditDatabase(write_audit(tmp_path / "audit", 900, 300)) as database:
        naive = database.run(
            "SELECT map_x AS x, similarity AS value, CAST(uid_order AS VARCHAR) AS uid_order, caption FROM measured "
            "WHERE map_x IS NOT NULL ORDER BY hash(uid_order), uid_order LIMIT 50"
        )
        assert sample_points(database, "media", "similarity", limit=50).select(naive.column_names).equals(naive)


def test_a_large_map_is_counted_from_a_part_of_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with AuditDatabase(write_audit(tmp_path / "audit", 20_000, 5000)) as database:
        every, labels = compute_map_density(database, "media"), list_topic_labels(database, "media")
        assert every.counts.sum() == database.value("SELECT count(map_x) FROM measured")
        monkeypatch.setattr(map_queries, "DRAWN_ROWS", 5000)
        part, few_labels = compute_map_density(database, "media"), list_topic_labels(database, "media")
    assert 4700 < part.counts.sum() < 5100 and (part.counts <= every.counts).all()
    np.testing.assert_array_equal(part.x_edges, every.x_edges)
    rows = {label.topic: label.rows for label in few_labels}
    assert {label.topic for label in labels if label.rows > 100} <= rows.keys()
    assert all(rows[label.topic] == pytest.approx(label.rows / 4, rel=0.3) for label in labels if label.rows > 400)
