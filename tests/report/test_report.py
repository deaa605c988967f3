"""The report: one file, nothing from outside, other people's text as text."""

import base64
import hashlib
import html.parser
import io
import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from auditor.audit_folder.manifest import FORMAT
from auditor.cli import run_command_line
from auditor.python_api import Audit
from auditor.query.database import AuditDatabase
from auditor.report.report import render_report, write_report
from tests.support.synthetic import write_audit, write_corpus_audit

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)> \"quoted\" 'too' &amp; \x1b[31m \u202e"


class Page(html.parser.HTMLParser):
    """Tags and attributes, and the text between."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in {"meta", "img", "br"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An audit whose captions, keys and messages are all an attack."""
    path, _ = write_corpus_audit(tmp_path_factory.mktemp("report"), shards=2)
    for shard in (path / "samples").glob("*.parquet"):
        table = pq.read_table(shard)
        for name in ("caption", "key", "shard", "error_message"):
            place = table.schema.get_field_index(name)
            table = table.set_column(place, name, pa.array([HOSTILE] * len(table)))
        pq.write_table(table, shard)
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["settings"]["note"] = manifest["corpus"]["spec"] = manifest["model"]["spec"] = HOSTILE
    (path / "manifest.json").write_text(json.dumps(manifest))
    return path


def test_hostile_text_stays_text(hostile: Path) -> None:
    page = Page(render_report(AuditDatabase(hostile)))
    assert page.open == []
    assert {tag for tag, _ in page.tags}.isdisjoint({"script", "iframe", "object", "link", "a", "form", "base"})
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    text = "".join(page.words)
    assert "<script>alert(1)</script><img src=x onerror=alert(2)> \"quoted\" 'too' &amp;" in text
    assert "\x1b" not in text and "\u202e" not in text


def test_nothing_comes_from_outside(hostile: Path) -> None:
    text = render_report(AuditDatabase(hostile))
    page = Page(text)
    for _, attributes in page.tags:
        for name in ("src", "href", "xlink:href", "action", "style"):
            assert str(attributes.get(name, "data:")).startswith("data:image/jpeg;base64,") or name not in attributes
    policy = next(a["content"] for t, a in page.tags if t == "meta" and a.get("http-equiv"))
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    assert style is not None and policy is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert policy.startswith("default-src 'none'") and f"'sha256-{digest}'" in policy and "unsafe" not in policy
    assert "prefers-color-scheme: dark" in style[1] and "url(" not in style[1]


def test_report_shows_pictures_numbers_and_origin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, _ = write_corpus_audit(tmp_path, shards=2)
    audit = Audit(path)
    worst = audit.worst("p_mismatch", 1).to_pylist()[0]
    audit.mark(worst["uid"], "bad", caption_index=worst["caption_index"], reviewer="ann")
    size = write_report(audit.database, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert size == len(text.encode())
    page = Page(text)
    pictures = [str(a["src"]).partition("base64,")[2] for t, a in page.tags if t == "img"]
    assert len(pictures) == sum(len(finding.examples) for finding in audit.findings() if finding.name != "corrupt")
    assert Image.open(io.BytesIO(base64.b64decode(pictures[0]))).format == "JPEG"
    words = "".join(page.words)
    for finding in audit.findings():
        assert f"{finding.rows:,} {finding.title}" in words and finding.advice in words and finding.where in words
    assert worst["caption"] in words and "mismatched: about 7.0% (6.4 to 7.7), not counting related captions" in words
    assert "ViT-B-32@openai" in words and "open_clip_torch" in words and "2.15.0" in words
    assert "People judged 1 of the flagged pairs" in words
    assert sum(tag == "svg" for tag, _ in page.tags) == 9
    assert run_command_line(["report", str(path), "--out", str(tmp_path / "report.html")]) == 1
    assert "report.html exists; --force replaces it" in capsys.readouterr().err


def test_missing_corpus_leaves_words_in_place_of_pictures(tmp_path: Path) -> None:
    audit = Audit(write_audit(tmp_path / "audit", 200, 100))
    page = Page(render_report(audit.database))
    assert not [tag for tag, _ in page.tags if tag == "img"]
    assert any("not made here" in words for words in page.words)


def test_unfinished_and_empty_audits(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({"format": FORMAT, "state": "sweeping"}))
    page = Page(render_report(AuditDatabase(tmp_path)))
    assert any("this audit is not finished" in words for words in page.words)
