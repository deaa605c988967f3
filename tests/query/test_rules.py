"""The SQL of flags and rules matches their descriptions."""

import numpy as np
import pytest

from auditor.python_api import Audit
from auditor.query.rules import (
    BOUNDS,
    OTHER_RULES,
    KeepRules,
    RuleError,
    Rules,
    parse_share,
)
from auditor.schema import RULES
from tests.support.synthetic import write_audit


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_audit(tmp_path_factory.mktemp("rules"), 2000, 500))


def test_flags_follow_the_thresholds(path: str) -> None:
    table = Audit(path).sql("SELECT * FROM samples")
    for flag, column, threshold in (
        ("mismatch", "p_mismatch", 0.5),
        ("ambiguous_visual", "ambiguity_visual", 0.5),
        ("ambiguous_text", "ambiguity_text", 0.5),
    ):
        expected = np.nan_to_num(table[column].to_numpy(), nan=-1) >= threshold
        assert 0 < expected.sum() < len(expected)
        np.testing.assert_array_equal(table[flag].to_numpy(), expected)


def test_thresholds_can_be_overridden(path: str) -> None:
    strict = Audit(path, thresholds={"mismatch": 0.01, "ambiguous_text": 0.3})
    table = strict.sql("SELECT * FROM samples")
    np.testing.assert_array_equal(
        table["ambiguous_text"].to_numpy(), np.nan_to_num(table["ambiguity_text"].to_numpy(), nan=-1) >= 0.3
    )
    assert strict.summary().flags["mismatch"] > Audit(path).summary().flags["mismatch"]
    assert strict.thresholds == {"mismatch": 0.01, "ambiguous_visual": 0.5, "ambiguous_text": 0.3}


def test_a_threshold_of_no_flag_is_refused(path: str) -> None:
    with pytest.raises(RuleError, match="no flag 'uncertainty_text'; thresholds are those of mismatch"):
        Audit(path, thresholds={"uncertainty_text": 0.7})


@pytest.mark.parametrize(
    ("given", "meant"), [("30%", 0.3), ("0.3", 0.3), (0.3, 0.3), ("1000", 1000), (7, 7), ("1e-2", 0.01)]
)
def test_shares(given: str | float, meant: float) -> None:
    assert parse_share(given) == pytest.approx(meant)
    assert isinstance(parse_share(given), type(meant))


@pytest.mark.parametrize("given", ["150%", "many", "0%", "-3", 0, 1.5, ""])
def test_bad_shares(given: str | float) -> None:
    with pytest.raises(RuleError):
        parse_share(given)


def test_unknown_rule_is_refused() -> None:
    with pytest.raises(RuleError, match=r"max_p_mismach.*max_p_mismatch"):
        Rules.of({"max_p_mismach": 0.1})
    with pytest.raises(RuleError, match="must be used together"):
        Rules.of(keep_top="30%")


def test_command_line_says_the_same() -> None:
    rules = Rules.of(max_p_mismatch=0.1, keep_top="30%", by="similarity", where="kind = 'image'", no_duplicates=True)
    assert rules.command_line() == [
        *("--max-p-mismatch", "0.1", "--keep-top", "30%", "--by", "similarity"),
        *("--where", "kind = 'image'", "--no-duplicates"),
    ]


def test_limits_are_numbers_or_shares_that_rows_can_have() -> None:
    given = {"max_p_mismatch": "30%", "min_similarity": -0.5, "max_dark_share": "2.5%", "min_words": "3"}
    assert Rules.of(given).limits == {**given, "max_p_mismatch": 0.3, "max_dark_share": 0.025, "min_words": 3}
    assert Rules.of(max={"aesthetics_score": 7}).limits == {"max_aesthetics_score": 7}
    wrong = (
        {"max_p_mismatch": 3},
        {"min_similarity": "30%"},
        {"min_words": "many"},
        {"max_uncertainty_text": float("nan")},
    )
    for rules in wrong:
        with pytest.raises(RuleError, match=next(iter(rules))):
            Rules.of(rules)


def test_the_rules_that_are_spelled_out_are_those_of_the_schema() -> None:
    assert set(KeepRules.__annotations__) == {*RULES, *OTHER_RULES, *BOUNDS}
