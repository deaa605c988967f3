"""The pages that explore an audit, in a real Chromium: shards, map, review, search and words.

pytest -m browser tests/dashboard/test_browser_explore.py
"""

import re
from pathlib import Path
from urllib.parse import parse_qs, urlparse

import pytest

from auditor.python_api import Audit
from auditor.query.map_queries import build_shapes_condition, decode_shapes
from auditor.review.review_queues import fetch_queue
from tests.support.browser import TIMEOUT, visit_page, wait_until_idle
from tests.support.dashboard_audit import HOSTILE_KEY

pytestmark = [pytest.mark.browser]
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
playwright.expect.set_options(timeout=TIMEOUT)


def parameters(page: object) -> dict[str, list[str]]:
    return parse_qs(urlparse(page.url).query)  # type: ignore[attr-defined]


def drag(page: object, corners: list[tuple[float, float]]) -> None:
    """Drag the mouse over the map; corners are shares of its width and height."""
    box = page.get_by_test_id("stPlotlyChart").locator(".nsewdrag").first.bounding_box()  # type: ignore[attr-defined]
    places = [(box["x"] + box["width"] * x, box["y"] + box["height"] * y) for x, y in corners]
    mouse = page.mouse  # type: ignore[attr-defined]
    mouse.move(*places[0])
    mouse.down()
    for place in places[1:]:
        mouse.move(*place, steps=6)
    mouse.up()


def test_a_lasso_on_the_map_is_browsed(page, url: str, audit: Path) -> None:  # type: ignore[no-untyped-def]
    visit_page(page, f"{url}/map")
    names = page.get_by_test_id("stPlotlyChart").locator(".annotation-text")
    names.first.wait_for()
    assert names.count() >= 2 and all(names.all_text_contents())
    drag(page, [(0.1, 0.1), (0.6, 0.05), (0.55, 0.9), (0.1, 0.85), (0.1, 0.1)])
    page.wait_for_url("**/map?*shape=*")
    wait_until_idle(page)
    shapes = decode_shapes(parameters(page)["shape"][0])
    assert len(shapes) == 1 and len(shapes[0]) > 3  # a lasso, not a box
    rows = Audit(audit).count(build_shapes_condition(shapes, "map_x", "map_y"))
    assert 0 < rows < Audit(audit).count("map_x IS NOT NULL")
    playwright.expect(page.locator(".st-key-selected")).to_contain_text(f"{rows} rows", timeout=TIMEOUT)
    page.locator(".st-key-map-pictures .review-cards .card").first.wait_for()  # beside the map
    picture, chart = page.locator(".st-key-map-pictures").bounding_box(), page.locator(".st-key-map").bounding_box()
    assert picture["x"] >= chart["x"] + chart["width"] and chart["y"] + chart["height"] > 820  # of 900 pixels
    assert page.get_by_test_id("stPlotlyChart").bounding_box()["height"] > 650
    page.get_by_role("link", name="Browse them").click()
    page.wait_for_url("**/browse?*where=*")
    playwright.expect(page.locator(".st-key-count")).to_contain_text(f"{rows} rows", timeout=TIMEOUT)


def test_facets_narrow_browse_and_the_map_alike(page, url: str, audit: Path) -> None:  # type: ignore[no-untyped-def]
    """Counts reflect the other facets, a choice is in the URL, and another click takes it back."""
    with Audit(audit) as opened:
        videos, usable = opened.count("kind = 'video'"), opened.count("kind = 'video' AND status = 'ok'")
        placed = opened.count("kind = 'video' AND status = 'ok' AND map_x IS NOT NULL")
    visit_page(page, f"{url}/browse?kind=nonsense&shard=x&col-none=1")
    playwright.expect(page.locator(".st-key-count")).to_contain_text("0 rows")
    visit_page(page, f"{url}/browse")
    value = page.locator(".facets [data-name=kind] .value")
    playwright.expect(value.filter(has_text="video").locator(".count")).to_have_text(str(videos))
    value.filter(has_text="video").click()
    page.wait_for_url("**/browse?*kind=video*")
    playwright.expect(page.locator(".st-key-count")).to_contain_text(f"{videos} rows")
    status = page.locator(".facets [data-name=status] .value").filter(has_text="usable")
    playwright.expect(status.locator(".count")).to_have_text(str(usable))
    playwright.expect(value.filter(has_text="image")).to_be_visible()  # its own facet keeps its other values
    status.click()
    page.wait_for_url("**/browse?*status=ok*")
    playwright.expect(page.locator(".st-key-count")).to_contain_text(f"{usable} rows")
    wait_until_idle(page)  # the link has the new filters
    page.get_by_role("link", name="On the map").click()
    page.wait_for_url("**/map?*kind=video*")
    playwright.expect(page.locator(".st-key-selected")).to_contain_text(f"{placed} rows")
    cards = page.locator(".st-key-map-pictures .review-cards .card")
    playwright.expect(cards).to_have_count(min(placed, 24))
    page.locator(".facets [data-name=kind] .chosen").click()
    page.wait_for_function("() => !location.search.includes('kind=')")
    assert parameters(page)["status"] == ["ok"]
    with Audit(audit) as opened:
        rows = opened.count("status = 'ok' AND map_x IS NOT NULL")
    playwright.expect(page.locator(".st-key-selected")).to_contain_text(f"{rows} rows")


def test_a_selection_in_the_url_is_kept_as_a_filter(page, url: str, audit: Path) -> None:  # type: ignore[no-untyped-def]
    visit_page(page, f"{url}/map?shape=-0.5,-1;0.5,1&colour=topic")
    page.get_by_test_id("stPopoverButton").click()
    page.get_by_role("link", name="Keep only them").click()
    page.wait_for_url("**/thresholds?*keep_where=*")
    wait_until_idle(page)
    (condition,) = parameters(page)["keep_where"]
    with Audit(audit) as opened:
        kept = opened.rule_effects({"where": condition, "max_p_mismatch": 0.5}).kept
    visit_page(page, page.url + "&max_p_mismatch=0.5")
    shown = page.get_by_test_id("stMetric").filter(has_text="Kept").get_by_test_id("stMetricValue")
    playwright.expect(shown).to_have_text(f"{kept:,}", timeout=TIMEOUT)


def test_a_click_on_a_shard_browses_it(page, url: str, audit: Path) -> None:  # type: ignore[no-untyped-def]
    visit_page(page, f"{url}/shards?first=name")
    table = page.get_by_test_id("stDataFrame").first
    box = table.bounding_box()
    page.mouse.click(box["x"] + 60, box["y"] + 36 + 52)  # the second line
    page.wait_for_url("**/browse?*where=*")
    assert parameters(page)["where"] == ["\"shard\" = '00001'"]
    rows = Audit(audit).count("shard = '00001'")
    playwright.expect(page.locator(".st-key-count")).to_contain_text(f"{rows} rows", timeout=TIMEOUT)


def reviews(audit: Path, reviewer: str) -> list[dict[str, object]]:
    with Audit(audit) as opened:
        query = f"SELECT uid, caption_index, mark FROM reviews WHERE reviewer = '{reviewer}' ORDER BY time"
        return opened.sql(query).to_pylist()


def wait_for_reviews(page: object, audit: Path, reviewer: str, count: int) -> list[dict[str, object]]:
    for _ in range(300):
        if len(found := reviews(audit, reviewer)) == count:
            return found
        page.wait_for_timeout(100)  # type: ignore[attr-defined]
    raise AssertionError(f"{len(found)} marks instead of {count}")


def test_a_key_decides_and_the_next_picture_is_there_at_once(page, url: str, audit: Path) -> None:  # type: ignore[no-untyped-def]
    """Even if keys are faster than the server, each row gets its own mark, in the order of the queue."""
    with Audit(audit) as opened:
        expected = fetch_queue(opened.database, "most suspicious", "kind = 'image'", 200)[:9]
    visit_page(page, f"{url}/review?reviewer=kim&queue_where=kind%20%3D%20'image'")
    page.wait_for_selector(".review-cards .stage img")
    for key in "gbugbugb":
        page.keyboard.press(key)
        page.wait_for_timeout(40)
    stage = page.locator(".review-cards .stage")
    playwright.expect(stage).to_have_attribute("data-id", f"{expected[8].uid}-{expected[8].caption_index}")
    marks = wait_for_reviews(page, audit, "kim", 8)
    words = {"g": "good", "b": "bad", "u": "unsure"}
    assert [row["mark"] for row in marks] == [words[key] for key in "gbugbugb"]
    assert [row["uid"] for row in marks] == [place.uid for place in expected[:8]]
    latencies = page.locator(".review-cards").get_attribute("data-latencies")  # bench/review_speed.py reads them, too
    assert len(latencies.split()) == 8
    page.keyboard.press("z")  # undo: the last card is shown again
    assert [row["uid"] for row in wait_for_reviews(page, audit, "kim", 7)] == [place.uid for place in expected[:7]]
    playwright.expect(stage).to_have_attribute("data-id", f"{expected[7].uid}-{expected[7].caption_index}")
    playwright.expect(page.locator(".review-cards .side")).to_contain_text("7 of ")
    visit_page(page, f"{url}/review?reviewer=kim&queue_where=kind%20%3D%20'image'")  # continues where it stopped
    playwright.expect(stage).to_have_attribute("data-id", f"{expected[7].uid}-{expected[7].caption_index}")


def test_a_browser_without_a_name_keeps_its_marks_and_corrects_them(chromium, url: str, audit: Path) -> None:  # type: ignore[no-untyped-def]
    """A reopened page goes on, and another mark of the same browser replaces the first."""
    context = chromium.new_context(reduced_motion="reduce")
    where = "queue_where=kind%20%3D%20'video'"
    try:
        page = context.new_page()
        page.set_default_timeout(TIMEOUT)
        visit_page(page, f"{url}/review?{where}")
        stage = page.locator(".review-cards .stage")
        playwright.expect(stage).to_have_attribute("data-id", re.compile("-"))
        first = stage.get_attribute("data-id")
        page.keyboard.press("g")
        [cookie] = [one["value"] for one in context.cookies() if one["name"] == "auditor-reviewer"]
        [mark] = wait_for_reviews(page, audit, cookie, 1)
        assert mark["mark"] == "good" and f"{mark['uid']}-{mark['caption_index']}" == first
        page.close()
        page = context.new_page()
        page.set_default_timeout(TIMEOUT)
        visit_page(page, f"{url}/review?{where}")
        stage = page.locator(".review-cards .stage")
        playwright.expect(stage).to_have_attribute("data-id", re.compile("-"))
        assert stage.get_attribute("data-id") != first
        playwright.expect(page.locator(".review-cards .side")).to_contain_text("1 of ")
        visit_page(page, f"{url}/sample?uid={mark['uid']}&caption={mark['caption_index']}")
        page.get_by_role("button", name="bad").click()
        wait_until_idle(page)
        marks = [row["mark"] for row in reviews(audit, cookie)]
        assert marks == ["bad"]
    finally:
        context.close()


def test_the_evidence_of_a_card_that_stays_is_told_beside_it(page, url: str, audit: Path) -> None:  # type: ignore[no-untyped-def]
    visit_page(page, f"{url}/review?reviewer=ola&queue_where=key%20%3D%20'timed'")
    side = page.locator(".review-cards .side")
    playwright.expect(side.locator(".evidence").first).to_contain_text("above")
    playwright.expect(side).to_contain_text("The caption of the corpus that fits best")
    playwright.expect(side).to_contain_text("Other captions of this medium")
    caption, stage = side.locator(".caption").bounding_box(), page.locator(".review-cards .stage").bounding_box()
    assert caption["height"] > 20 and caption["x"] > stage["x"] + stage["width"]


def test_keys_typed_into_a_field_decide_nothing(page, url: str, audit: Path) -> None:  # type: ignore[no-untyped-def]
    visit_page(page, f"{url}/review?reviewer=lee")
    page.wait_for_selector(".review-cards .stage img, .review-cards .stage video")
    page.get_by_label("SQL condition").press_sequentially("bug")
    page.wait_for_timeout(500)
    assert reviews(audit, "lee") == []


def test_a_certification_sample_is_judged_without_scores(page, url: str, audit: Path) -> None:  # type: ignore[no-untyped-def]
    with Audit(audit) as opened:
        sample = opened.certification_sample(5)
    visit_page(page, f"{url}/review?reviewer=mia&queue=certification%20{sample.name}")
    page.wait_for_selector(".review-cards .stage img, .review-cards .stage video")
    page.wait_for_timeout(1000)  # evidence would come by now
    assert "mismatch" not in page.locator(".review-cards .side").inner_text()
    assert page.locator(".review-cards .evidence").count() == 0
    for _ in sample.rows:
        page.keyboard.press("g")
    playwright.expect(page.locator(".review-cards .stage")).to_contain_text("You have marked every row of this queue")
    wait_for_reviews(page, audit, "mia", 5)


def test_word_gains_are_shown_on_demand_and_escaped(page, url: str, audit: Path) -> None:  # type: ignore[no-untyped-def]
    with Audit(audit) as opened:
        row = opened.page(f"key = '{HOSTILE_KEY}'", limit=1).to_pylist()[0]
    visit_page(page, f"{url}/sample?uid={row['uid']}&shard={row['shard']}&words=true")
    playwright.expect(page.locator(".weighted")).to_have_count(len(row["caption"].split()), timeout=TIMEOUT)
    assert page.locator(".weighted-words").inner_text().split() == row["caption"].split()
    assert page.evaluate("window.hacked") is None
    playwright.expect(page.locator(".st-key-best")).to_contain_text("Best caption in the corpus")


def test_a_compact_gallery_shows_many_and_marks_them_together(page, url: str, audit: Path) -> None:  # type: ignore[no-untyped-def]
    visit_page(page, f"{url}/browse?kind=image&status=ok&reviewer=nia")
    cards = page.locator(".review-cards .card")
    playwright.expect(cards).to_have_count(24, timeout=TIMEOUT)
    boxes = [cards.nth(i).locator("img").bounding_box() for i in range(24)]
    assert sum(box["y"] + box["height"] <= 900 for box in boxes) >= 10  # of a screen of 1440x900
    page.set_viewport_size({"width": 1280, "height": 720})
    boxes = [cards.nth(i).bounding_box() for i in range(24)]
    assert sum(box["y"] + box["height"] <= 720 for box in boxes) >= 10  # whole cards
    cards.nth(1).click()
    cards.nth(4).click(modifiers=["Shift"])
    ids = [cards.nth(i).get_attribute("data-id") for i in range(1, 5)]
    page.keyboard.press("b")
    found = wait_for_reviews(page, audit, "nia", 4)
    assert {f"{row['uid']}-{row['caption_index']}" for row in found} == set(ids)
    assert {row["mark"] for row in found} == {"bad"}
    playwright.expect(cards.nth(2).locator(".mark")).to_have_text("bad")
    page.keyboard.press("z")
    wait_for_reviews(page, audit, "nia", 0)


def test_a_text_is_searched_for_and_more_like_a_card(page, url: str, audit: Path) -> None:  # type: ignore[no-untyped-def]
    visit_page(page, f"{url}/browse?status=ok")
    page.get_by_label("Search", exact=True).fill("a dog on a beach")
    page.get_by_label("Search", exact=True).press("Enter")
    page.wait_for_url("**/browse?*search=*")
    playwright.expect(page.locator(".st-key-count")).to_contain_text("nearest of", timeout=TIMEOUT)
    wait_until_idle(page)
    with Audit(audit) as opened:
        nearest = opened.search("a dog on a beach", n=24, where="status = 'ok'")
        cards = page.locator(".review-cards .card")
        first = f"{nearest[0].uid}-{nearest[0].caption_index}"
        playwright.expect(cards.first).to_have_attribute("data-id", first, timeout=TIMEOUT)
        cards.nth(2).get_by_role("button", name="more like this").click()
        page.wait_for_url(f"**/browse?*like={nearest[2].uid}*")
        assert parameters(page)["status"] == ["ok"]  # the filters stay, in the URL too
        like = opened.search(like=nearest[2].uid, caption_index=nearest[2].caption_index, n=3)
    playwright.expect(cards.first).to_have_attribute(
        "data-id", f"{like[0].uid}-{like[0].caption_index}", timeout=TIMEOUT
    )
    cards.first.get_by_role("button", name="open").click()
    page.wait_for_url(f"**/sample?*{like[0].uid}*")
