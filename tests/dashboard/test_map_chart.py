"""The chart of the map: topic names do not overlap, and columns of numbers and categories get colors."""

from itertools import combinations

import numpy as np
import pyarrow as pa

from auditor.query.map_queries import TopicLabel
from dashboard.map_chart import NAME_SIZE, draw_map, separate_names


def topics(count: int, spread: float) -> list[TopicLabel]:
    places = np.random.default_rng(0).uniform(-spread, spread, (count, 2))
    return [TopicLabel(i, float(x), float(y), 100 - i, [f"a caption {i}"]) for i, (x, y) in enumerate(places)]


def test_topic_names_do_not_overlap() -> None:
    given, (width, height) = topics(16, 0.4), (2 * NAME_SIZE[0], NAME_SIZE[1])
    placed = separate_names(given, (2.0, 1.0))
    near = [(one, other) for one, other in combinations(placed, 2) if abs(one.x - other.x) < width]
    assert near and all(abs(one.y - other.y) > 0.99 * height for one, other in near)
    assert placed[0] == given[0]  # the largest topic stays where it is
    assert {topic.topic for topic in placed} == set(range(16)) and placed != given


def test_names_without_overlap_do_not_move() -> None:
    given = [TopicLabel(i, -0.9 + 0.45 * i, 0.1 * i, 5, []) for i in range(4)]
    assert separate_names(given, (2.0, 2.0)) == given


def test_the_map_fills_its_page() -> None:
    rows = pa.table({"x": [0.0], "y": [0.0], "value": [0.5], "uid_order": ["1"], "caption": ["a"]})
    layout = draw_map(rows, "p_mismatch", [], [], None, sides=[(-1.0, 1.0), (-0.2, 0.3)], dark=True).layout
    assert layout.xaxis.range[0] < -1 < 1 < layout.xaxis.range[1]
    assert -0.25 < layout.yaxis.range[0] < -0.2 and 0.3 < layout.yaxis.range[1] < 0.35


def list_trace_names(values: pa.Array, colour: str) -> list[str]:
    """The names of the traces of a chart."""
    count = len(values)
    rows = pa.table({"x": np.zeros(count), "y": np.zeros(count), "value": values,
                     "uid_order": [str(i) for i in range(count)], "caption": ["<b>a</b>"] * count})  # fmt: skip
    return [trace.name for trace in draw_map(rows, colour, [], [], None, dark=False).data]


def test_numbers_get_a_color_scale_and_topics_a_color_each() -> None:
    assert list_trace_names(pa.array([0.1, 0.2, None]), "aesthetics_score") == ["no value", "aesthetics_score"]
    assert list_trace_names(pa.array([1, 2, 2], pa.int16()), "topic") == ["Topic 2", "Topic 1"]
