"""Charts: every row is drawn, text is escaped, numbers and ticks are right."""

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from auditor.python_api import Audit
from auditor.report.charts import (
    draw_bar_figure,
    draw_density,
    draw_grouped_columns,
    draw_histogram,
    draw_line_figure,
    draw_lines,
    draw_overlaid_histograms,
    draw_score_mixture,
    mixture_shares,
)
from auditor.report.plot_area import nice_ticks, power_ticks
from tests.support.synthetic import write_audit


def hinted_counts(pattern: str, chart: str) -> list[int]:
    return [int(number.replace(",", "")) for number in re.findall(pattern, chart)]


def test_charts_draw_every_row(tmp_path: Path) -> None:
    audit = Audit(write_audit(tmp_path / "audit", 500, 250))
    histogram = audit.histogram("similarity", "status = 'ok'", bins=20)
    chart = draw_histogram(histogram, "a <b> label", cut=0.2)
    assert chart.count('class="bar"') == (histogram.counts > 0).sum() and "a &lt;b&gt; label" in chart
    assert 'class="cut"' in chart
    assert sum(hinted_counts(r": ([\d,]+)</title></rect>", chart)) == histogram.total
    density = audit.density("similarity", "uncertainty_text", bins=10)
    assert draw_density(density, "x", "y").count('class="cell"') == (density.counts > 0).sum()
    clickable = draw_density(density, "x", "y", clickable=True)
    assert sum(hinted_counts(r"<title>([\d,]+) rows;", clickable)) == audit.count("status = 'ok'")
    column, row = re.findall(r'data-id="(\d+)-(\d+)"', clickable)[0]
    assert density.counts[int(row), int(column)] == hinted_counts(r"<title>([\d,]+) rows;", clickable)[0]


def test_a_small_share_of_mismatched_pairs_can_be_seen() -> None:
    """One part in a hundred of the highest bar is a tenth as high."""
    scores = {"edges": [0.0, 1.0, 2.0], "observed": [1.0, 99.0], "null": [1.0, 0.0]}
    root = ElementTree.fromstring(draw_score_mixture(scores, 0.01))
    low, high = (float(bar.attrib["height"]) for bar in root.iter("rect"))
    assert low / high == pytest.approx((1 / 99) ** 0.5, rel=0.05)


def test_the_parts_of_a_mixture_are_shares(tmp_path: Path) -> None:
    audit = Audit(write_audit(tmp_path / "audit", 500, 250))
    statistics = audit.database.manifest["statistics"]["image"]
    observed, null = mixture_shares(statistics["histogram"], statistics["pi0"])
    assert observed.sum() == pytest.approx(1) and null.sum() == pytest.approx(0.07)


def test_ticks() -> None:
    assert nice_ticks(0, 1) == [0, 0.2, 0.4, 0.6, 0.8, 1]
    assert nice_ticks(0, 87_000, 4) == [0, 25000, 50000, 75000]
    assert nice_ticks(2, 2) == [2]
    assert power_ticks(0.5, 2000) == [1, 10, 100, 1000]


def test_charts_are_well_formed_with_any_names(tmp_path: Path) -> None:
    series = {"a<script>": [(0.0, 1.0), (1.0, 1.0)], "b": []}
    root = ElementTree.fromstring(draw_line_figure("<b>&", "x", "y", series))
    assert len(root.findall("{http://www.w3.org/2000/svg}polyline")) == 2
    ElementTree.fromstring(draw_line_figure("", "", "", {}))
    for chart in (
        draw_lines(series, "<x>", "&y", diagonal=True, highlight=1),
        draw_lines({}, "", ""),
        draw_grouped_columns(["<1>", "2"], {"a&": [0.5, 0.1], "b": [0.2, 0.2]}, "<", ">"),
        draw_grouped_columns([], {}, "", ""),
    ):
        ElementTree.fromstring(chart)


def test_overlaid_histograms_are_drawn_as_shares(tmp_path: Path) -> None:
    audit = Audit(write_audit(tmp_path / "audit", 500, 250))
    counts = audit.histogram("similarity", bins=20)
    some = audit.histogram("similarity", "kind = 'video'", bins=20)
    root = ElementTree.fromstring(draw_overlaid_histograms({"first": counts, "same": counts, "part": some}, "x"))
    lines = [line.attrib["points"] for line in root.iter("polyline")]
    assert lines[0] == lines[1] and len(lines[2].split()) == 2 * 20


def test_bars_start_at_zero_and_carry_their_numbers() -> None:
    chart = draw_bar_figure("<b>&", "PCC", {"V": [("a<", 0.8), ("b", -0.4)], "T": [("a<", 0.4), ("b", float("nan"))]})
    root = ElementTree.fromstring(chart)
    bars = root.findall("{http://www.w3.org/2000/svg}rect")[1:]
    width = [float(bar.attrib["width"]) for bar in bars]
    assert width == pytest.approx([2 * width[1], width[1], width[1], 0], abs=0.2)
    zero = float(bars[0].attrib["x"])
    assert float(bars[1].attrib["x"]) + width[1] == pytest.approx(zero, abs=0.2)  # to the left of zero
    texts = [t.text for t in root.findall("{http://www.w3.org/2000/svg}text")]
    assert {"0.8", "-0.4", "0.4", "unknown"} <= set(texts)
    ElementTree.fromstring(draw_bar_figure("", "", {}))
