"""One caption, or one source, of each medium: compared with a naive choice, and the same in every export."""

import json
import tarfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import webdataset as wds

from auditor.cli import run_command_line
from auditor.keep.caption_choice import FEWEST_REPEATS, REPEATED_SHARE, UNSCORED
from auditor.python_api import Audit
from auditor.query.rules import RuleError, Rules
from auditor.schema import DEFECTS, NO_CAPTIONS
from tests.support.synthetic import write_corpus_audit

SOURCES = ("alt", "raw", "refined", "alt", "raw")
# WebDataset leaves the last tar to the collector
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Media with five captions of three sources; some are boilerplate, refusals, cut off, timed or without estimate."""
    folder = tmp_path_factory.mktemp("choice")
    audit, _ = write_corpus_audit(folder, captions=5)
    for path in (audit / "samples").glob("*.parquet"):
        table = pq.read_table(path)
        rows = table.to_pylist()
        for row in rows:
            number = row["caption_index"] + 3 * int(row["key"][-2:], 36) if row["key"][-2:].isalnum() else 0
            row["caption_source"] = SOURCES[row["caption_index"]]
            row["looks_like"] = {0: "refusal", 1: "unfinished", 2: "url"}.get(number % 11)
            row["caption_count"] = 50 if number % 7 == 0 else 1
            row["p_mismatch"] = None if number % 13 == 0 else row["p_mismatch"]
        pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)
    return folder


@pytest.fixture
def audit(folder: Path) -> Audit:
    return Audit(next(path.parent for path in folder.rglob("manifest.json")))


def group_rows(audit: Audit, where: str) -> dict[tuple[Any, ...], Rows]:
    groups: dict[tuple[Any, ...], Rows] = defaultdict(list)
    for row in audit.sql(f"SELECT * FROM samples WHERE status = 'ok' AND ({where})").to_pylist():
        groups[row["shard"], row["key"], row["start"], row["end"]].append(row)
    return groups


def rank_naively(row: dict[str, Any], rows: int) -> tuple[float, float, int]:
    p = UNSCORED if row["p_mismatch"] is None else row["p_mismatch"]
    is_repeated = row["caption_count"] >= max(FEWEST_REPEATS, round(REPEATED_SHARE * rows))
    defect = 1.0 if row["looks_like"] in NO_CAPTIONS else 0.5 if row["looks_like"] in DEFECTS or is_repeated else 0
    return max(p, defect), -row["similarity"], row["caption_index"]


@pytest.mark.parametrize("where", ["TRUE", "p_mismatch <= 0.05", "caption_index <> 2"])
def test_the_best_caption_of_each_medium(audit: Audit, where: str) -> None:
    kept = audit.keep(best_caption=True, where=where)
    best = [min(rows, key=lambda row: rank_naively(row, audit.count())) for rows in group_rows(audit, where).values()]
    assert sorted(kept.uids.to_pylist()) == sorted(row["uid"] for row in best)
    assert kept.count == kept.media == audit.rule_effects(kept.rules).kept > 0


@pytest.mark.parametrize("where", ["TRUE", "p_mismatch <= 0.05"])
def test_the_first_source_that_passes(audit: Audit, where: str) -> None:
    kept = audit.keep(prefer=["refined", "raw"], where=where)
    expected = []
    for rows in group_rows(audit, where).values():
        by_source = [[row["uid"] for row in rows if row["caption_source"] == name] for name in ("refined", "raw")]
        expected += by_source[0] or by_source[1]
    assert sorted(kept.uids.to_pylist()) == sorted(expected)
    one_each = audit.keep(prefer="refined,raw", best_caption=True, where=where)
    assert one_each.count == kept.media and set(one_each.uids.to_pylist()) <= set(expected)


def test_every_export_has_the_chosen_captions(audit: Audit, tmp_path: Path) -> None:
    kept = audit.keep(best_caption=True)
    rows = kept.to_arrow(["key", "caption", "caption_source"]).to_pylist()
    chosen = {(row["key"], row["caption"]) for row in rows}
    assert {(s["__key__"], s["txt"].decode()) for s in kept.samples()} == chosen
    kept.write(tmp_path / "out")
    kept.write(tmp_path / "kept.parquet")
    tars = sorted(map(str, (tmp_path / "out").glob("*.tar")))
    assert {(s["__key__"], s["txt"].decode()) for s in wds.WebDataset(tars, shardshuffle=False)} == chosen
    assert pq.read_table(tmp_path / "kept.parquet")["caption_source"].to_pylist().count("raw") > 0
    removed = pq.read_table(tmp_path / "out" / "removed.parquet").to_pylist()
    assert {row["reason"] for row in removed if row["status"] == "ok"} == {"best_caption"}
    assert {row["caption_source"] for row in removed} == set(SOURCES)
    weights = audit.keep(best_caption=True).weigh(tmp_path / "w.parquet")
    assert weights.rows == audit.counts["status"]["ok"] and weights.different <= len(chosen)


def test_the_command_counts_sources(audit: Audit, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run_command_line(["filter", audit.path, "--prefer", "refined,alt", "--best-caption", "--dry-run"])
    shown = capsys.readouterr().out
    assert "best_caption" in shown and "prefer" in shown and "sources of the kept captions: refined" in shown
    run_command_line(["filter", audit.path, "--best-caption", "--out", str(tmp_path / "kept.parquet"), "--json"])
    printed = json.loads(capsys.readouterr().out)
    assert printed["rules"] == {"best_caption": True} and sum(printed["sources"].values()) == printed["rows"]


def test_rules_can_be_stored_and_spelled() -> None:
    rules = Rules.of(prefer=["raw", "alt"], best_caption=True)
    assert Rules.of(json.loads(json.dumps(rules.to_dict()))) == rules
    assert rules.command_line() == ["--prefer", "raw,alt", "--best-caption"]


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ({"prefer": ["rwa"]}, "no caption has the source 'rwa'; there are alt, raw, refined"),
        ({"prefer": 3}, "prefer lists sources of captions"),
        ({"best_caption": "yes"}, "best_caption is True or False"),
    ],
)
def test_wrong_rules_are_one_line(audit: Audit, rules: dict[str, Any], reason: str) -> None:
    with pytest.raises(RuleError, match=reason):
        audit.keep(**rules)


def test_an_audit_with_one_source(tmp_path: Path) -> None:
    path, corpus = write_corpus_audit(tmp_path, captions=2)
    audit = Audit(path)
    with pytest.raises(RuleError, match="the captions of this audit have one source"):
        audit.keep(prefer=["raw"])
    assert audit.keep(best_caption=True).count == audit.keep(where="TRUE").media
    with tarfile.open(next(corpus.glob("*.tar"))) as opened:
        assert opened.getnames()
