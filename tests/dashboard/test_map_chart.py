"""The chart of the map: topic names cover nothing, and columns of numbers and categories get colors."""

from itertools import combinations

import numpy as np
import pyarrow as pa

from auditor.query.map_queries import TopicLabel
from dashboard.map_chart import NAME_SIZE, draw_map, place_names, topic_annotation


def topics(count: int, spread: float) -> list[TopicLabel]:
    places = np.random.default_rng(0).uniform(-spread, spread, (count, 2))
    return [TopicLabel(i, float(x), float(y), 100 - i, [f"a caption {i}"]) for i, (x, y) in enumerate(places)]


def test_topic_names_cover_neither_points_nor_each_other() -> None:
    labels, ranges = topics(12, 0.7), ((-1.0, 1.0), (-1.0, 1.0))
    points = np.random.default_rng(1).uniform(-1, 1, (40, 2))
    points = np.concatenate([points, [(topic.x, topic.y) for topic in labels]])
    places = np.array(place_names(labels, points, ranges))
    width, height = 2 * NAME_SIZE[0], 2 * NAME_SIZE[1]
    for one, other in combinations(places, 2):
        assert abs(one[0] - other[0]) >= width or abs(one[1] - other[1]) >= 0.99 * height
    for place in places:
        assert not ((np.abs(points - place) < (0.49 * width, 0.49 * height)).all(axis=1)).any()
    assert np.abs(places[:, 0]).max() <= 1 - width / 2 + 1e-9  # a name ends inside the map
    near = np.abs(places - [(topic.x, topic.y) for topic in labels])
    assert np.median(near[:, 1]) < 0.3


def test_names_are_captions_that_read_like_captions_and_quotes_stay_quotes() -> None:
    captions = ["a cafÃ© at night", 'a "red" car & 2 < 3 dogs']
    annotation = topic_annotation(TopicLabel(3, 0.0, 0.0, 5, captions), (0.1, 0.1), dark=False)
    assert annotation["text"] == 'a "red" car &amp; 2 &lt; 3 dogs'
    assert topic_annotation(TopicLabel(3, 0.0, 0.0, 5, captions[:1]), (0, 0), dark=True)["text"] == "topic 3"


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
