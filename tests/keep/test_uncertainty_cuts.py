"""Cuts by uncertainty and matches: counts compared with naive ones, the promise of a loss, and the commands."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from auditor.cli import cli
from auditor.errors import AuditorError
from auditor.keep.thresholds import ThresholdError
from auditor.keep.uncertainty_cuts import choose_uncertainty_cut, measure_cuts, round_up
from auditor.python_api import Audit
from auditor.schema import FAILURES
from tests.support.synthetic import write_audit


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_audit(tmp_path_factory.mktemp("audit"), 3000)


@pytest.mark.parametrize("column", FAILURES)
def test_counts_equal_naive_ones(audit: Path, column: str) -> None:
    with Audit(audit) as opened:
        rows = opened.sql("SELECT * FROM samples WHERE status = 'ok'").to_pandas()
        cuts = measure_cuts(opened.database, column)
    assert len(cuts) == 7 and [cut.at for cut in cuts] == sorted(cut.at for cut in cuts)
    shares = [cut.removed_share for cut in cuts]
    assert shares == pytest.approx([0.5, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01], abs=0.002)
    fails = rows[FAILURES[column]].to_numpy() > 0
    for cut in cuts:
        gone = rows[column].to_numpy() > np.float32(cut.at)
        assert (cut.rows, cut.removed) == (len(rows), gone.sum())
        assert cut.fails == pytest.approx(fails.mean())
        assert cut.fails_removed == pytest.approx(fails[gone].mean())
        assert cut.fails_kept == pytest.approx(fails[~gone].mean())
        assert cut.lost == pytest.approx(gone[~fails].mean())
        for name in ("fails", "fails_removed", "fails_kept", "lost"):
            low, share, high = (getattr(cut, f"{name}{end}") for end in ("_low", "", "_high"))
            assert low - 1e-9 <= share <= high + 1e-9 and high > low
        assert cut.flags == {flag: rows.loc[gone, flag].sum() for flag in cut.flags}
        assert len(cut.topics) == 2
        for topic, share in cut.topics.items():
            assert share == pytest.approx(gone[rows["topic"].to_numpy() == topic].mean())


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are not wrapped."""
    monkeypatch.setenv("COLUMNS", "200")


def test_a_cut_at_the_ends_has_no_share_of_nothing(audit: Path) -> None:
    with Audit(audit) as opened:
        everything, nothing = measure_cuts(opened.database, "uncertainty_text", [0, 1])
    assert everything.fails_kept is None and everything.fails_kept_high is None and everything.lost == 1
    assert nothing.removed == 0 and nothing.fails_removed is None and nothing.lost == 0 and nothing.topics == {}


@pytest.mark.parametrize("column", FAILURES)
@pytest.mark.parametrize("limit", [0.02, 0.1])
def test_the_chosen_cut_loses_at_most_what_it_may_and_little_less(audit: Path, column: str, limit: float) -> None:
    with Audit(audit) as opened:
        cut = choose_uncertainty_cut(opened.database, column, lose_at_most=limit)
        assert cut.lost_high is not None and cut.lost_high <= limit and cut.removed > 0
        [stricter] = measure_cuts(opened.database, column, [cut.at * 0.998])
        assert stricter.lost_high is not None and stricter.lost_high > limit
        assert len(opened.keep(**{f"max_{column}": float(cut)})) == cut.rows - cut.removed
        few = choose_uncertainty_cut(opened.database, column, lose_at_most=limit, where="topic = 2")
    assert few.rows < cut.rows and few.lost_high is not None and few.lost_high <= limit


def test_the_promise_holds_for_other_rows_of_the_same_kind(audit: Path) -> None:
    """The cut is chosen on one half of the rows and measured on the other: 95% confidence, twelve trials.

    A cut that promises at most 5% loses more than 6% of the other half in few trials.
    """
    broken = 0
    with Audit(audit) as opened:
        for trial in range(12):
            half = f"hash(uid || '{trial}') % 2"
            cut = choose_uncertainty_cut(opened.database, "uncertainty_text", lose_at_most=0.05, where=f"{half} = 0")
            [other] = measure_cuts(opened.database, "uncertainty_text", [cut.at], f"{half} = 1")
            assert other.lost is not None
            broken += other.lost > 0.06
    assert broken <= 2


def test_the_extremes_of_a_limit_remove_nothing_or_all_but_the_lowest(audit: Path) -> None:
    with Audit(audit) as opened:
        nothing, most = (choose_uncertainty_cut(opened.database, "ambiguity_text", lose_at_most=x) for x in (0, 1))
        failing = "better_media > 0"
        none_good = choose_uncertainty_cut(opened.database, "ambiguity_text", lose_at_most=0.1, where=failing)
    assert nothing.removed == 0 and most.removed > 0.99 * most.rows
    assert none_good.fails == 1 and none_good.removed == 0 and none_good.lost is None


def test_captions_of_one_medium_count_as_one_observation(audit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Audit(audit) as opened:
        [single] = measure_cuts(opened.database, "ambiguity_text", [0.3])
        statistics = {"image": {"media": 100, "pairs": 500}}
        monkeypatch.setitem(opened.database.manifest, "statistics", statistics)
        [shared] = measure_cuts(opened.database, "ambiguity_text", [0.3])
    assert shared.fails == single.fails
    widths = [cut.fails_high - cut.fails_low for cut in (single, shared)]  # type: ignore[operator]
    assert widths[1] == pytest.approx(widths[0] * 5**0.5, rel=0.02)


def test_a_cut_is_rounded_up_to_a_few_digits() -> None:
    assert round_up(0.612345678) == 0.61235
    assert round_up(1234567.0) == 1234600
    assert (round_up(0.0), round_up(1.0), round_up(0.6)) == (0, 1, 0.6)
    assert round_up(float(np.float32(0.3))) >= np.float32(0.3)


@pytest.mark.parametrize(
    ("column", "options", "words"),
    [
        ("similarity", {"lose_at_most": 0.1}, "by: one of p_mismatch, ambiguity_visual, .*not 'similarity'"),
        ("uncertainty_text", {"lose_at_most": 2.0}, "lose_at_most must be a share between 0 and 1"),
        ("uncertainty_text", {"expect_precision": 0.5}, "expect_precision is for p_mismatch only"),
        ("ambiguity_text", {}, "chosen by lose_at_most"),
        ("ambiguity_text", {"lose_at_most": 0.1, "where": "FALSE"}, "no row has ambiguity_text and better_media"),
    ],
)
def test_limits_that_make_no_sense_are_refused(audit: Path, column: str, options: dict[str, float], words: str) -> None:
    with Audit(audit) as opened, pytest.raises(ThresholdError, match=words):
        choose_uncertainty_cut(opened.database, column, **options)  # type: ignore[arg-type]


def test_a_cut_outside_the_range_is_refused(audit: Path) -> None:
    with Audit(audit) as opened, pytest.raises(AuditorError, match="max_uncertainty_text is between 0 and 1, not 3"):
        measure_cuts(opened.database, "uncertainty_text", [3])


def test_thresholds_shows_cuts_by_uncertainty(audit: Path) -> None:
    shown = CliRunner().invoke(cli, ["thresholds", str(audit), "--by", "uncertainty_text"])
    assert shown.exit_code == 0 and "of them fail in retrieval" in shown.output and "others lost" in shown.output
    asked = CliRunner().invoke(
        cli, ["thresholds", str(audit), "--by", "uncertainty_text", "--at", "60%", "--at", "0.7", "--json"]
    )
    cuts = json.loads(asked.output)
    assert [cut["at"] for cut in cuts] == [0.6, 0.7] and cuts[0]["removed"] > cuts[1]["removed"]
    chosen = CliRunner().invoke(
        cli, ["thresholds", str(audit), "--by", "ambiguity_visual", "--lose-at-most", "5%", "--json"]
    )
    [cut] = json.loads(chosen.output)
    assert cut["lost_high"] <= 0.05 and cut["removed"] > 0


def test_a_dry_run_says_what_a_limit_costs(audit: Path) -> None:
    arguments = ["filter", str(audit), "--max-uncertainty-text", "0.6", "--dry-run"]
    shown = CliRunner().invoke(cli, arguments)
    assert shown.exit_code == 0 and "uncertainty_text: " in shown.output and "removed fail" in shown.output
    preview = json.loads(CliRunner().invoke(cli, [*arguments, "--json"]).output)
    [cut] = preview["cuts"]
    assert cut["at"] == 0.6 and cut["removed"] == preview["together"]["removed"]
    plain = json.loads(CliRunner().invoke(cli, ["filter", str(audit), "--where", "true", "--dry-run", "--json"]).output)
    assert plain["cuts"] == []


def test_filter_chooses_the_cut_of_a_column(audit: Path, tmp_path: Path) -> None:
    target = tmp_path / "kept.txt"
    arguments = ["--lose-at-most", "5%", "--by", "uncertainty_text", "--out", str(target)]
    result = CliRunner().invoke(cli, ["filter", str(audit), *arguments])
    with Audit(audit) as opened:
        cut = choose_uncertainty_cut(opened.database, "uncertainty_text", lose_at_most=0.05)
    assert result.exit_code == 0 and f"cut: uncertainty_text <= {cut.at:g}" in result.output
    assert len(target.read_text().split()) == cut.rows - cut.removed
