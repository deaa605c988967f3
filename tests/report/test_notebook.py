"""Views in notebooks: self-contained, escaped, bounded, never an exception; the gallery; Altair charts."""

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from auditor.errors import AuditorError
from auditor.python_api import Audit
from auditor.query.explain import Explanation, Fit
from auditor.query.search import SearchResults
from auditor.report import notebook
from tests.support.browser import launch_chromium
from tests.support.synthetic import write_audit, write_corpus_audit

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)> \x1b[31m " + "long " * 200


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path, _ = write_corpus_audit(tmp_path_factory.mktemp("views"), shards=2)
    for shard in (path / "samples").glob("*.parquet"):
        table = pq.read_table(shard)
        place = table.schema.get_field_index("caption")
        pq.write_table(table.set_column(place, "caption", pa.array([HOSTILE] * len(table))), shard)
    return path


@pytest.fixture(scope="module")
def audit(folder: Path) -> Audit:
    return Audit(folder)


def explain(audit: Audit) -> Explanation:
    row, other = audit.worst(n=2).to_pylist()
    fit = Fit(**{name: other[name] for name in ("uid", "key", "caption_index", "shard", "caption")}, similarity=0.5)
    explanation = Explanation(row, "corpus", [fit], [fit], 2, 40, 3, 40, reasons=["a reason"])
    object.__setattr__(explanation, "database", audit.database)
    return explanation


def search(audit: Audit) -> SearchResults:
    results = SearchResults(explain(audit).media)
    results.database = audit.database
    return results


VIEWS: dict[str, tuple[Callable[[Audit], Any], str, int]] = {  # words, and least number of pictures
    "audit": (lambda audit: audit, "of image pairs mismatched", 8),
    "summary": (lambda audit: audit.summary(), "usable rows", 0),
    "findings": (lambda audit: audit.findings(), "cannot be decoded", 1),
    "subset": (lambda audit: audit.keep(max_p_mismatch=0.5), "usable pairs kept", 8),
    "cuts": (lambda audit: audit.cut_offs(), "good lost", 0),
    "explanation": (explain, "its caption is number 2 of the 40", 2),
    "search": (search, "similarity 0.50", 1),
    "gallery": (lambda audit: audit.show(n=24), "p_mismatch", 24),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_are_self_contained_escaped_and_small(name: str, audit: Audit) -> None:
    make, words, pictures = VIEWS[name]
    page = make(audit)._repr_html_()
    assert words in page and page.count("data:image/jpeg;base64,") >= pictures
    assert "cannot be shown" not in page and "cannot be drawn" not in page
    assert "<script" not in page and "onerror=alert" not in re.sub(r"&lt;.*?&gt;", "", page) and "\x1b" not in page
    assert "long " * 60 not in page and len(page) < 300_000
    assert not re.findall(r"(?:src|href)=\"(?!data:)", page) and "@import" not in page and "url(" not in page
    assert page.count("<div") == page.count("</div>")
    if name in ("audit", "summary", "cuts"):
        assert "<svg" in page


def test_the_gallery_orders_rows_and_shows_reasons(audit: Audit) -> None:
    shown = audit.show(by="similarity", n=5)
    assert [row["similarity"] for row in shown] == audit.worst("similarity", 5)["similarity"].to_pylist()
    assert "similarity" in repr(shown).splitlines()[0] and "similarity" in shown._repr_html_()
    broken = audit.show(where="status <> 'ok'", n=4)
    page = broken._repr_html_()
    assert len(broken) == 2 and page.count(broken[0]["error_message"]) == 2 and "data:image" not in page
    assert repr(audit.show(where="FALSE")) == "no rows"
    with pytest.raises(AuditorError, match="did you mean similarity"):
        audit.show(by="similarty")
    with pytest.raises(AuditorError, match="n is a whole number"):
        audit.show(n="all")  # type: ignore[arg-type]


def test_pictures_stop_at_the_size_of_a_view(audit: Audit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook, "PICTURES", 12_000)
    page = audit.show(n=24)._repr_html_()
    assert page is not None
    assert 1 <= page.count("data:image") < 12 and page.count("data:image") + page.count("the view is full") == 24


def test_a_missing_corpus_and_damaged_files_become_sentences(folder: Path, tmp_path: Path) -> None:
    nowhere = Audit(write_audit(tmp_path / "nowhere", 300))
    page = nowhere._repr_html_()
    assert page is not None and "not made here" in page and "data:image" not in page
    shutil.copytree(folder, tmp_path / "damaged")
    damaged = Audit(tmp_path / "damaged")
    kept = damaged.keep()
    for shard in (tmp_path / "damaged" / "samples").iterdir():
        shard.write_bytes(b"PAR1 damaged PAR1")
    page = damaged._repr_html_()
    assert page is not None and page.count("cannot be shown") == 3
    page = kept._repr_html_()
    assert page is not None and "This view cannot be drawn" in page and page.count("<") == 2


def test_a_result_without_an_audit_has_a_view(audit: Audit) -> None:
    row = audit.worst(n=1).to_pylist()[0]
    page = Explanation(row, "nothing")._repr_html_()
    assert page is not None and "no preview" in page


def test_altair_charts_are_bounded(tmp_path: Path) -> None:
    pytest.importorskip("altair")
    audit = Audit(write_audit(tmp_path / "audit", 3000))
    charts = {name: getattr(audit.plot, name)().to_dict() for name in ("mixture", "map", "thresholds")}
    rows = {name: next(iter(find_values(chart))) for name, chart in charts.items()}
    assert len(rows["map"]) == 2000 and set(rows["map"][0]) == {"x", "y", "p_mismatch", "caption"}
    assert {row["kind"] for row in rows["mixture"]} == {"image", "video"} and len(rows["mixture"]) == 100
    cut = next(row for row in rows["thresholds"] if row["cut"] == 0.5 and row["share"] == "caught")
    assert cut["value_low"] <= cut["value"] <= cut["value_high"]
    assert cut["value"] == audit.cut_offs([0.5])[0].caught
    assert all(len(json.dumps(chart)) < 500_000 for chart in charts.values())
    topics = audit.plot.map(color="topic", n=10).to_dict()
    assert topics["encoding"]["color"]["type"] == "nominal" and len(next(iter(find_values(topics)))) == 10
    with pytest.raises(AuditorError, match="over must be media or captions"):
        audit.plot.map(over="words")
    with pytest.raises(AuditorError, match="nothing to draw"):
        audit.plot.map(where="FALSE")


def find_values(chart: Any) -> list[list[dict[str, Any]]]:
    """The inline data of a chart, wherever Altair puts it."""
    if isinstance(chart, dict):
        own = [chart["values"]] if isinstance(chart.get("values"), list) else []
        own += list(chart.get("datasets", {}).values())
        return own + [values for child in chart.values() for values in find_values(child)]
    return [values for child in chart for values in find_values(child)] if isinstance(chart, list) else []


def test_a_missing_altair_is_one_line(audit: Audit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)
    with pytest.raises(AuditorError, match=r"pip install 'pau-auditor\[notebook\]'"):
        audit.plot.mixture()


@pytest.mark.browser
def test_colors_follow_the_theme_of_the_page(audit: Audit, tmp_path: Path) -> None:
    """Jupyter and VS Code mark their theme on the body; elsewhere the system decides."""
    light, dark = "rgb(246, 246, 243)", "rgb(20, 22, 26)"
    bodies = {
        'data-jp-theme-light="true"': (light, light),
        'data-jp-theme-light="false"': (dark, dark),
        'class="vscode-dark"': (dark, dark),
        'class="vscode-light"': (light, light),
        "": (light, dark),
    }
    with launch_chromium() as browser:
        for attributes, colors in bodies.items():
            path = tmp_path / "page.html"
            path.write_text(f"<!doctype html><body {attributes}>{audit.cut_offs()._repr_html_()}", encoding="utf-8")
            for scheme, color in zip(("light", "dark"), colors, strict=True):
                page = browser.new_page(color_scheme=scheme)  # type: ignore[attr-defined]
                page.goto(path.as_uri(), timeout=60_000)
                read = "() => getComputedStyle(document.querySelector('.auditor-view')).backgroundColor"
                assert page.evaluate(read) == color, (attributes, scheme)
                page.close()
