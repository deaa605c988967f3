"""The table of sources of captions: what is planted is what it shows, and the same in commands, report and checks."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from auditor.check.check_audit import check_audit
from auditor.cli import run_command_line
from auditor.python_api import Audit
from auditor.report.report import render_report
from auditor.report.source_comparison import (
    MARGIN,
    SourceComparison,
    SourceDuel,
    build_source_facts,
    compare_by_medium,
    compare_sources,
)
from tests.support.sources import SOURCES, write_sources
from tests.support.synthetic import write_corpus_audit

ALL = "status = 'ok'"


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    return write_sources(tmp_path_factory.mktemp("sources"))


def test_each_source_has_a_line(audit: Audit) -> None:
    sources = {source.group.name: source for source in compare_sources(audit.database).sources}
    assert sorted(sources) == list(SOURCES)
    for name, mean in (("alt", 0.9), ("raw", 0.01)):
        mismatched = sources[name].group.mismatched
        assert mismatched is not None and mismatched.low <= mean <= mismatched.high
        assert mismatched.share == pytest.approx(mean, abs=0.02)
    assert [sources[name].no_caption for name in SOURCES] == [1, 0, 0]
    assert sources["refined"].repeated == pytest.approx(0.25, abs=0.05) and sources["raw"].repeated == 0
    assert [sources[name].words for name in SOURCES] == [10, 20, 30]
    assert sources["raw"].language_share == pytest.approx(0.5, abs=0.05)


def test_a_language_needs_several_captions(audit: Audit) -> None:
    group = compare_sources(audit.database).sources[0].group
    row = {"rows": 1000, "no_caption": 0, "repeated": 0, "words": 3.7, "language": "fr", "speakers": 1, "detected": 2}
    assert build_source_facts(group, row).language is None
    assert build_source_facts(group, row | {"speakers": 8, "detected": 10}).tabulate()["language"] == "fr 80%"


def test_better_counts_media(tmp_path: Path) -> None:
    """Differences below MARGIN count as alike; a URL is worse than any caption; boilerplate counts as even odds."""
    audit = write_sources(tmp_path, [(0.0, 0.02, 0.05), (0.0, 0.8, 0.6), (0.0, 0.7, 0.1), (0.0, None, 0.01)])
    duels = {(duel.first, duel.second): duel for duel in compare_by_medium(audit.database, ALL)}
    naive = {"raw": 0, "refined": 0}
    rows = audit.sql(
        "SELECT key, caption_source, p_mismatch, caption_count FROM samples WHERE status = 'ok'"
    ).to_pylist()
    bad: dict[str, dict[str, float]] = {}
    for row in rows:
        p = 0.5 if row["p_mismatch"] is None else row["p_mismatch"]
        bad.setdefault(row["key"], {})[row["caption_source"]] = max(p, 0.5 * (row["caption_count"] > 1))
    for each in bad.values():
        difference = each.get("raw", np.nan) - each.get("refined", np.nan)
        naive["refined"] += difference > MARGIN
        naive["raw"] += difference < -MARGIN
    duel = duels["raw", "refined"]
    assert (duel.first_better, duel.second_better) == (naive["raw"], naive["refined"]) and naive["refined"] > 5
    assert duels["alt", "raw"].first_better == 0 and duels["alt", "refined"].p_value < 1e-6


@pytest.mark.parametrize(("second", "significant"), [(3, True), (9, False)])
def test_the_sign_test_is_exact(tmp_path: Path, second: int, significant: bool) -> None:
    """Of 20 media, `refined` is better for a few and `raw` for the others."""
    given: list[tuple[float | None, ...]] = [(0.9, 0.9, 0.0) if n % 20 < second else (0.9, 0.0, 0.9) for n in range(20)]
    duel = compare_by_medium(write_sources(tmp_path, given).database, ALL)[-1]
    total, fewer = duel.first_better + duel.second_better, min(duel.first_better, duel.second_better)
    tail = sum(math.comb(total, k) for k in range(fewer + 1)) / 2**total
    assert total > 40 and duel.p_value == pytest.approx(min(1, 2 * tail))
    assert ("not significant" not in str(duel)) == significant == (duel.p_value <= 0.05)


def test_of_many_sources_the_significant_differences_are_listed() -> None:
    duels = [SourceDuel("a", name, 100, 60, 20, 0.001 if name == "c" else 0.5) for name in "bcdefgh"]
    lines = SourceComparison([], duels).lines()
    assert lines[0] == str(duels[1]) and "the other 6 pairs of sources" in lines[1]
    assert "no caption has an estimate" in lines[2] and len(lines) == 3
    assert SourceComparison([], duels[:6]).lines()[:6] == list(map(str, duels[:6]))


def test_a_part_of_the_media_is_enough(audit: Audit) -> None:
    assert 0 < compare_by_medium(audit.database, ALL, 3)[0].media < compare_by_medium(audit.database, ALL)[0].media


def test_every_place_shows_it(audit: Audit, capsys: pytest.CaptureFixture[str]) -> None:
    sentence = "alt is better for 0 media, raw for "
    run_command_line(["summary", audit.path])
    assert sentence in capsys.readouterr().out
    run_command_line(["summary", audit.path, "--json"])
    assert [source["source"] for source in json.loads(capsys.readouterr().out)["sources"]] == list(SOURCES)
    run_command_line(["compare", audit.path, audit.path])
    assert capsys.readouterr().out.count(sentence) == 2
    run_command_line(["thresholds", audit.path, "--at", "0.5"])
    shown = capsys.readouterr().out
    assert all(f"{source}: " in shown for source in SOURCES)
    run_command_line(["thresholds", audit.path, "--at", "0.5", "--json"])
    cuts = json.loads(capsys.readouterr().out)
    assert [cut.get("caption_source") for cut in cuts] == [None, *SOURCES]
    assert cuts[0]["removed"] == sum(cut["removed"] for cut in cuts[1:]) > 0
    assert sentence in render_report(audit.database, media=False)
    run_command_line(["worst", audit.path, "-n", "1"])
    shown = capsys.readouterr().out
    assert "caption_source" in shown and " alt " in shown
    key = audit.worst(n=1).to_pylist()[0]["key"]
    run_command_line(["explain", audit.path, key, "--caption", "1"])
    assert f"{key} caption 1 of raw (" in capsys.readouterr().out


def test_budgets_hold_in_each_source(audit: Audit, tmp_path: Path) -> None:
    budget = tmp_path / "budget.toml"
    budget.write_text('[limits]\nmismatched = {at_most = 0.2, per = "caption_source"}\n')
    result = check_audit(audit.database, budget).results[0]
    assert result.verdict == "fail" and result.estimate is not None and result.estimate.group == "alt"
    assert "1 of 3 groups by caption_source" in result.note


def test_an_audit_with_one_source_says_nothing(tmp_path: Path) -> None:
    comparison = Audit(write_corpus_audit(tmp_path)[0]).sources()
    assert not comparison.sources and comparison.lines() == [] and comparison.to_dict() == {"sources": [], "duels": []}
