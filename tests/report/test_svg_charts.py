"""Charts: every row is drawn, any text is text, figures and ticks are right."""

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from auditor.audit import Audit
from auditor.report.svg_charts import (
    bar_chart,
    density_chart,
    histogram_chart,
    line_chart,
    nice_ticks,
    null_chart,
    power_ticks,
)
from tests.support.synthetic import write_audit


def test_charts_draw_every_row(tmp_path: Path) -> None:
    audit = Audit(write_audit(tmp_path / "audit", 500, 250))
    counted = audit.histogram("similarity", "status = 'ok'", bins=20)
    drawn = histogram_chart(counted, "a <b> label", cut=0.2)
    assert drawn.count('class="bar"') == (counted.counts > 0).sum() and "a &lt;b&gt; label" in drawn
    assert 'class="cut"' in drawn
    shown = [int(n.replace(",", "")) for n in re.findall(r": ([\d,]+)</title></rect>", drawn)]
    assert sum(shown) == counted.total
    cells = audit.density("similarity", "uncertainty_text", bins=10)
    assert density_chart(cells, "x", "y").count('class="cell"') == (cells.counts > 0).sum()


def test_a_small_share_of_mismatched_pairs_can_be_seen() -> None:
    """One part in a hundred of the highest bar is a tenth as high."""
    root = ElementTree.fromstring(null_chart([0.0, 1.0, 2.0], [1.0, 99.0], [1.0, 0.0], 0.01))
    low, high = (float(bar.attrib["height"]) for bar in root.iter("rect"))
    assert low / high == pytest.approx((1 / 99) ** 0.5, rel=0.05)


def test_ticks() -> None:
    assert nice_ticks(0, 1) == [0, 0.2, 0.4, 0.6, 0.8, 1]
    assert nice_ticks(0, 87_000, 4) == [0, 25000, 50000, 75000]
    assert nice_ticks(2, 2) == [2]
    assert power_ticks(0.5, 2000) == [1, 10, 100, 1000]


def test_chart_is_well_formed_whatever_the_names() -> None:
    chart = line_chart("<b>&", "x", "y", {"a<script>": [(0.0, 1.0), (1.0, 1.0)], "b": []})
    root = ElementTree.fromstring(chart)
    assert len(root.findall("{http://www.w3.org/2000/svg}polyline")) == 2
    ElementTree.fromstring(line_chart("", "", "", {}))


def test_bars_start_at_zero_and_carry_their_figures() -> None:
    chart = bar_chart("<b>&", "PCC", {"V": [("a<", 0.8), ("b", -0.4)], "T": [("a<", 0.4), ("b", float("nan"))]})
    root = ElementTree.fromstring(chart)
    drawn = root.findall("{http://www.w3.org/2000/svg}rect")[1:]
    width = [float(r.attrib["width"]) for r in drawn]
    assert width == pytest.approx([2 * width[1], width[1], width[1], 0], abs=0.2)
    zero = float(drawn[0].attrib["x"])
    assert float(drawn[1].attrib["x"]) + width[1] == pytest.approx(zero, abs=0.2)  # to the left of zero
    texts = [t.text for t in root.findall("{http://www.w3.org/2000/svg}text")]
    assert {"0.8", "-0.4", "0.4", "not known"} <= set(texts)
    ElementTree.fromstring(bar_chart("", "", {}))
