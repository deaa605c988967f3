"""The pages of the dashboard, run without a browser."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import streamlit
from streamlit.testing.v1 import AppTest
from streamlit.util import calc_hash

from auditor.dashboard_settings import Settings
from auditor.keep.thresholds import choose_cut
from auditor.keep.uncertainty_cuts import choose_uncertainty_cut, measure_cuts
from auditor.python_api import Audit
from dashboard.row_selection import RowSelection, list_slider_steps
from dashboard.url_state import GalleryView, parse_index, sample_query
from tests.support.planted import make_embeddings, write_planted
from tests.support.results import write_results
from tests.support.sources import write_sources
from tests.support.synthetic import write_audit, write_corpus_audit

APP = Path(__file__).resolve().parents[2] / "dashboard" / "app.py"
PAGES = ["overview", "browse", "review", "sample", "thresholds", "map", "shards", "faults", "compare", "benchmarks"]
HOSTILE = "**evil** <script>evil()</script> :red[evil]"
Open = Callable[..., AppTest]


@pytest.fixture(scope="module", autouse=True)
def closed_in_the_end() -> Iterator[None]:
    """Close the audits that Streamlit caches; otherwise DuckDB reports them as leaks when the process ends."""
    yield
    streamlit.cache_resource.clear()
    streamlit.cache_data.clear()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Open:
    def open_page(page: str, settings: Settings, **query: Any) -> AppTest:
        for name, value in settings.environment().items():
            monkeypatch.setenv(name, value)
        app = AppTest.from_file(str(APP), default_timeout=120)
        app._page_hash = calc_hash(page if page != "overview" else "")  # switch_page() does not support st.navigation
        for name, value in query.items():
            app.query_params[name] = value
        app.run()
        assert not app.exception, [error.value for error in app.exception]
        return app

    return open_page


def texts(app: AppTest) -> list[str]:
    return [element.value for element in app.text]


def marked(app: AppTest) -> str:
    """All text that Streamlit reads as Markdown."""
    elements = [*app.markdown, *app.caption, *app.subheader, *app.title, *app.header]
    return "\n".join(str(element.value) for element in elements)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An audit whose captions, keys and messages are Markdown and HTML, with a folder of results in it."""
    folder, _ = write_corpus_audit(tmp_path_factory.mktemp("hostile"), shards=1)
    file = folder / "samples" / "00000.parquet"
    table = pq.read_table(file)
    for name in ("caption", "error_message", "key"):
        place = table.schema.get_field_index(name)
        table = table.set_column(place, name, pa.array([HOSTILE] * table.num_rows))
    pq.write_table(table, file)
    (folder / "results").mkdir()
    write_results(folder / "results" / "results.json")
    return folder


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An audit of 120 pairs in two shards, scored from embeddings, with captions 40 to 59 shifted by one."""
    source = np.arange(120)
    source[40:60] += 1
    folder = tmp_path_factory.mktemp("planted") / "audit"
    write_planted(folder, *make_embeddings(120, 2), shards=2, source=source)
    return folder


@pytest.mark.parametrize("page", PAGES)
def test_every_page_opens_and_no_text_of_the_corpus_is_markdown(opened: Open, hostile: Path, page: str) -> None:
    app = opened(page, Settings((str(hostile), str(hostile)), None, str(hostile / "results")))
    assert app.text if page == "sample" else app.title
    assert "evil" not in marked(app)
    labels = [getattr(element, "label", "") for kind in ("button", "selectbox", "slider") for element in app.get(kind)]
    assert not any("evil" in str(label) for label in labels)
    assert page != "sample" or any(HOSTILE in text for text in texts(app))


def test_filters_change_the_gallery(opened: Open, small: tuple[Path, Path]) -> None:
    audit = Audit(small[0])
    app = opened("browse", Settings((str(small[0]),)))
    assert f"**{audit.count():,}** rows" in marked(app)
    app.text_input(key="text").set_value("dog").run()
    some = audit.count("contains(lower(caption), 'dog')")
    assert 0 < some < audit.count() and f"**{some:,}** rows" in marked(app)
    app.text_input(key="text").set_value("").run()
    app.query_params["status"] = "corrupt"
    app.segmented_control(key="look").set_value("cards").run()
    assert "**3** rows" in marked(app) and "cannot identify image file" in texts(app)
    app.text_input(key="where").set_value("no_such_column = 1").run()
    assert not app.exception and any("no_such_column" in text for text in texts(app))


def test_a_view_in_the_url_is_the_view(opened: Open, small: tuple[Path, Path]) -> None:
    app = opened("browse", Settings((str(small[0]),)), status="corrupt", sort="key", order="ascending")
    assert app.selectbox(key="sort").value == "key"
    assert "**3** rows" in marked(app)


def test_threshold_counts_are_those_of_sql(opened: Open, small: tuple[Path, Path]) -> None:
    audit = Audit(small[0])
    app = opened("thresholds", Settings((str(small[0]),)), max_p_mismatch="0.2")
    kept = audit.sql("SELECT count(*) AS n FROM samples WHERE status = 'ok' AND p_mismatch <= 0.2::FLOAT")["n"][
        0
    ].as_py()
    assert app.metric[0].value == f"{kept:,}"
    assert any("--max-p-mismatch 0.2 --out kept.npy" in code.value for code in app.code)


def test_balance_is_shown_as_topics_and_on_the_map(opened: Open, planted: Path) -> None:
    settings = Settings((str(planted),))
    with Audit(planted) as audit:
        kept = audit.keep(balance="topic", share="30%", by="similarity")
        query = {"keep_top": "30", "by": "similarity", "balance": "topic", "max_p_mismatch": "no limit"}
        app = opened("thresholds", settings, look="how the kept set differs", **query)
        assert app.metric[0].value == f"{kept.count:,}"
        assert kept.drift().describe_topics() in [caption.value for caption in app.caption]
        assert any("--keep-share 30% --balance topic" in code.value for code in app.code)
        rules = json.dumps(kept.rules.to_dict())
    app = opened("map", settings, rules=rules, colour="kept")
    [chart] = app.get("plotly_chart")
    names = [trace["name"] for trace in json.loads(chart.proto.spec)["data"]]
    assert {"kept", "left out"} <= set(names)
    assert opened("map", settings, rules="[nonsense").get("plotly_chart")


def test_a_cut_is_chosen_by_what_it_may_lose(opened: Open, small: tuple[Path, Path]) -> None:
    app = opened("thresholds", Settings((str(small[0]),)))
    next(button for button in app.button if button.label == "Set the cut").click().run()
    assert not app.exception
    cut = choose_cut(Audit(small[0]).database, lose_at_most=0.02).p
    assert 0 <= float(app.select_slider(key="max_p_mismatch").value) - cut < 0.001


def test_a_limit_on_uncertainty_shows_what_fails(opened: Open, small: tuple[Path, Path]) -> None:
    database = Audit(small[0]).database
    app = opened("thresholds", Settings((str(small[0]),)))
    app.button(key="max_uncertainty_text_set").click().run()
    assert not app.exception
    cut = choose_uncertainty_cut(database, "uncertainty_text", lose_at_most=0.02)
    chosen = app.select_slider(key="max_uncertainty_text").value
    assert chosen == "no limit" or float(chosen) >= cut.at
    [median, *_] = measure_cuts(database, "uncertainty_text")
    step = next(step for step in list_slider_steps(database, "uncertainty_text") if step >= median.at)
    app = opened("thresholds", Settings((str(small[0]),)), max_uncertainty_text=f"{step:g}")
    [cut] = measure_cuts(database, "uncertainty_text", [step])
    frames = [frame.value for frame in app.dataframe if "kept fail" in frame.value]
    assert len(frames) == 1 and frames[0]["removed"].tolist() == [cut.removed]
    assert frames[0]["kept fail"][0].startswith(f"{cut.fails_kept:.1%} (")


def test_a_sample_is_shown_and_marked(opened: Open, tmp_path: Path) -> None:
    folder, _ = write_corpus_audit(tmp_path)
    row = Audit(folder).worst(n=1).to_pylist()[0]
    query = {"uid": row["uid"], "shard": row["shard"], "caption": str(row["caption_index"])}
    app = opened("sample", Settings((str(folder),)), **query)
    assert row["caption"] in texts(app)
    app.button(key="mark-bad").click().run()
    assert not app.exception
    assert Audit(folder).row(row["uid"], row["caption_index"])["review"] == "bad"  # type: ignore[index]
    assert "100%** of 1" in marked(app)
    missing = opened("sample", Settings((str(folder),)), uid="f" * 32)
    assert "There is no such row" in marked(missing)


def test_reviewing_skips_no_row(opened: Open, tmp_path: Path) -> None:
    """A marked row leaves the selection `review = none`, and the next row takes its position."""
    folder, _ = write_corpus_audit(tmp_path)
    audit = Audit(folder)
    rows = audit.page(None, "p_mismatch", True, limit=8).to_pylist()
    for row in rows[:4]:
        audit.mark(row["uid"], "good", caption_index=row["caption_index"], reviewer="ann")
    cases = {"none": (rows[4:], ["0", "0"]), "reviewed": (rows[:4], ["1", "2"]), "": (rows[:4], ["1", "2"])}
    for review, (queue, places) in cases.items():
        view = GalleryView(RowSelection(review=review or None), grouped=False)
        app = opened("sample", Settings((str(folder),)), **sample_query(queue[0], view, 0), go_on="true")
        for row, place in zip(queue[1:3], places, strict=True):
            app.button(key="mark-bad").click().run()
            assert not app.exception
            assert (app.query_params["uid"], app.query_params["at"]) == (row["uid"], place), review
        app.toggle(key="go_on").set_value(False)
        app.button(key="mark-bad").click().run()
        app.button(key="next").click().run()
        assert app.query_params["uid"] == queue[3]["uid"], review


def test_next_unmarked_passes_over_what_this_reviewer_has_marked(opened: Open, tmp_path: Path) -> None:
    folder, _ = write_corpus_audit(tmp_path)
    audit = Audit(folder)
    rows = audit.page(None, "p_mismatch", True, limit=5).to_pylist()
    for row, reviewer in zip(rows[1:4], ("ann", "ann", "bob"), strict=True):
        audit.mark(row["uid"], "good", caption_index=row["caption_index"], reviewer=reviewer)
    query = sample_query(rows[0], GalleryView(RowSelection(), grouped=False), 0)
    app = opened("sample", Settings((str(folder),)), **query, reviewer="ann")
    app.button(key="next-unmarked").click().run()
    assert not app.exception
    assert (app.query_params["uid"], app.query_params["at"]) == (rows[3]["uid"], "3")


def test_empty_states_say_what_to_do(opened: Open, tmp_path: Path) -> None:
    assert "There is no audit to show" in marked(opened("overview", Settings()))
    broken = opened("overview", Settings((str(tmp_path),)))
    assert "cannot be opened" in marked(broken) and any("no manifest.json" in text for text in texts(broken))
    folder = write_audit(tmp_path / "started", 200)
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "state": "sweeping", "statistics": {}}))
    started = opened("overview", Settings((str(folder),)))
    assert "Not the whole corpus" in marked(started) and "Media cannot be shown" in marked(started)
    for file in (folder / "samples").iterdir():
        file.unlink()
    assert "Nothing has been audited yet" in marked(opened("overview", Settings((str(folder),))))
    assert "There is only one audit" in marked(opened("compare", Settings((str(folder),))))
    assert "There are no results" in marked(opened("benchmarks", Settings((str(folder),))))


def test_a_medium_with_two_captions_is_one_card(opened: Open, small: tuple[Path, Path]) -> None:
    audit = Audit(small[0])
    keys = audit.sql("SELECT count(*) AS n FROM (SELECT DISTINCT shard, key FROM samples)")["n"][0].as_py()
    app = opened("browse", Settings((str(small[0]),)), size="96")
    assert f"**{audit.count():,}** rows of **{keys:,}** media" in marked(app)
    app.toggle(key="grouped").set_value(False).run()
    assert "media" not in marked(app)


def test_duplicates_are_groups_with_counts(opened: Open, tmp_path: Path) -> None:
    folder = write_audit(tmp_path / "audit", 300)
    groups = Audit(folder).sql("SELECT count(DISTINCT duplicate_of) AS n FROM samples")["n"][0].as_py()
    app = opened("browse", Settings((str(folder),)), look="duplicates", size="12")
    assert groups and f"**{groups}** groups of duplicates among **300** rows" in marked(app)
    narrowed = opened("browse", Settings((str(folder),)), look="duplicates", where="FALSE")
    assert "No row meets these filters" in marked(narrowed)


def test_marks_of_two_reviewers_are_both_kept_and_their_disagreement_shown(opened: Open, tmp_path: Path) -> None:
    folder, _ = write_corpus_audit(tmp_path)
    row = Audit(folder).worst(n=1).to_pylist()[0]
    Audit(folder).mark(row["uid"], "good", caption_index=row["caption_index"], reviewer="ann")
    query = {"uid": row["uid"], "shard": row["shard"], "caption": str(row["caption_index"])}
    app = opened("sample", Settings((str(folder),)), **query)
    app.button(key="mark-bad").click().run()
    marks = Audit(folder).sql("SELECT reviewer, mark FROM reviews ORDER BY mark").to_pylist()
    assert [mark["mark"] for mark in marks] == ["bad", "good"]
    assert marks[0]["reviewer"].startswith("unnamed-") and marks[1]["reviewer"] == "ann"
    assert "reviewers disagree" in marked(app)
    assert any("1 said something else" in toast.value for toast in app.toast)
    divided = opened("browse", Settings((str(folder),)), review="reviewers disagree")
    assert "**1** rows" in marked(divided)


def test_a_caption_number_that_is_none_opens_the_first(opened: Open, small: tuple[Path, Path]) -> None:
    assert [parse_index(text) for text in ("12", "²", "-1", "9" * 40, "x")] == [12, None, None, None, None]
    row = Audit(small[0]).worst(n=1).to_pylist()[0]
    app = opened("sample", Settings((str(small[0]),)), uid=row["uid"], shard=row["shard"], caption="²", at="²")
    first = Audit(small[0]).row(row["uid"], 0)
    assert first is not None and first["caption"] in texts(app)


def list_links(page: AppTest, label: str) -> list[dict[str, str]]:
    """The parameters of the links with a label."""
    links = [link.proto for link in page.get("page_link")]
    return [dict(parse_qsl(link.query_string)) for link in links if link.label == label]


def count_browsed(page: AppTest) -> str:
    return next(element.value for element in page.markdown if " rows" in element.value)


def test_the_overview_links_each_finding_to_exactly_its_rows(opened: Open, small: tuple[Path, Path]) -> None:
    settings = Settings((str(small[0]),))
    findings = Audit(small[0]).findings()
    page = opened("overview", settings)
    links = list_links(page, "Show")
    assert len(findings) >= 3 and [link["where"] for link in links] == [finding.where for finding in findings]
    assert [code.value for code in page.code[: len(findings)]] == [finding.advice for finding in findings]
    for link, finding in zip(links, findings, strict=True):
        assert f"**{finding.rows:,}** rows" in count_browsed(opened("browse", settings, **link)), finding.name


def test_repairs_are_shown_before_and_after_to_accept_or_refuse(opened: Open, planted: Path) -> None:
    settings = Settings((str(planted),))
    assert "Nobody has looked" in " ".join(text.value for text in opened("faults", settings).markdown)
    audit = Audit(planted)
    audit.faults()
    before = audit.repairs()
    page = opened("faults", settings)
    assert "belong to the medium 1 place later" in texts(page)[0] + texts(page)[1]
    [link, *_] = list_links(page, "Show the rows")
    assert "**20** rows" in count_browsed(opened("browse", settings, **link))
    refuse = next(button for button in page.button if button.label == "Refuse")
    refuse.click().run()
    after = audit.repairs()
    assert len(after) == len(before) - 1 and f"refused-{before[0].uid}-0" == refuse.key
    assert before[0].uid not in {repair.uid for repair in after}


def test_a_sample_without_a_row_is_the_most_suspicious(opened: Open, small: tuple[Path, Path]) -> None:
    row = Audit(small[0]).worst(n=1).to_pylist()[0]
    assert row["caption"] in texts(opened("sample", Settings((str(small[0]),))))


def test_sources_of_captions_are_compared(opened: Open, tmp_path: Path) -> None:
    """A line for each source on Shards, and the same table and sentence on Compare."""
    path = write_sources(tmp_path).path
    page = opened("shards", Settings((path,)), by="caption_source")
    assert not page.exception and len(page.dataframe) == 2
    assert list(page.dataframe[1].value["source"]) == ["alt", "raw", "refined"]
    sentence = "alt is better for 0 media, raw for "
    assert any(sentence in text.value for text in page.text)
    other = opened("compare", Settings((path, path)))
    assert not other.exception and sum(sentence in text.value for text in other.text) == 2


def test_sources_of_captions_are_chosen(opened: Open, tmp_path: Path) -> None:
    audit = write_sources(tmp_path)
    app = opened("thresholds", Settings((audit.path,)), max_p_mismatch="no limit", prefer=["raw", "alt"])
    kept = audit.keep(prefer=["raw", "alt"])
    assert app.multiselect(key="prefer").value == ["raw", "alt"] and app.metric[0].value == f"{kept.count:,}"
    assert any("--prefer raw,alt --out kept.npy" in code.value for code in app.code)
    assert f"Sources of the kept captions: raw {kept.count:,}." in [caption.value for caption in app.caption]
    app.multiselect(key="prefer").set_value([]).run()
    assert not app.exception and app.metric[0].value == f"{audit.keep().count:,}"
    row = audit.sql(
        "SELECT key, shard FROM samples WHERE caption_source = 'raw' AND status = 'ok' LIMIT 1"
    ).to_pylist()[0]
    page = opened("sample", Settings((audit.path,)), **row, caption="0")
    assert any(text.value.startswith("refined: ") for text in page.text)
    facets = opened("browse", Settings((audit.path,)), caption_source="raw")
    rows = audit.count("caption_source = 'raw'")
    assert not facets.exception and f"**{rows:,}** rows" in marked(facets)


def test_shards_are_lines_of_a_heat_table(opened: Open, small: tuple[Path, Path]) -> None:
    audit = Audit(small[0])
    counts = audit.sql("SELECT shard, count(*) AS n FROM samples GROUP BY shard ORDER BY shard").to_pylist()
    app = opened("shards", Settings((str(small[0]),)), first="name")
    shown = app.dataframe[0].value
    assert list(zip(shown["group"], shown["rows"], strict=True)) == [(row["shard"], row["n"]) for row in counts]
    assert (shown["at least"] <= shown["mismatched"]).all() and (shown["mismatched"] <= shown["at most"]).all()
    app.selectbox(key="by").select("status").run()
    assert set(app.dataframe[0].value["group"]) == set(audit.counts["status"])


def test_a_shape_on_the_map_is_a_condition(opened: Open, planted: Path, tmp_path: Path) -> None:
    audit = Audit(planted)
    settings = Settings((str(planted),))
    for over, columns in {"media": ("map_x", "map_y"), "captions": ("map_text_x", "map_text_y")}.items():
        app = opened("map", settings, over=over, shape="-0.4,-1;0.5,1")
        some = audit.count(f"{columns[0]} BETWEEN -0.4 AND 0.5 AND {columns[1]} BETWEEN -1 AND 1")
        assert 0 < some < audit.count() and f"**{some:,}** rows" in marked(app)
        condition = next(code.value for code in app.code if "--where" in code.value)
        assert columns[0] in condition
    app = opened("map", settings, map_where="nonsense(")
    assert "cannot be used" in marked(app)
    kept = opened("thresholds", settings, keep_where="map_x BETWEEN -0.4 AND 0.5")
    some = audit.count("status = 'ok' AND map_x BETWEEN -0.4 AND 0.5 AND p_mismatch <= 1")
    assert kept.metric[0].value != f"{audit.count():,}" and int(kept.metric[0].value.replace(",", "")) <= some
    old = opened("map", Settings((str(write_audit(tmp_path / "old", rows=60)),)))
    assert "has no map" in marked(old) or old.get("plotly_chart")


def test_a_search_orders_the_gallery(opened: Open, planted: Path) -> None:
    settings = Settings((str(planted),))
    with Audit(planted) as audit:
        row = audit.page("status = 'ok'", limit=1).to_pylist()[0]
        nearest = audit.search(like=row["uid"], n=24)
    app = opened("browse", settings, like=f"{row['uid']}-0", look="cards")
    shown = [text for text in texts(app) if text in {one.caption for one in nearest}]
    assert shown[:5] == [one.caption for one in nearest[:5]]
    assert "the **119** nearest of **120** rows" in marked(app)
    instead = opened("browse", settings, like=f"{row['uid']}-0", search="a dog", look="cards")
    assert "nearest of **120** rows" in marked(instead)
    other = nearest[0]
    app.button(key=f"like-{other.uid}-{other.caption_index}").click().run()  # more like another, on the same page
    assert not app.exception and app.query_params["like"] == f"{other.uid}-{other.caption_index}"
    narrowed = opened("browse", settings, like=f"{row['uid']}-0", where="shard = '00001'")
    assert "the **60** nearest of **60** rows" in marked(narrowed)
    unknown = opened("browse", settings, search="a dog")
    assert "This search is not possible" in marked(unknown) and any(
        "by example still works" in text for text in texts(unknown)
    )


def test_a_caption_is_edited_and_taken_back(opened: Open, tmp_path: Path) -> None:
    folder, _ = write_corpus_audit(tmp_path, captions=2)
    audit = Audit(folder)
    row = audit.worst(n=1).to_pylist()[0]
    with Audit(folder) as other:
        other.edit(row["uid"], HOSTILE, caption_index=row["caption_index"], reviewer=HOSTILE)
    app = opened("sample", Settings((str(folder),)), **sample_query(row), reviewer="ann")
    assert row["caption"] in texts(app) and any(HOSTILE in text for text in texts(app))
    assert not [element for element in (*app.markdown, *app.caption) if "evil" in element.value]
    app.text_area[0].set_value("A dog runs. It\nis wet.").run()
    app.button(key="save-edit").click().run()
    assert not app.exception and any("Edited by ann" in text for text in texts(app))
    assert [edit.new_caption for edit in audit.edits()] == ["A dog runs. It is wet.", HOSTILE]
    next(button for button in app.button if button.label == "Drop").click().run()
    assert app.text_area[0].value == "It is wet."
    app.button(key="save-edit").click().run()
    assert audit.edits()[0].new_caption == "It is wet."
    next(button for button in app.button if button.label == "Use").click().run()
    assert app.text_area[0].value == row["caption"]  # the audited one comes first
    app.button(key="take-back").click().run()
    assert [edit.reviewer for edit in audit.edits()] == [HOSTILE]
    app.text_area[0].set_value("a\x07b").run()
    app.button(key="save-edit").click().run()
    assert any("control character" in text for text in texts(app)) and len(audit.edits()) == 1
