"""The running dashboard in a real Chromium: pages, filters, videos, counts, downloads and escaped text.

    pytest -m browser tests/dashboard/test_browser.py
    DASHBOARD_AUDIT=demo/audit pytest -m browser tests/dashboard/test_browser.py -k themes  # also updates README images

If DASHBOARD_PICTURES is set, that folder gets a screenshot of every page in both themes.
"""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from auditor.python_api import Audit
from dashboard.row_selection import list_slider_steps
from tests.support.browser import ROOT, TIMEOUT, serve_dashboard, visit_page, wait_until_idle
from tests.support.dashboard_audit import HOSTILE, HOSTILE_KEY

pytestmark = [pytest.mark.browser]
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

PAGES = ["overview", "browse", "review", "sample", "thresholds", "map", "shards", "faults", "compare", "benchmarks"]


def rows_shown(page: object) -> int:
    text = page.locator(".st-key-count").inner_text()  # type: ignore[attr-defined]
    return int(text.split()[0].replace(",", ""))


def expect_rows(page: object, count: int) -> None:
    """Wait until the gallery shows this number of rows; the page may still be running."""
    playwright.expect(page.locator(".st-key-count")).to_contain_text(f"{count:,}", timeout=TIMEOUT)  # type: ignore[attr-defined]
    assert rows_shown(page) == count


def read_marks(page: object, audit: Path, reviewer: str) -> list[str]:
    """The marks of a reviewer; waits up to 20 seconds for the first one."""
    opened = Audit(audit)
    for _ in range(100):
        marks = opened.sql("SELECT mark FROM reviews WHERE reviewer = ?", [reviewer])["mark"].to_pylist()
        if marks:
            break
        page.wait_for_timeout(200)  # type: ignore[attr-defined]
    return marks


def sample_url(url: str, row: dict[str, object]) -> str:
    return f"{url}/sample?uid={row['uid']}&shard={row['shard']}&caption={row['caption_index']}"


def test_filters_change_the_gallery_and_the_url(page, url: str, audit: Path) -> None:  # type: ignore[no-untyped-def]
    found = Audit(audit)
    visit_page(page, f"{url}/browse?look=cards")
    expect_rows(page, found.count())
    page.get_by_label("In the caption").fill("dog")
    page.get_by_label("In the caption").press("Enter")
    page.wait_for_url("**/browse?*text=dog*")
    wait_until_idle(page)
    some = found.count("contains(lower(caption), 'dog')")
    assert 0 < some < found.count()
    expect_rows(page, some)
    visit_page(page, f"{url}/browse?kind=video&size=12&look=cards")
    expect_rows(page, found.count("kind = 'video'"))
    first = page.locator("[class*=st-key-card-]").first.inner_text()
    playwright.expect(page.locator(".st-key-next button")).to_be_enabled(timeout=TIMEOUT)  # below the cards
    page.wait_for_timeout(200)  # its shortcut works from the next effect on
    page.keyboard.press("ArrowRight")
    page.wait_for_url("**page=2*")
    wait_until_idle(page)
    playwright.expect(page.locator("[class*=st-key-card-]").first).not_to_have_text(first, timeout=TIMEOUT)


def test_a_card_leads_to_its_sample_and_on_to_the_next(page, url: str, audit: Path) -> None:  # type: ignore[no-untyped-def]
    rows = Audit(audit).page("kind = 'video'", "p_mismatch", True, 2).to_pylist()
    visit_page(page, f"{url}/browse?kind=video&look=cards&grouped=false")  # a card for each caption
    card = page.locator(f"[class*=st-key-card-0-0-{rows[0]['uid']}]")  # others may be first while it is drawn
    card.get_by_role("link", name="Open").click()
    page.wait_for_url(f"**/sample?*{rows[0]['uid']}*")
    wait_until_idle(page)
    playwright.expect(page.get_by_text(rows[0]["caption"], exact=True).first).to_be_visible(timeout=TIMEOUT)
    page.get_by_role("button", name="Next Shortcut").click()
    page.wait_for_url(f"**/sample?*{rows[1]['uid']}*")
    wait_until_idle(page)
    playwright.expect(page.get_by_text(rows[1]["caption"], exact=True).first).to_be_visible(timeout=TIMEOUT)


def test_a_video_plays(page, url: str, audit: Path) -> None:  # type: ignore[no-untyped-def]
    row = Audit(audit).page("kind = 'video' AND status = 'ok'", limit=1).to_pylist()[0]
    visit_page(page, sample_url(url, row))
    page.locator("video").first.evaluate("video => { video.muted = true; return video.play(); }")
    page.wait_for_function("() => document.querySelector('video').currentTime > 0.3")
    assert page.locator("[class*=st-key-strip-] img").count() == row["frames"]


def test_a_timed_caption_plays_its_segment(page, url: str, audit: Path) -> None:  # type: ignore[no-untyped-def]
    """The player runs from the whole second before the span to the one after it."""
    row = Audit(audit).sql("SELECT * FROM samples WHERE key = 'timed' AND caption_index = 0").to_pylist()[0]
    assert (row["start"], row["end"]) == (2.4, 4.6)
    visit_page(page, sample_url(url, row))
    playwright.expect(page.get_by_text("The caption describes 0:02.4 to 0:04.6")).to_be_visible(timeout=TIMEOUT)
    began = page.locator("video").first.evaluate(
        "video => { video.muted = true; video.playbackRate = 0.5; return video.play().then(() => video.currentTime); }"
    )
    assert 2.0 <= began < 3.0
    page.locator("video").first.evaluate("video => { video.playbackRate = 1.5; }")
    page.wait_for_function("() => document.querySelector('video').paused")
    assert 5.0 <= page.locator("video").first.evaluate("video => video.currentTime") < 9.0  # of ten seconds
    visit_page(page, f"{url}/browse?where=key%20%3D%20%27timed%27")  # including the caption beyond the end
    expect_rows(page, 3)


def test_hostile_text_stays_text(page, url: str, audit: Path) -> None:  # type: ignore[no-untyped-def]
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    visit_page(page, f"{url}/browse?look=cards&sort=key&order=ascending&where=key%20%3C%20%27000003%27")
    for text in HOSTILE:
        playwright.expect(page.get_by_text(text, exact=True)).to_have_count(1, timeout=TIMEOUT)
    row = next(row for row in Audit(audit).page(limit=5).to_pylist() if row["key"] == HOSTILE_KEY)
    visit_page(page, sample_url(url, row))
    assert page.get_by_text(HOSTILE[0], exact=True).count()
    assert page.get_by_text(HOSTILE_KEY).count()
    assert page.evaluate("window.hacked") is None
    assert not [
        address for address in asked if not address.startswith((url, "data:", "blob:", url.replace("http", "ws")))
    ]


def test_threshold_counts_and_the_download(page, url: str, audit: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    found = Audit(audit)
    column = "uncertainty_text"
    steps = list_slider_steps(found.database, column)
    cut = f"{steps[len(steps) // 2]:g}"
    visit_page(page, f"{url}/thresholds?max_{column}={cut}")
    kept = found.sql(
        f"SELECT uid FROM samples WHERE status = 'ok' AND {column} <= CAST('{cut}' AS FLOAT) ORDER BY uid"
    )["uid"].to_pylist()
    shown = page.get_by_test_id("stMetric").filter(has_text="Kept").get_by_test_id("stMetricValue")
    playwright.expect(shown).to_have_text(f"{len(kept):,}", timeout=TIMEOUT)
    numbers = page.get_by_test_id("stMetric")
    heights = [numbers.nth(i).bounding_box()["height"] for i in range(numbers.count())]
    assert len(heights) == 4 and max(heights) - min(heights) <= 2  # cards of one height
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Download the subset").click()
    waiting.value.save_as(tmp_path / "kept.npy")
    loaded = np.load(tmp_path / "kept.npy", allow_pickle=False)
    assert loaded.dtype == np.dtype("u8,u8")
    assert [f"{a:016x}{b:016x}" for a, b in loaded.tolist()] == kept


def test_marks_are_kept(page, url: str, audit: Path) -> None:  # type: ignore[no-untyped-def]
    row = Audit(audit).page("kind = 'image' AND status = 'ok'", limit=1, offset=9).to_pylist()[0]
    visit_page(page, sample_url(url, row) + "&reviewer=ann")
    page.get_by_role("button", name="bad").click()
    wait_until_idle(page)
    assert read_marks(page, audit, "ann") == ["bad"]


def test_a_click_into_the_density_opens_its_rows(page, url: str, audit: Path) -> None:  # type: ignore[no-untyped-def]
    visit_page(page, url)
    cell = page.locator(".chart .cell[data-id]").first
    cell.scroll_into_view_if_needed()
    cell.click()
    page.wait_for_url("**/browse?*similarity=*")
    wait_until_idle(page)
    assert 0 < rows_shown(page) < Audit(audit).count("status = 'ok'")


def test_a_finding_opens_its_rows(page, url: str, audit: Path) -> None:  # type: ignore[no-untyped-def]
    worst = Audit(audit).findings().items[0]
    visit_page(page, url)
    page.locator(".st-key-pictures img").first.wait_for(timeout=60_000)  # filled last
    finding = page.locator(f".st-key-finding-{worst.name}")
    assert finding.bounding_box()["y"] < 500  # right below the pictures
    finding.get_by_role("link").click()
    page.wait_for_url("**/browse?*where=*")
    wait_until_idle(page)
    expect_rows(page, worst.rows)


def test_every_page_opens_in_both_themes(page, tmp_path: Path, url: str, audit: Path) -> None:  # type: ignore[no-untyped-def]
    """Each page has the background of its theme, shows neither an exception nor a promotion, and no request fails.

    By default Streamlit covers the top right corner with an offer to install its tools.
    """
    given, child = os.environ.get("DASHBOARD_AUDIT"), None
    if given:
        child, url = serve_dashboard([Path(given).resolve()] * 2, tmp_path)
        audit = Path(given)
    folder = os.environ.get("DASHBOARD_PICTURES") or (given and str(tmp_path))
    row = Audit(audit).page("kind = 'video' AND status = 'ok'", "p_mismatch", True, 1).to_pylist()[0]
    page.set_viewport_size({"width": 1440, "height": 1000})
    errors: list[str] = []
    page.on("response", lambda response: errors.append(response.url) if response.status >= 400 else None)
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    try:
        for name in PAGES:
            path = {"overview": "", "sample": sample_url("", row)[1:]}.get(name, name)
            page.emulate_media(color_scheme="light")
            visit_page(page, f"{url}/{path}")
            assert page.get_by_text("Page not found").count() == 0
            for theme, color in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(18, 22, 29)")):
                page.emulate_media(color_scheme=theme)
                playwright.expect(page.get_by_test_id("stApp")).to_have_css("background-color", color, timeout=TIMEOUT)
                wait_until_idle(page)
                assert page.get_by_test_id("stSkillsNudge").count() == page.get_by_text("agents").count() == 0
                if folder:
                    take_screenshot(page, Path(folder), name, theme, publish=bool(given))
            assert not errors, f"{name}: {errors}"
    finally:
        if child:
            child.terminate()
            child.wait(30)


def take_screenshot(page: object, folder: Path, name: str, theme: str, publish: bool) -> None:
    page.wait_for_timeout(1000)  # type: ignore[attr-defined]
    page.screenshot(path=folder / f"{name}-{theme}.png")  # type: ignore[attr-defined]
    if publish and (name, theme) in {("overview", "light"), ("browse", "dark")}:
        shutil.copy(folder / f"{name}-{theme}.png", ROOT / "docs" / "screenshots" / f"{name}.png")


def test_a_pair_and_its_verdict_fit_one_screen(page, url: str, audit: Path) -> None:  # type: ignore[no-untyped-def]
    row = Audit(audit).page("kind = 'image' AND status = 'ok'", limit=1, offset=9).to_pylist()[0]
    visit_page(page, sample_url(url, row))
    parts = [".st-key-medium img", ".st-key-caption", ".st-key-mark-good", ".st-key-mark-unsure", ".st-key-scores"]
    for width, height in ((1440, 900), (1280, 720)):
        page.set_viewport_size({"width": width, "height": height})
        for part in parts:
            box = page.locator(part).first.bounding_box()
            assert box["y"] >= 0 and box["y"] + box["height"] <= height, f"{part} is outside {width}x{height}: {box}"


def test_cards_are_of_one_height_and_can_be_marked(page, url: str, audit: Path) -> None:  # type: ignore[no-untyped-def]
    """A mark is stored although another reviewer made the same one: her mark must not look like his own."""
    first = Audit(audit).page("kind = 'image' AND status = 'ok'", "p_mismatch", True, 1).to_pylist()[0]
    Audit(audit).mark(first["uid"], "good", caption_index=first["caption_index"], reviewer="eve")
    visit_page(page, f"{url}/browse?look=cards&kind=image&status=ok&size=12&reviewer=ben")
    cards = page.locator("[class*=st-key-card-]")
    playwright.expect(cards.locator("[data-testid=stImage] img")).to_have_count(12, timeout=TIMEOUT)
    heights = {round(cards.nth(i).bounding_box()["height"]) for i in range(8)}
    assert max(heights) - min(heights) <= 2
    wait_until_idle(page)
    cards.first.get_by_test_id("stButtonGroup").locator("button").first.click()
    wait_until_idle(page)
    assert read_marks(page, audit, "ben") == ["good"]


def test_a_caption_is_edited_in_review_and_in_the_sample(page, url: str, audit: Path) -> None:  # type: ignore[no-untyped-def]
    with Audit(audit) as opened:
        row = opened.page("kind = 'image' AND status = 'ok'", limit=1, offset=15).to_pylist()[0]
    visit_page(page, f"{url}/review?queue=random&queue_where=uid%20%3D%20%27{row['uid']}%27&reviewer=editor")
    card = page.locator(".review-cards")
    playwright.expect(card.locator(".caption")).to_have_text(row["caption"], timeout=TIMEOUT)
    page.keyboard.press("e")
    card.locator("textarea").fill("<b>Ein</b> good Hund.")  # g and b are no marks here
    page.keyboard.press("Enter")
    playwright.expect(card.locator(".edited")).to_have_text("Edited by editor: <b>Ein</b> good Hund.", timeout=TIMEOUT)
    playwright.expect(card).to_have_attribute("data-waiting", "0", timeout=TIMEOUT)
    page.keyboard.press("e")
    page.keyboard.press("Escape")
    playwright.expect(card.locator("textarea")).to_have_count(0, timeout=TIMEOUT)
    visit_page(page, sample_url(url, row) + "&reviewer=editor")
    playwright.expect(page.locator(".st-key-edits")).to_contain_text("<b>Ein</b> good Hund.", timeout=TIMEOUT)
    page.locator("[class*=st-key-edit-] button").first.click()
    area = page.locator("textarea").first
    area.fill("Ein Hund im Schnee. Ein Ball.")
    area.press("Control+Enter")
    drops = page.get_by_role("button", name="Drop")
    playwright.expect(drops).to_have_count(2, timeout=TIMEOUT)  # they appear one after the other
    drops.last.click()
    playwright.expect(area).to_have_value("Ein Hund im Schnee.", timeout=TIMEOUT)
    page.locator(".st-key-save-edit button").click()
    playwright.expect(page.locator(".st-key-edits")).to_contain_text("Ein Hund im Schnee.", timeout=TIMEOUT)
    wait_until_idle(page)
    with Audit(audit) as opened:
        assert [edit.new_caption for edit in opened.edits()] == ["Ein Hund im Schnee."]
    page.locator("[class*=st-key-edit-] button").first.click()
    page.locator(".st-key-take-back button").click()
    playwright.expect(page.locator(".st-key-edits")).to_have_count(0, timeout=TIMEOUT)
    with Audit(audit) as opened:
        assert opened.edits() == []
