"""Dataset cards: what they say, what they leave alone byte for byte, and what they refuse."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from auditor.audit_folder.fault_records import Fault, write_faults
from auditor.audit_folder.folder import Folder
from auditor.cli import run_command_line
from auditor.python_api import Audit
from auditor.report.dataset_card import BEGIN, END, update_card
from tests.support.synthetic import write_audit, write_corpus_audit


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_audit(tmp_path_factory.mktemp("card") / "audit", 400, 200)


def read_metadata(card: Path) -> dict[str, Any]:
    _, metadata, _ = card.read_text(encoding="utf-8").split("---\n", 2)
    content: dict[str, Any] = yaml.safe_load(metadata)
    return content


def write_card(audit: Path, card: Path, *options: str) -> None:
    assert run_command_line(["card", str(audit), "--out", str(card), *options]) == 0


def test_a_new_card_says_what_was_found(audit: Path, tmp_path: Path) -> None:
    card = tmp_path / "README.md"
    write_card(audit, card)
    facts = read_metadata(card)["auditor"]
    [noise, _] = Audit(audit).summary().noise
    assert facts["rows"] == 400 and facts["model"] == "ViT-B-32@openai" and facts["corpus"] == "/nowhere"
    assert facts["mismatched_images"] == [noise.share, noise.low, noise.high]
    text = card.read_text()
    assert text.count(BEGIN) == text.count(END) == 1
    finding = next(iter(Audit(audit).findings()))
    assert f"- {finding.rows:,} ({finding.percent}) {finding.title}" in text
    assert "mismatched images: about 7.0% (6.4 to 7.7)" in text
    assert "auditor audit /nowhere --out audit --model ViT-B-32@openai" in text and "### Removed" not in text


def test_the_digest_is_that_of_the_corpus(audit: Path, tmp_path: Path) -> None:
    digests = []
    for name, seed, per_shard in (("a", 0, 200), ("b", 0, 200), ("c", 1, 200)):
        other = write_audit(tmp_path / name, 400, per_shard, seed)
        write_card(other, tmp_path / f"{name}.md")
        digests.append(read_metadata(tmp_path / f"{name}.md")["auditor"]["corpus_digest"])
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize("newline", [b"\n", b"\r\n"], ids=["lf", "crlf"])
def test_every_other_byte_of_a_card_stays(audit: Path, tmp_path: Path, newline: bytes) -> None:
    card = tmp_path / "README.md"
    metadata = "license: mit  # ours\ntags:\n  - été\nauditors: [a]\n".encode().replace(b"\n", newline)
    body = "# Photos\n\nauditor: not metadata\n\n---\n\nA line of three hyphens, é, and no end".encode()
    rule = b"---" + newline
    card.write_bytes(rule + metadata + rule + body.replace(b"\n", newline))
    write_card(audit, card)
    first = card.read_bytes()
    assert first.startswith(rule + metadata + b"auditor: {")
    assert rule + body.replace(b"\n", newline) + newline * 2 + BEGIN.encode() in first
    assert first.count(b"\n") == first.count(newline)
    card.write_bytes(first + b"Written after it." + newline)
    write_card(audit, card)
    assert card.read_bytes() == first + b"Written after it." + newline


def test_an_old_section_and_its_key_are_replaced() -> None:
    card = f"---\nauditor: old\nlicense: mit\n---\nbefore {BEGIN}\nold\n{END} after\n"
    assert update_card(card, "{}", "new \\1") == (
        f"---\nlicense: mit\nauditor: {{}}\n---\nbefore {BEGIN}\nnew \\1\n{END} after\n"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (f"text\n{BEGIN}\nold\n".encode(), "it needs one"),
        (f"text\n{END}\n".encode(), "it needs one"),
        (f"{END}\n{BEGIN}\n".encode(), "it needs one"),
        (f"{BEGIN}{END}{BEGIN}{END}".encode(), "it needs one"),
        (b"---\nlicense: mit\n", "its metadata has no closing ---"),
        (b"\xff\xfe", "can't decode byte"),
    ],
)
def test_a_card_that_is_not_ours_to_change_is_one_line(
    audit: Path, tmp_path: Path, content: bytes, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    card = tmp_path / "README.md"
    card.write_bytes(content)
    assert run_command_line(["card", str(audit), "--out", str(card)]) == 1
    [line] = capsys.readouterr().err.strip().splitlines()
    assert f"{card} is not changed: " in line and message in line
    assert card.read_bytes() == content and [path.name for path in tmp_path.iterdir()] == ["README.md"]


def test_text_of_the_corpus_adds_no_markup(audit: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(audit, tmp_path / "audit")
    sentence = f"<script>alert(1)</script> [a](http://x)\n# title {END}"
    fault = Fault("caption", "boilerplate", None, None, None, None, 3, None, sentence)
    write_faults(Folder(copy), [fault])
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["corpus"]["spec"] = "/data\n---\nlicense: none\n```\n# x"
    (copy / "manifest.json").write_text(json.dumps(manifest))
    for _ in range(2):  # the second run has to find its own section again
        write_card(copy, tmp_path / "README.md")
    text = (tmp_path / "README.md").read_text()
    assert set(read_metadata(tmp_path / "README.md")) == {"auditor"}
    assert "<script" not in text and "[a](" not in text and text.count(END) == text.count(BEGIN) == 1
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        "## Audit", "### Findings", "### Reproduce",
    ]  # fmt: skip
    assert text.count("\n```\n") == 2


def test_the_card_of_a_subset_says_what_was_removed(tmp_path: Path) -> None:
    audit, _ = write_corpus_audit(tmp_path)
    clean = tmp_path / "clean"
    assert run_command_line(["filter", str(audit), "--max-p-mismatch", "0.1", "--out", str(clean)]) == 0
    write_card(audit, clean / "README.md", "--subset", str(clean))
    samples = json.loads((clean / "export.json").read_text())["samples"]
    text = (clean / "README.md").read_text()
    assert f"`auditor filter` kept {samples} samples by the rules" in text and "max\\_p\\_mismatch'\\: 0.1" in text


def test_a_folder_that_is_no_export_is_refused(audit: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    card = tmp_path / "README.md"
    assert run_command_line(["card", str(audit), "--out", str(card), "--subset", str(tmp_path)]) == 1
    [line] = capsys.readouterr().err.strip().splitlines()
    assert f"{tmp_path} is not a finished export of `auditor filter`" in line and not card.exists()
