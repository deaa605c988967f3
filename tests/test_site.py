"""The documentation as a site: it builds without a warning, all links and anchors lead somewhere, nothing is remote."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

pytest.importorskip("material", reason="the extra `docs` is not installed")
from docs.site_hooks import convert_formulas

ROOT = Path(__file__).resolve().parents[1]
LOADING = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


class PageParser(HTMLParser):
    """Collects ids, links and what a page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.ids |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in LOADING and LOADING[tag] in values and values.get("rel") != "canonical":
            self.loads.append(values[LOADING[tag]])


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, PageParser]:
    site = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(site)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    parsers = {}
    for path in site.glob("*.html"):
        parsers[path] = PageParser()
        parsers[path].feed(path.read_text(encoding="utf-8"))
    return parsers


def test_each_page_of_docs_is_there(pages: dict[Path, PageParser]) -> None:
    assert {path.stem for path in (ROOT / "docs").glob("*.md")} <= {path.stem for path in pages}


def test_links_and_anchors_lead_somewhere(pages: dict[Path, PageParser]) -> None:
    broken = []
    for page, parser in pages.items():
        for link in parser.links:
            address, anchor = urldefrag(link)
            if "://" in address or address.startswith("mailto:") or page.name in ("404.html", "demo-report.html"):
                continue
            target = (page.parent / unquote(address)).resolve() if address else page
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file() or (anchor and target in pages and unquote(anchor) not in pages[target].ids):
                broken.append(f"{page.name}: {link}")
    assert not broken
    assert sum(len(parser.links) for parser in pages.values()) > 500


def test_nothing_is_loaded_from_other_servers(pages: dict[Path, PageParser]) -> None:
    remote = [load for parser in pages.values() for load in parser.loads if "://" in load or load.startswith("//")]
    assert not remote
    site = next(iter(pages)).parent
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert not re.findall(r"(?:@import|url\()\s*[\"']?https?:", styles)


def test_the_search_index_has_the_text_of_the_pages(pages: dict[Path, PageParser]) -> None:
    index = (next(iter(pages)).parent / "search" / "search_index.js").read_text(encoding="utf-8")
    assert "from 1,000 photos of your own" in index and "p_mismatch" in index


def test_formulas_become_mathml_outside_of_code() -> None:
    page = convert_formulas("a `$x$` costs $5 and $6, $\\alpha = 1$\n```\n$ auditor $HOME\n```\n$$u^2$$")
    assert page.count("<math") == 2 and "`$x$` costs $5 and $6" in page and "$ auditor $HOME" in page
