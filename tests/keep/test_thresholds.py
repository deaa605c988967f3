"""Cut-offs: sums compared with naive ones, coverage over many corpora, and the command."""

import json
import re
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from auditor.cli import cli, run_command_line
from auditor.keep.thresholds import (
    NOTHING,
    PairCounts,
    ThresholdError,
    build_pair_counts,
    choose_cut,
    compute_cuts,
    count_pairs,
)
from auditor.python_api import Audit
from auditor.score.statistics import mismatch_statistic
from auditor.score.statistics.mismatch import combine_models, fit_mismatch
from auditor.score.statistics.rivals import measure_pairs
from tests.support.pair_counts import count_scores
from tests.support.pairs import make_planted_pairs
from tests.support.synthetic import write_audit


@lru_cache(maxsize=64)
def simulate_counts(rate: float, seed: int, media: int = 600) -> tuple[PairCounts, np.ndarray, np.ndarray]:
    corpus = make_planted_pairs(media, rate, seed=seed)
    ref = corpus.reference
    model = fit_mismatch(ref, seed=seed)
    assert model is not None and model.statistic is not None
    score = mismatch_statistic.compute_statistic(model.statistic, ref, measure_pairs(ref, ref))
    return count_scores(score, model), model.p(score), corpus.spoiled


def test_sums_equal_naive_ones() -> None:
    found, p, _ = simulate_counts(0.2, 0)
    for cut in compute_cuts(found, [0.1, 0.5, 0.9]):
        gone = p >= np.float32(cut.p)
        assert cut.removed == gone.sum()
        assert cut.precision == pytest.approx(p[gone].mean(), abs=1e-5)
        assert cut.lost == pytest.approx((1 - p[gone]).sum() / (1 - p).sum(), abs=1e-5)
        assert cut.caught == pytest.approx(p[gone].sum() / p.sum(), abs=1e-5)
        assert cut.precision_low is not None and cut.precision_high is not None and cut.precision is not None
        assert cut.precision_low <= cut.precision <= cut.precision_high
        assert cut.lost_low <= cut.lost <= cut.lost_high
        assert cut.caught_low <= cut.caught <= cut.caught_high
        assert cut.left == pytest.approx(p[~gone].mean(), abs=1e-5)
        assert cut.left_low is not None and cut.left_high is not None and cut.left_low <= cut.left <= cut.left_high
        assert cut.removed == (p > np.float32(cut.max_p_mismatch)).sum()


def test_each_calibration_group_is_resampled_by_its_own_curves() -> None:
    first, second = (fit_mismatch(make_planted_pairs(300, rate, seed=3).reference, bootstraps=5) for rate in (0.1, 0.4))
    assert first is not None and second is not None
    model = combine_models({"": first, "de": second}, [300, 300], "language")
    score = np.array([-2.0, 0.5, 0.5, 3.0])
    names = [("image", None), ("image", None), ("image", "de"), ("image", "de")]
    p = np.concatenate([first.p(score[:2]), second.p(score[2:])]).astype(float)
    counts = build_pair_counts(names, np.floor(p * 1000).astype(int), np.ones(4), p, score, {"image": model})
    for index in range(5):
        naive = [
            np.interp(s, m.score, m.bootstrap[index])
            for s, m in zip(score, (first, first, second, second), strict=True)
        ]
        assert counts.resampled[index] == pytest.approx(naive)


def test_lose_at_most_is_kept_over_many_corpora() -> None:
    """95% confidence over 30 corpora of three rates: more than 5 broken promises happen three times in a thousand."""
    broken, removed, bad = 0, 0, 0
    for seed in range(30):
        found, p, spoiled = simulate_counts((0.05, 0.2, 0.4)[seed % 3], seed)
        bad += int(spoiled.sum())
        gone = p > np.float32(float(choose_cut(found, lose_at_most=0.02)))
        broken += (gone & ~spoiled).sum() / (~spoiled).sum() > 0.02
        removed += int(gone.sum())
    assert broken <= 5
    assert removed > 0.4 * bad  # the cut removes a substantial share


def test_expected_precision_is_met_on_average() -> None:
    found_precision = []
    for seed in range(30):
        found, p, spoiled = simulate_counts((0.05, 0.2, 0.4)[seed % 3], seed)
        gone = p > np.float32(float(choose_cut(found, expect_precision=0.9)))
        found_precision += [spoiled[gone].mean()] if gone.any() else []
    assert len(found_precision) > 20 and np.mean(found_precision) > 0.88


def test_every_interval_holds_the_truth_most_of_the_time() -> None:
    """90% intervals over 30 corpora of three rates, three cuts each: the bench measures them on hundreds."""
    held: dict[str, list[bool]] = {name: [] for name in ("precision", "caught", "lost", "left", "mismatched")}
    for seed in range(30):
        found, p, spoiled = simulate_counts((0.05, 0.2, 0.4)[seed % 3], seed)
        for cut in compute_cuts(found, [0.2, 0.5, 0.8]):
            gone = p >= np.float32(cut.p)
            truth = {
                "precision": spoiled[gone].mean(),
                "caught": gone[spoiled].mean(),
                "lost": gone[~spoiled].mean(),
                "left": spoiled[~gone].mean(),
            }
            for name, value in truth.items():
                held[name].append(getattr(cut, f"{name}_low") <= value <= getattr(cut, f"{name}_high"))
        [whole] = compute_cuts(found, [NOTHING])
        assert whole.left_low is not None and whole.left_high is not None
        held["mismatched"].append(whole.left_low <= spoiled.mean() <= whole.left_high)
    assert all(np.mean(hits) > 0.8 for hits in held.values()), {name: np.mean(hits) for name, hits in held.items()}


def test_nothing_removed_and_nothing_kept_have_no_share() -> None:
    found, _, _ = simulate_counts(0.2, 0)
    nothing, everything = compute_cuts(found, [NOTHING, 0.0])
    assert nothing.removed == 0 and nothing.precision is None and nothing.precision_high is None
    assert (nothing.caught, nothing.lost) == (0, 0)
    assert everything.left is None and everything.left_low is None
    assert everything.caught == everything.lost == 1 and everything.caught_low > 0.99


def test_a_promise_nobody_can_keep_removes_nothing() -> None:
    found, p, _ = simulate_counts(0.2, 0)
    cut = choose_cut(found, lose_at_most=0.0, expect_precision=1.0)
    assert not (p > np.float32(float(cut))).any() or cut.lost_high == 0
    clean, untouched, _ = simulate_counts(0.0, 1)
    assert (untouched > float(choose_cut(clean, expect_precision=0.9))).mean() < 0.01


@pytest.mark.parametrize("promise", [{"lose_at_most": 2.0}, {"expect_precision": -0.1}, {}])
def test_promises_that_make_no_sense_are_refused(promise: dict[str, float]) -> None:
    with pytest.raises(ThresholdError):
        choose_cut(simulate_counts(0.2, 0)[0], **promise)


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_audit(tmp_path_factory.mktemp("audit"), 3000)


def test_an_audit_gives_the_sums_of_its_rows(audit: Path) -> None:
    with Audit(audit) as opened:
        p = opened.sql("SELECT p_mismatch FROM samples WHERE status = 'ok'").column(0).to_numpy()
        cut = compute_cuts(count_pairs(opened.database), [0.5])[0]
        videos = compute_cuts(count_pairs(opened.database, "kind = 'video'"), [0.5])[0]
    assert cut.removed == (p >= 0.5).sum()
    assert cut.precision == pytest.approx(p[p >= 0.5].mean(), abs=1e-4)
    assert 0 < videos.removed < cut.removed


def test_the_command_prints_a_table_and_json(audit: Path) -> None:
    shown = CliRunner().invoke(cli, ["thresholds", str(audit)])
    assert shown.exit_code == 0 and "good lost" in shown.output and "left" in shown.output
    assert re.search(
        r"pairs; mismatched: about [\d.]+% \([\d.]+ to [\d.]+\), not counting", " ".join(shown.output.split())
    )
    percent = CliRunner().invoke(cli, ["thresholds", str(audit), "--at", "30%", "--json"])
    [given] = json.loads(percent.output)
    assert given["p"] == 0.3 and given["unscored"] == 0 and given["caught_low"] < given["caught"] < given["caught_high"]
    chosen = CliRunner().invoke(cli, ["thresholds", str(audit), "--lose-at-most", "2%", "--json"])
    assert chosen.exit_code == 0
    (cut,) = json.loads(chosen.output)
    assert cut["lost_high"] <= 0.02 and cut["removed"] > 0


@pytest.mark.parametrize("goal", [["--lose-at-most", "2%"], ["--expect-precision", "0.9"]])
@pytest.mark.parametrize("by", ["p_mismatch", "uncertainty_text"])
def test_cut_offs_and_a_goal_are_refused(
    audit: Path, goal: list[str], by: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(["thresholds", str(audit), "--by", by, "--at", "0.3", *goal]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "give cut-offs with --at, or a goal" in line and "not both" in line


def test_an_audit_without_probabilities_says_so(audit: Path) -> None:
    with Audit(audit) as opened, pytest.raises(ThresholdError, match="p_mismatch"):
        count_pairs(opened.database, "FALSE")


@pytest.mark.parametrize("column", ["p_mismatch", "uncertainty_text"])
def test_a_filter_chooses_its_cut_on_the_rows_that_its_condition_leaves(column: str, audit: Path) -> None:
    where = "similarity < (SELECT median(similarity) FROM samples)"
    options = ["--lose-at-most", "5%", "--by", column, "--dry-run"]
    cuts = []
    for condition in ([], ["--where", where]):
        result = CliRunner().invoke(cli, ["filter", str(audit), *options, *condition])
        assert result.exit_code == 0, result.output
        cuts.append(float(re.findall(rf"cut: {column} <= (\S+)", result.stderr)[0]))
    with Audit(audit) as opened:
        choose = opened.choose_cut if column == "p_mismatch" else partial(opened.choose_uncertainty_cut, column)
        expected = [float(choose(lose_at_most=0.05, where=condition)) for condition in (None, where)]
    assert cuts == pytest.approx(expected, rel=1e-4) and abs(cuts[0] - cuts[1]) > 0.01 * cuts[0]
